#include "backend.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include "call_group.h"

namespace weft_torch {

void WeftBackend::check_open() const {
  if (!closed_) return;
  std::rethrow_exception(backend_error(
      aborted_ ? "This process group was aborted on this rank; make another by init_process_group() or "
                 "new_group()."
               : "This process group was shut down; make another by init_process_group() or new_group()."));
}

void WeftBackend::check_root(int64_t root, const char* what) const {
  if (root < 0 || root >= size_) {
    C10_THROW_ERROR(ValueError,
                    c10::str(what, " is ", root, ", but ranks of this group are 0 to ", size_ - 1, "."));
  }
}

std::string WeftBackend::sentence(weftResult_t result) const {
  return aborted_ ? kAborted : failure_sentence(comm_, result);
}

bool WeftBackend::is_on_host(const at::Tensor& tensor, const char* what) const {
  if (tensor.device().is_cpu()) return true;
  if (device_ && tensor.device().type() == device_->type()) return false;
  C10_THROW_ERROR(ValueError,
                  c10::str(what, " is on ", tensor.device(), ", but backend weft takes tensors on cpu",
                           device_ ? c10::str(" and ", device_->type()) : "",
                           "; use another backend for that device, as in "
                           "init_process_group(\"cpu:weft,cuda:nccl\")."));
}

void WeftBackend::locate(Operation& made, const at::Tensor& tensor, const char* what) {
  made.comm = comm_;
  if (is_on_host(tensor, what)) return;
  check_open();
  made.device = tensor.device();
  made.on_device = device_->communicator(tensor.device(), what);
  made.comm = made.on_device->get();
}

int WeftBackend::locate_message(Operation& made, const at::Tensor& tensor, int peer, const char* what) {
  if (is_on_host(tensor, what) || coalescing_.is_on()) {
    locate(made, tensor, what);
    return peer;
  }
  check_open();
  int in_it = peer;
  made.device = tensor.device();
  made.on_device = device_->communicator_with(tensor.device(), peer, what, &in_it);
  made.comm = made.on_device->get();
  return in_it;
}

// Messages have the number of the collective before them.
uint64_t WeftBackend::number_of(const Operation& operation) {
  return c10d::isP2POp(operation.type) ? sequence_number_.load() : ++sequence_number_;
}

c10::intrusive_ptr<WeftWork> WeftBackend::new_work(const Operation& operation) {
  auto work = c10::make_intrusive<WeftWork>(rank_, operation, number_of(operation));
  if (timing_) work->start_timing();
  return work;
}

namespace {

void check_devices(const Operation& operation, const Tensors& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.device() == operation.device) continue;
    C10_THROW_ERROR(ValueError, c10::str(operation.title, " was given tensors on ", operation.device, " and ",
                                         tensor.device(), "; they must be on one device."));
  }
}

}  // namespace

WorkPtr WeftBackend::run_on_device(Operation operation, bool async) {
  auto work = c10::make_intrusive<DeviceWork>(rank_, operation, number_of(operation));
  if (CoalescedCalls* calls = coalescing_.calls()) {
    calls->on_device.push_back(std::move(operation));
    calls->works_on_device.push_back(work);
    return async ? work : nullptr;
  }
  std::vector<Operation> operations;
  operations.push_back(std::move(operation));
  device_->issue(std::move(operations), {work}, async);
  return work;
}

WorkPtr WeftBackend::run(Operation operation, bool async, std::chrono::milliseconds timeout) {
  check_open();
  operation.timeout = timeout;
  check_devices(operation, operation.inputs);
  check_devices(operation, operation.outputs);
  if (operation.on_device) return run_on_device(std::move(operation), async);
  auto work = new_work(operation);
  if (CoalescedCalls* calls = coalescing_.calls()) {
    calls->on_host.push_back({std::move(operation), work});
    // torch would wait for a Work at once, before it ends the group.
    return async ? work : nullptr;
  }
  if (!async) {
    run_blocking(operation);
    work->complete(nullptr);
    return work;
  }
  std::vector<Started> started;
  started.push_back({std::move(operation), work});
  issue(std::move(started), nullptr);
  return work;
}

