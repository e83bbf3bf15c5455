#include "device_group.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "call_group.h"
#include "work.h"

namespace weft_torch {

namespace {

// Meets through the store. A rank cannot tell at a later use whether the others' lenders still lend.
Membership with_prefix(const Membership& group, const std::string& prefix) {
  Membership made = group;
  made.lender = nullptr;
  made.store = c10::make_intrusive<c10d::PrefixStore>(prefix, group.store);
  return made;
}

}  // namespace

DeviceGroup::DeviceGroup(at::DeviceType type, const Membership& group, std::chrono::milliseconds timeout)
    : impl_(type), group_(group), timeout_(timeout) {}

std::optional<c10::Device> DeviceGroup::device() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return device_;
}

void DeviceGroup::use(c10::Device device, const char* what) {
  if (!device_) device_ = device;
  if (*device_ == device) return;
  C10_THROW_ERROR(ValueError, c10::str(what, " is on ", device, ", but this rank takes part in the group on ",
                                       *device_, "; a rank has one device: move the tensor there."));
}

void DeviceGroup::connect_now(c10::Device device, Lender& lender) {
  std::unique_lock<std::mutex> lock(mutex_);
  use(device, "The group's device");
  connected_at_once_ = true;
  Membership group = with_prefix(group_, "device");
  group.lender = group_.lender;
  lender.lend(made(lock, comm_, group)->get(), device.index());
}

std::shared_ptr<DeviceComm> DeviceGroup::made(std::unique_lock<std::mutex>& lock, Slot& slot,
                                              const Membership& group) {
  made_.wait(lock, [&slot] { return !slot.being_made; });
  if (ended_) std::rethrow_exception(backend_error(kAborted));
  if (slot.comm) return slot.comm;
  slot.being_made = true;
  const auto timeout = timeout_;
  const c10::Device device = *device_;
  std::shared_ptr<DeviceComm> comm;
  std::exception_ptr thrown;
  lock.unlock();
  try {
    comm = std::make_shared<DeviceComm>(make_communicator(group, timeout, device.index(), &ended_));
  } catch (...) {
    thrown = std::current_exception();
  }
  lock.lock();
  slot.being_made = false;
  made_.notify_all();
  if (thrown) std::rethrow_exception(thrown);
  if (ended_) {
    comm->end(reason_to_abort_);
    std::rethrow_exception(backend_error(kAborted));
  }
  if (timeout != timeout_) comm->set_timeout(timeout_.count() / 1000.0);
  slot.comm = comm;
  return comm;
}

std::shared_ptr<DeviceComm> DeviceGroup::communicator(c10::Device device, const char* what) {
  std::unique_lock<std::mutex> lock(mutex_);
  use(device, what);
  return made(lock, comm_, with_prefix(group_, "device"));
}

std::shared_ptr<DeviceComm> DeviceGroup::communicator_with(c10::Device device, int peer, const char* what,
                                                           int* peer_in_it) {
  *peer_in_it = peer;
  std::unique_lock<std::mutex> lock(mutex_);
  use(device, what);
  if (connected_at_once_ || peer == group_.rank) return made(lock, comm_, with_prefix(group_, "device"));
  *peer_in_it = peer < group_.rank ? 0 : 1;
  const std::string ranks = c10::str(std::min(peer, group_.rank), " and ", std::max(peer, group_.rank));
  Membership two = with_prefix(group_, "device, ranks " + ranks);
  two.rank = 1 - *peer_in_it;
  two.size = 2;
  two.name += ": ranks " + ranks;
  return made(lock, pairs_[peer], two);
}

DeviceGroup::Queue& DeviceGroup::queue(const QueueKey& key) {
  auto found = queues_.find(key);
  if (found == queues_.end()) {
    found = queues_.emplace(key, Queue{impl_.getStreamFromGlobalPool(*device_), {}}).first;
  }
  return found->second;
}

void DeviceGroup::sweep() {
  std::vector<std::shared_ptr<InFlight>> over;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [key, queue] : queues_) {
      while (!queue.in_flight.empty() && queue.in_flight.front()->end().query()) {
        over.push_back(std::move(queue.in_flight.front()));
        queue.in_flight.pop_front();
      }
    }
  }
  for (const auto& each : over) each->let_go();
}

