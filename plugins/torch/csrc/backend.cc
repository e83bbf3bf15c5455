#include "backend.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <Python.h>

#include "call_group.h"

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

// The calls of this thread have a timeout of their own while it lives; 0: they have none.
class CallTimeout {
 public:
  explicit CallTimeout(std::chrono::milliseconds timeout) : set_(timeout.count() > 0) {
    if (set_) weftSetCallTimeout(timeout.count() / 1000.0);
  }
  ~CallTimeout() {
    if (set_) weftSetCallTimeout(0);
  }
  CallTimeout(const CallTimeout&) = delete;
  CallTimeout& operator=(const CallTimeout&) = delete;

 private:
  const bool set_;
};

c10::intrusive_ptr<c10d::Backend::Options> make_options(std::chrono::milliseconds timeout, std::string name,
                                                        std::vector<uint64_t> global_ranks) {
  auto options = c10::make_intrusive<c10d::Backend::Options>("weft", timeout);
  options->group_name = std::move(name);
  options->global_ranks_in_group = std::move(global_ranks);
  return options;
}

}  // namespace

WeftBackend::WeftBackend(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                         std::chrono::milliseconds timeout, std::string group_name,
                         std::vector<uint64_t> global_ranks)
    : Backend(rank, size),
      store_(std::move(store)),
      options_(make_options(timeout, std::move(group_name), std::move(global_ranks))),
      timeout_ms_(timeout.count()),
      comm_(make_communicator(*store_, rank, size, timeout, options_->group_name)) {
  init();
}

WeftBackend::WeftBackend(c10::intrusive_ptr<c10d::Store> store, weftComm_t comm, int rank, int size,
                         c10::intrusive_ptr<Options> options)
    : Backend(rank, size),
      store_(std::move(store)),
      options_(std::move(options)),
      timeout_ms_(options_->timeout.count()),
      comm_(comm) {
  init();
}

WeftBackend::~WeftBackend() {
  WithoutGil without_gil;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (!closed_ && in_flight_ > 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  in_flight_ > 0 ? abort() : shutdown();
}

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
  if (aborted_) return "This process group was aborted on this rank while the operation was running.";
  std::string text = weftGetLastError(comm_);
  if (text.empty()) text = weftGetErrorString(result);
  return result == weftTimeout ? text + "; the timeout of the group or of the call is over" : text;
}

c10::intrusive_ptr<WeftWork> WeftBackend::new_work(const Operation& operation) {
  const bool counted = !c10d::isP2POp(operation.type);
  const uint64_t number = counted ? ++sequence_number_ : sequence_number_.load();
  auto work = c10::make_intrusive<WeftWork>(rank_, operation.type, operation.title, operation.inputs,
                                            operation.outputs, number);
  if (timing_) work->start_timing();
  return work;
}