void WeftBackend::run_blocking(Operation& operation) {
  const CallTimeout timeout(operation.timeout);
  weftResult_t result = operation.start(operation.comm, nullptr);
  if (result != weftSuccess) std::rethrow_exception(backend_error(sentence(result)));
  if (operation.finish) operation.finish();
}

WorkPtr WeftBackend::run_all(std::vector<Operation> operations, c10d::OpType type, const char* title,
                             bool async, std::chrono::milliseconds timeout) {
  Operation all;
  all.type = type;
  all.title = title;
  if (!operations.empty()) {
    all.queue = operations[0].queue;
    all.comm = operations[0].comm;
    all.device = operations[0].device;
    all.on_device = operations[0].on_device;
  }
  for (Operation& one : operations) {
    all.inputs.insert(all.inputs.end(), one.inputs.begin(), one.inputs.end());
    all.outputs.insert(all.outputs.end(), one.outputs.begin(), one.outputs.end());
    all.scaled.insert(all.scaled.end(), one.scaled.begin(), one.scaled.end());
    one.scaled.clear();
  }
  auto parts = std::make_shared<std::vector<Operation>>(std::move(operations));
  all.start = [parts](weftComm_t comm, weftStream_t stream) {
    CallGroup group;
    for (Operation& one : *parts) {
      if (weftResult_t result = one.start(comm, stream); result != weftSuccess) return result;
    }
    return group.end();
  };
  all.finish = [parts] {
    for (Operation& one : *parts) {
      if (one.finish) one.finish();
    }
  };
  return run(std::move(all), async, timeout);
}

const std::shared_ptr<AsyncQueue>& WeftBackend::queue(const QueueKey& key) {
  std::shared_ptr<AsyncQueue>& found = queues_[key];
  if (!found) {
    found = std::make_shared<AsyncQueue>([this](weftResult_t result) { return sentence(result); },
                                         [this] {
                                           weftResult_t failed = weftSuccess;
                                           return weftCommGetAsyncError(comm_, &failed) == weftSuccess &&
                                                  failed == weftSuccess;
                                         });
  }
  return found;
}

