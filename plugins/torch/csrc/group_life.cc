// How a group begins, divides and ends.
#include <Python.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "backend.h"
#include "options.h"

namespace weft_torch {

namespace {

// Lets other threads of Python run while this one waits, if it holds the interpreter: callbacks of Futures
// need it.
class WithoutGil {
 public:
  WithoutGil() : state_(Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
  ~WithoutGil() {
    if (state_ != nullptr) PyEval_RestoreThread(state_);
  }

 private:
  PyThreadState* state_;
};

// A timeout of a group, unless it is none. torch makes timedelta.max a negative number.
std::chrono::milliseconds checked(std::chrono::milliseconds timeout) {
  if (timeout.count() > 0) return timeout;
  C10_THROW_ERROR(
      ValueError,
      c10::str("The timeout of a group is ", timeout.count(),
               " ms; it must be longer than 0, and shorter than 292,000 years, where torch's end."));
}

c10::intrusive_ptr<c10d::Backend::Options> make_options(std::chrono::milliseconds timeout, std::string name,
                                                        std::vector<uint64_t> global_ranks) {
  auto options = c10::make_intrusive<WeftOptions>(checked(timeout));
  options->group_name = std::move(name);
  options->global_ranks_in_group = std::move(global_ranks);
  return options;
}

Membership membership(c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::string name,
                      const std::vector<uint64_t>& global_ranks) {
  Membership made{std::move(store), rank, size, std::move(name), nullptr, {}};
  if (global_ranks.empty()) return made;
  auto lender = Lender::of_the_process(static_cast<int>(global_ranks[rank]));
  const bool known = lender && std::all_of(global_ranks.begin(), global_ranks.end(),
                                           [&](uint64_t each) { return each < uint64_t(lender->size()); });
  if (!known) return made;
  made.lender = std::move(lender);
  made.ranks.assign(global_ranks.begin(), global_ranks.end());
  return made;
}

std::optional<at::DeviceType> accelerator_type(const std::string& name) {
  if (name.empty()) return std::nullopt;
  return c10::Device(name).type();
}

// Null if this torch does not know the type of device.
std::unique_ptr<DeviceGroup> device_group(std::optional<at::DeviceType> type, const Membership& group,
                                          std::chrono::milliseconds timeout) {
  if (!type || !c10::impl::hasDeviceGuardImpl(*type)) return nullptr;
  return std::make_unique<DeviceGroup>(*type, group, timeout);
}

constexpr const char* kAbortReason = "torch.distributed aborted the process group";

}  // namespace

WeftBackend::WeftBackend(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                         std::chrono::milliseconds timeout, std::string group_name,
                         std::vector<uint64_t> global_ranks, const std::string& accelerator,
                         const std::atomic<bool>* cancelled)
    : Backend(rank, size),
      group_(membership(std::move(store), rank, size, group_name, global_ranks)),
      options_(make_options(timeout, std::move(group_name), std::move(global_ranks))),
      timeout_ms_(timeout.count()),
      comm_(make_communicator(group_, timeout, WEFT_DEVICE_HOST, cancelled)),
      device_(device_group(accelerator_type(accelerator), group_, timeout)),
      lender_(std::make_shared<Lender>(rank, size)) {
  open();
  if (options_->global_ranks_in_group.empty()) Lender::set_of_the_process(lender_);
}

WeftBackend::WeftBackend(Membership group, weftComm_t comm, c10::intrusive_ptr<Options> options,
                         std::optional<at::DeviceType> accelerator)
    : Backend(group.rank, group.size),
      group_(std::move(group)),
      options_(std::move(options)),
      timeout_ms_(options_->timeout.count()),
      comm_(comm),
      device_(device_group(accelerator, group_, options_->timeout)),
      lender_(std::make_shared<Lender>(rank_, size_)) {
  open();
}

void WeftBackend::open() {
  lender_->lend(comm_, WEFT_DEVICE_HOST);
  init();
}

WeftBackend::~WeftBackend() {
  WithoutGil without_gil;
  {
    std::lock_guard<std::mutex> lock(issue_mutex_);
    for (auto& [key, queue] : queues_) queue->watch();
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  auto in_flight = [this] { return in_flight_ > 0 || (device_ && device_->any_in_flight()); };
  while (!closed_ && in_flight() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  !closed_&& in_flight() ? abort() : shutdown();
}

void WeftBackend::eagerConnectSingleDevice(at::Device device) {
  check_open();
  if (!device_ || device.type() != device_->type()) {
    C10_THROW_ERROR(ValueError, c10::str("device_id is ", device, ", but backend weft takes tensors on cpu",
                                         device_ ? c10::str(" and ", device_->type()) : "", "."));
  }
  device_->connect_now(device, *lender_);
}

void WeftBackend::setTimeout(std::chrono::milliseconds timeout) {
  check_open();
  if (weftCommSetTimeout(comm_, checked(timeout).count() / 1000.0) != weftSuccess) {
    std::rethrow_exception(backend_error(weftGetLastError(comm_)));
  }
  if (device_) device_->set_timeout(timeout);
  timeout_ms_ = timeout.count();
  options_->timeout = timeout;
}

c10d::ErrorType WeftBackend::getError() {
  if (closed_) return aborted_ ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
  weftResult_t failed = weftSuccess;
  weftCommGetAsyncError(comm_, &failed);
  if (failed == weftSuccess && device_) failed = device_->result();
  switch (failed) {
    case weftSuccess:
    case weftInProgress: return c10d::ErrorType::SUCCESS;
    case weftTimeout: return c10d::ErrorType::TIMEOUT;
    case weftRemoteError: return c10d::ErrorType::REMOTE_ERROR;
    default: return c10d::ErrorType::COMM_ERROR;
  }
}

void WeftBackend::drain() {
  std::map<QueueKey, std::shared_ptr<AsyncQueue>> queues;
  {
    std::lock_guard<std::mutex> lock(issue_mutex_);
    queues.swap(queues_);
  }
  for (auto& [key, queue] : queues) queue->close();
}

void WeftBackend::abort() {
  WithoutGil without_gil;
  std::lock_guard<std::mutex> lock(life_mutex_);
  if (closed_) return;
  aborted_ = true;
  closed_ = true;
  lender_->close();
  if (device_) device_->end(kAbortReason);
  weftCommAbortWithReason(comm_, kAbortReason);
  drain();
}

void WeftBackend::shutdown() {
  WithoutGil without_gil;
  std::lock_guard<std::mutex> lock(life_mutex_);
  if (closed_) return;
  closed_ = true;
  lender_->close();
  if (device_) device_->end(nullptr);
  drain();
  weftCommDestroy(comm_);
}

void WeftBackend::dump(const std::string& path) {
  check_open();
  if (weftCommDump(comm_, path.c_str()) != weftSuccess) {
    std::rethrow_exception(backend_error(weftGetLastError(comm_)));
  }
}

c10::intrusive_ptr<c10d::Backend> WeftBackend::split(const c10::intrusive_ptr<c10d::Store>&,
                                                     const std::vector<int>& ranks,
                                                     const c10::intrusive_ptr<Options>& options) {
  check_open();
  Membership group{nullptr, -1, static_cast<int>(ranks.size()), group_.name + ":split", lender_, ranks};
  std::vector<uint64_t> global_ranks;
  for (size_t i = 0; i < ranks.size(); ++i) {
    check_root(ranks[i], "A rank of the split");
    global_ranks.push_back(global_rank(ranks[i]));
    group.name += "_" + std::to_string(ranks[i]);
    if (ranks[i] == rank_) group.rank = static_cast<int>(i);
  }
  if (group.rank < 0) return nullptr;
  // torch's own name of the group, and with it its store, depends on how many groups a rank is in.
  group.name = lender_->numbered(group.name);
  group.store = c10::make_intrusive<c10d::PrefixStore>(group.name, group_.store->clone());
  const auto timeout = checked(options ? options->timeout : std::chrono::milliseconds(timeout_ms_));
  weftComm_t comm = make_communicator(group, timeout, WEFT_DEVICE_HOST, &closed_);
  auto child_options = make_options(timeout, group.name, std::move(global_ranks));
  auto type = device_ ? std::make_optional(device_->type()) : std::nullopt;
  auto child = c10::make_intrusive<WeftBackend>(std::move(group), comm, std::move(child_options), type);
  // Now, since ranks may use their groups on the device in different orders.
  if (device_ && device_->connected()) child->device_->connect_now(*device_->device(), *child->lender_);
  return child;
}

c10::intrusive_ptr<c10d::Backend> WeftBackend::shrink(const std::vector<int64_t>& excluded, int flags,
                                                      const c10::intrusive_ptr<Options>& options) {
  check_open();
  std::vector<int> out;
  std::string name = group_.name + ":shrunk";
  for (const int64_t rank : excluded) {
    check_root(rank, "A rank to exclude");
    out.push_back(static_cast<int>(rank));
    name += "_" + std::to_string(rank);
  }
  const auto timeout = checked(options ? options->timeout : std::chrono::milliseconds(timeout_ms_));
  weftConfig_t config = WEFT_CONFIG_INITIALIZER;
  const std::string short_name = "group " + name.substr(0, 24);
  config.commName = short_name.c_str();
  config.blocking = 1;
  config.timeoutSeconds = timeout.count() / 1000.0;
  auto shrunk = [&](weftComm_t from) {
    weftComm_t child = nullptr;
    if (weftCommShrink(from, out.data(), static_cast<int>(out.size()), &child, &config, flags) != weftSuccess)
      std::rethrow_exception(backend_error(weftGetLastError(nullptr)));
    return child;
  };
  Membership group{c10::make_intrusive<c10d::PrefixStore>(name, group_.store), 0, 0, name, nullptr, {}};
  constexpr int kAbortFirst = 1;
  if ((flags & kAbortFirst) != 0 && device_ && !device_->connected()) device_->end(kAbortReason);
  const weftComm_t child = shrunk(comm_);
  weftCommUserRank(child, &group.rank);
  weftCommCount(child, &group.size);
  std::vector<uint64_t> global_ranks;
  for (int r = 0; r < size_; ++r) {
    if (std::find(out.begin(), out.end(), r) == out.end()) global_ranks.push_back(global_rank(r));
  }
  auto type = device_ ? std::make_optional(device_->type()) : std::nullopt;
  auto made = c10::make_intrusive<WeftBackend>(std::move(group), child,
                                               make_options(timeout, name, std::move(global_ranks)), type);
  if (auto connected = device_ ? device_->connected() : nullptr) {
    made->device_->take(*device_->device(), shrunk(connected->get()), *made->lender_);
  }
  return made;
}

uint64_t WeftBackend::global_rank(int rank) const {
  const auto& known = options_->global_ranks_in_group;
  return known.empty() ? rank : known[rank];
}

}  // namespace weft_torch