WorkPtr WeftBackend::run(Operation operation, bool async, std::chrono::milliseconds timeout) {
  check_open();
  operation.timeout = timeout;
  auto work = new_work(operation);
  if (coalescing_.load() == std::this_thread::get_id()) {
    coalesced_.push_back({std::move(operation), work});
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
  weftResult_t result = operation.start(nullptr);
  if (result != weftSuccess) std::rethrow_exception(backend_error(sentence(result)));
  if (operation.finish) operation.finish();
}

WorkPtr WeftBackend::run_all(std::vector<Operation> operations, c10d::OpType type, const char* title,
                             bool async, std::chrono::milliseconds timeout) {
  Operation all;
  all.type = type;
  all.title = title;
  if (!operations.empty()) all.queue = operations[0].queue;
  for (Operation& one : operations) {
    all.inputs.insert(all.inputs.end(), one.inputs.begin(), one.inputs.end());
    all.outputs.insert(all.outputs.end(), one.outputs.begin(), one.outputs.end());
    all.scaled.insert(all.scaled.end(), one.scaled.begin(), one.scaled.end());
    one.scaled.clear();
  }
  auto parts = std::make_shared<std::vector<Operation>>(std::move(operations));
  all.start = [parts](weftStream_t stream) {
    CallGroup group;
    for (Operation& one : *parts) {
      if (weftResult_t result = one.start(stream); result != weftSuccess) return result;
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

AsyncQueue::Completion WeftBackend::completion_of(std::shared_ptr<Started> kept,
                                                  c10::intrusive_ptr<WeftWork> whole) {
  const bool collective = !c10d::isP2POp(kept->operation.type);
  ++in_flight_;
  if (collective) ++collectives_in_flight_;
  auto complete = [this, kept, whole, collective](std::exception_ptr error) {
    try {
      // Results may belong to leaves that require gradients, or to tensors of inference mode.
      at::AutoDispatchBelowADInplaceOrView below_autograd;
      if (!error && kept->operation.finish) kept->operation.finish();
    } catch (...) {
      error = std::current_exception();
    }
    kept->work->complete(error);
    if (whole) whole->part_complete(error);
    if (collective) --collectives_in_flight_;
    --in_flight_;
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
  {
    std::optional<CallGroup> group;
    if (started.size() > 1) group.emplace();
    for (Started& one : started) {
      const CallTimeout timeout(one.operation.timeout);
      result = one.operation.start(queue(one.operation.queue)->stream());
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
  std::vector<std::function<void(double)>> drivers;
  for (Started& one : started) {
    one.operation.scaled.clear();
    std::shared_ptr<AsyncQueue> its = queue(one.operation.queue);
    auto work = one.work;
    const uint64_t position = its->push(completion_of(std::make_shared<Started>(std::move(one)), whole));
    auto driver = [its, position](double seconds) { its->drive(position, seconds); };
    if (whole) drivers.push_back(driver);
    work->set_driver(std::move(driver));
  }
  if (!whole) return;
  whole->set_driver([drivers = std::move(drivers)](double seconds) {
    const auto begin = std::chrono::steady_clock::now();
    for (const auto& drive : drivers) {
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
      drive(std::max(0.0, seconds - spent.count()));
    }
  });
}

void WeftBackend::startCoalescing() {
  coalesced_.clear();
  coalescing_ = std::this_thread::get_id();
}

WorkPtr WeftBackend::endCoalescing() {
  if (coalescing_.load() != std::this_thread::get_id()) {
    C10_THROW_ERROR(ValueError, "No coalescing was started on this thread; call _start_coalescing() first.");
  }
  coalescing_ = std::thread::id();
  std::vector<Started> started = std::move(coalesced_);
  coalesced_.clear();
  Operation all;
  all.type = c10d::OpType::COALESCED;
  all.title = "weft:coalesced";
  for (const Started& one : started) {
    all.outputs.insert(all.outputs.end(), one.operation.outputs.begin(), one.operation.outputs.end());
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

void WeftBackend::setTimeout(std::chrono::milliseconds timeout) {
  check_open();
  if (weftCommSetTimeout(comm_, timeout.count() / 1000.0) != weftSuccess) {
    C10_THROW_ERROR(ValueError, c10::str("The timeout of a group is ", timeout.count(),
                                         " ms; it must be longer than 0."));
  }
  timeout_ms_ = timeout.count();
  options_->timeout = timeout;
}

c10d::ErrorType WeftBackend::getError() {
  if (closed_) return aborted_ ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
  weftResult_t failed = weftSuccess;
  weftCommGetAsyncError(comm_, &failed);
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
  weftCommAbortWithReason(comm_, "torch.distributed aborted the process group");
  drain();
}

void WeftBackend::shutdown() {
  WithoutGil without_gil;
  std::lock_guard<std::mutex> lock(life_mutex_);
  if (closed_) return;
  closed_ = true;
  drain();
  weftCommDestroy(comm_);
}

void WeftBackend::dump(const std::string& path) {
  check_open();
  if (weftCommDump(comm_, path.c_str()) != weftSuccess) {
    std::rethrow_exception(backend_error(weftGetLastError(comm_)));
  }
}

c10::intrusive_ptr<c10d::Backend> WeftBackend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                     const std::vector<int>& ranks,
                                                     const c10::intrusive_ptr<Options>& options) {
  std::vector<uint64_t> global_ranks;
  int rank = -1;
  for (size_t i = 0; i < ranks.size(); ++i) {
    check_root(ranks[i], "A rank of the split");
    const auto& known = options_->global_ranks_in_group;
    global_ranks.push_back(known.empty() ? ranks[i] : known[ranks[i]]);
    if (ranks[i] == rank_) rank = static_cast<int>(i);
  }
  if (rank < 0) return nullptr;
  std::string name = options_->group_name + ":split";
  for (int each : ranks) name += "_" + std::to_string(each);
  return c10::make_intrusive<WeftBackend>(store, rank, static_cast<int>(ranks.size()),
                                          options ? options->timeout : std::chrono::milliseconds(timeout_ms_),
                                          name, global_ranks);
}

c10::intrusive_ptr<c10d::Backend> WeftBackend::shrink(const std::vector<int64_t>& excluded, int flags,
                                                      const c10::intrusive_ptr<Options>& options) {
  std::vector<int> ranks;
  for (const int64_t rank : excluded) {
    check_root(rank, "A rank to exclude");
    ranks.push_back(static_cast<int>(rank));
  }
  const auto timeout = options ? options->timeout : std::chrono::milliseconds(timeout_ms_);
  weftConfig_t config = WEFT_CONFIG_INITIALIZER;
  const std::string name = options_->group_name + ":shrunk";
  const std::string short_name = "group " + name.substr(0, 24);
  config.commName = short_name.c_str();
  if (timeout.count() > 0) config.timeoutSeconds = timeout.count() / 1000.0;
  check_open();
  weftComm_t child = nullptr;
  weftResult_t result =
      weftCommShrink(comm_, ranks.data(), static_cast<int>(ranks.size()), &child, &config, flags);
  if (result != weftSuccess) std::rethrow_exception(backend_error(weftGetLastError(nullptr)));
  int rank = 0, size = 0;
  weftCommUserRank(child, &rank);
  weftCommCount(child, &size);
  std::vector<uint64_t> global_ranks;
  for (int r = 0; r < size_; ++r) {
    const auto& known = options_->global_ranks_in_group;
    if (std::find(ranks.begin(), ranks.end(), r) == ranks.end())
      global_ranks.push_back(known.empty() ? r : known[r]);
  }
  return c10::make_intrusive<WeftBackend>(store_, child, rank, size,
                                          make_options(timeout, name, std::move(global_ranks)));
}

at::Tensor WeftBackend::allocateTensor(long size, at::TensorOptions options) {
  if (!options.device().is_cpu()) {
    C10_THROW_ERROR(ValueError, c10::str("A tensor on ", options.device(),
                                         " was asked for, but backend weft "
                                         "allocates on cpu."));
  }
  const size_t bytes = static_cast<size_t>(size) * options.dtype().itemsize();
  void* memory = nullptr;
  if (weftMemAlloc(&memory, bytes) != weftSuccess)
    std::rethrow_exception(backend_error(weftGetLastError(nullptr)));
  return at::from_blob(
      memory, {size}, [](void* pointer) { weftMemFree(pointer); }, options);
}

}  // namespace weft_torch