namespace {

// Copies results to where they belong. Returns the exception that a copy threw, or null.
std::exception_ptr finish(const Operation& ended) {
  try {
    // Results may belong to leaves that require gradients, or to tensors of inference mode.
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    if (ended.finish) ended.finish();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace

namespace {

// Whether an operation may wait for the next call on its stream to let go of its tensors, if its caller does
// not ask for its end.
bool may_stay_unwatched(const Operation& operation) {
  constexpr size_t kMostBytes = 1 << 20;
  if (operation.finish) return false;
  size_t bytes = 0;
  for (const Tensors* tensors : {&operation.inputs, &operation.outputs})
    for (const at::Tensor& each : *tensors) bytes += each.nbytes();
  return bytes <= kMostBytes;
}

}  // namespace

AsyncQueue::Completion WeftBackend::completion_of(std::shared_ptr<Started> kept,
                                                  c10::intrusive_ptr<WeftWork> whole) {
  const bool collective = !c10d::isP2POp(kept->operation.type);
  ++in_flight_;
  if (collective) ++collectives_in_flight_;
  auto complete = [this, kept, whole, collective](std::exception_ptr error) {
    if (!error) error = finish(kept->operation);
    kept->work->complete(error);
    if (whole) whole->part_complete(error);
    if (collective) --collectives_in_flight_;
    --in_flight_;
    return kept->work->has_callbacks() || (whole && whole->has_callbacks());
  };
  auto callbacks = [kept, whole] {
    kept->work->run_callbacks();
    if (whole) whole->run_callbacks();
  };
  return {std::move(complete), std::move(callbacks)};
}

void WeftBackend::issue(std::vector<Started> started, const c10::intrusive_ptr<WeftWork>& whole) {
  std::lock_guard<std::mutex> lock(issue_mutex_);
  check_open();
  weftResult_t result = weftSuccess;
  // Before the group, since a group that an exception leaves is sent.
  for (Started& one : started) {
    if (!queue(one.operation.queue)->watch()) throw_unwatched();
  }
  {
    std::optional<CallGroup> group;
    if (started.size() > 1) group.emplace();
    for (Started& one : started) {
      const CallTimeout timeout(one.operation.timeout);
      result = one.operation.start(one.operation.comm, queue(one.operation.queue)->stream());
      if (result != weftSuccess) break;
    }
    weftResult_t ended = group ? group->end() : weftSuccess;
    if (result == weftSuccess) result = ended;
  }
  if (result != weftSuccess) {
    auto error = backend_error(sentence(result));
    for (Started& one : started) one.work->complete(error);
    if (whole) whole->complete(error);
    std::rethrow_exception(error);
  }
  // A short operation that has ended in the call needs neither a callback nor a place in the queue.
  if (!whole && started.size() == 1 && queue(started[0].operation.queue)->idle()) {
    started[0].work->complete(finish(started[0].operation));
    return;
  }
  std::vector<std::function<void(double)>> drivers;
  for (Started& one : started) {
    one.operation.scaled.clear();
    std::shared_ptr<AsyncQueue> its = queue(one.operation.queue);
    auto work = one.work;
    const bool watched = whole || work->is_timed() || !may_stay_unwatched(one.operation);
    const uint64_t position =
        its->push(completion_of(std::make_shared<Started>(std::move(one)), whole), watched);
    auto drive = [its, position](double seconds) { its->drive(position, seconds); };
    if (whole) drivers.push_back(drive);
    work->set_driver(
        {std::move(drive), [its, position](double seconds) { its->watch_after(position, seconds); }});
  }
  if (!whole) return;
  auto drive = [drivers = std::move(drivers)](double seconds) {
    const auto begin = std::chrono::steady_clock::now();
    for (const auto& drive : drivers) {
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
      drive(std::max(0.0, seconds - spent.count()));
    }
  };
  whole->set_driver({std::move(drive), {}});
}

void WeftBackend::startCoalescing() {
  cancel_coalescing();
  coalescing_.begin();
}

void WeftBackend::cancel_coalescing() {
  const std::optional<CoalescedCalls> calls = coalescing_.take();
  if (!calls) return;
  for (const Started& one : calls->on_host) {
    one.work->complete(backend_error(
        c10::str(one.operation.title, " was not sent, because an exception left the coalesced calls.")));
    one.work->run_callbacks();
  }
}

WorkPtr WeftBackend::endCoalescing() {
  std::optional<CoalescedCalls> calls = coalescing_.take();
  if (!calls) {
    C10_THROW_ERROR(ValueError, "No coalescing was started on this thread; call _start_coalescing() first.");
  }
  std::vector<Started>& started = calls->on_host;
  std::vector<Operation>& on_device = calls->on_device;
  std::vector<DeviceWorkPtr>& works = calls->works_on_device;
  if (!started.empty() && !on_device.empty()) {
    C10_THROW_ERROR(ValueError, c10::str("Coalesced calls were given tensors on cpu and ",
                                         on_device[0].device, "; coalesce the calls of each device apart."));
  }
  Operation all;
  all.type = c10d::OpType::COALESCED;
  all.title = "weft:coalesced";
  for (const Started& one : started) {
    all.outputs.insert(all.outputs.end(), one.operation.outputs.begin(), one.operation.outputs.end());
  }
  if (!on_device.empty()) {
    for (const Operation& one : on_device)
      all.outputs.insert(all.outputs.end(), one.outputs.begin(), one.outputs.end());
    works.push_back(c10::make_intrusive<DeviceWork>(rank_, all, number_of(all)));
    device_->issue(std::move(on_device), works, true);
    return works.back();
  }
  auto whole = new_work(all);
  if (started.empty()) {
    whole->complete(nullptr);
    return whole;
  }
  whole->expect_parts(static_cast<int>(started.size()));
  issue(std::move(started), whole);
  return whole;
}

at::Tensor WeftBackend::allocateTensor(long size, at::TensorOptions options) {
  // Peers of the node reach an accelerator's memory as it is.
  if (!options.device().is_cpu()) return at::empty({size}, options);
  const size_t bytes = static_cast<size_t>(size) * options.dtype().itemsize();
  void* memory = nullptr;
  if (weftMemAlloc(&memory, bytes) != weftSuccess)
    std::rethrow_exception(backend_error(weftGetLastError(nullptr)));
  return at::from_blob(
      memory, {size}, [](void* pointer) { weftMemFree(pointer); }, options);
}

}  // namespace weft_torch