namespace {

// Whether the stream is being captured into a graph. torch 2.11 cannot tell.
template <typename Impl>
bool is_captured(const Impl& impl, const c10::Stream& stream) {
  if constexpr (requires { impl.isStreamCapturing(stream); }) return impl.isStreamCapturing(stream);
  else return false;
}

weftResult_t start(std::vector<Operation>& operations, const c10::Stream& stream) {
  std::optional<CallGroup> group;
  if (operations.size() > 1) group.emplace();
  weftResult_t result = weftSuccess;
  for (Operation& one : operations) {
    const CallTimeout timeout(one.timeout);
    result = one.start(one.comm, static_cast<weftStream_t>(stream.native_handle()));
    if (result != weftSuccess) break;
  }
  const weftResult_t ended = group ? group->end() : weftSuccess;
  return result == weftSuccess ? ended : result;
}

// Copies results to where they belong, in the current stream. Returns the last exception of a copy.
std::exception_ptr finish(std::vector<Operation>& operations) {
  std::exception_ptr thrown;
  for (Operation& one : operations) {
    one.scaled.clear();
    try {
      if (one.finish) one.finish();
    } catch (...) {
      thrown = std::current_exception();
    }
  }
  return thrown;
}

}  // namespace

void DeviceGroup::issue(std::vector<Operation> operations, const std::vector<DeviceWorkPtr>& works,
                        bool async) {
  const c10::Device device = operations[0].device;
  const std::shared_ptr<DeviceComm> comm = operations[0].on_device;
  const c10::DeviceGuard on_device(device);
  const c10::Stream current = impl_.getStream(device);
  // Events of a stream that is captured into a graph cannot be asked.
  const bool captured = is_captured(impl_, current);
  if (!captured) sweep();
  const QueueKey key = operations[0].queue;
  c10::Stream stream = current;
  if (async) {
    const std::lock_guard<std::mutex> lock(mutex_);
    stream = queue(key).stream;
    c10::Event before(type());
    before.record(current);
    before.block(stream);
  }
  const c10::StreamGuard on_stream(stream);
  const weftResult_t result = start(operations, stream);
  if (result != weftSuccess) std::rethrow_exception(backend_error(failure_sentence(comm->get(), result)));
  const std::exception_ptr thrown = finish(operations);
  c10::Event end(type());
  end.record(stream);
  // The current stream's own order protects the tensors of a synchronous call.
  if (!async) operations.clear();
  auto in_flight = std::make_shared<InFlight>(std::move(end), std::move(operations));
  for (const DeviceWorkPtr& work : works) work->issued(comm, in_flight);
  if (async && !captured) {
    const std::lock_guard<std::mutex> lock(mutex_);
    queue(key).in_flight.push_back(in_flight);
  }
  if (thrown) std::rethrow_exception(thrown);
}

void DeviceGroup::synchronize() {
  std::vector<std::shared_ptr<InFlight>> last;
  std::optional<c10::Device> device;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    device = device_;
    for (auto& [key, queue] : queues_) {
      const bool collective = key.kind == QueueKey::kReduce || key.kind == QueueKey::kMove;
      if (collective && !queue.in_flight.empty()) last.push_back(queue.in_flight.back());
    }
  }
  for (const auto& each : last) each->end().synchronize();
  if (device) impl_.synchronizeStream(impl_.getStream(*device));
  sweep();
}

bool DeviceGroup::any_in_flight() {
  sweep();
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::any_of(queues_.begin(), queues_.end(),
                     [](const auto& each) { return !each.second.in_flight.empty(); });
}

std::vector<std::shared_ptr<DeviceComm>> DeviceGroup::all() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::shared_ptr<DeviceComm>> made;
  if (comm_.comm) made.push_back(comm_.comm);
  for (const auto& [peer, pair] : pairs_) {
    if (pair.comm) made.push_back(pair.comm);
  }
  return made;
}

weftResult_t DeviceGroup::result() {
  for (const auto& comm : all()) {
    if (weftResult_t failed = comm->result(); failed != weftSuccess) return failed;
  }
  return weftSuccess;
}

void DeviceGroup::set_timeout(std::chrono::milliseconds timeout) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    timeout_ = timeout;
  }
  for (const auto& comm : all()) comm->set_timeout(timeout.count() / 1000.0);
}

std::shared_ptr<DeviceComm> DeviceGroup::connected() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return connected_at_once_ ? comm_.comm : nullptr;
}

void DeviceGroup::take(c10::Device device, weftComm_t comm, Lender& lender) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    device_ = device;
    connected_at_once_ = true;
    comm_.comm = std::make_shared<DeviceComm>(comm);
  }
  lender.lend(comm, device.index());
}

void DeviceGroup::end(const char* reason_to_abort) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
    reason_to_abort_ = reason_to_abort;
  }
  for (const auto& comm : all()) comm->end(reason_to_abort);
  sweep();
}

}  // namespace weft_torch
