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
      deadline_(timeout),
      timeout_ms_(timeout.count()),
      comm_(make_communicator(*store_, rank, size, timeout, options_->group_name)) {
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

std::chrono::milliseconds WeftBackend::own_timeout(std::chrono::milliseconds timeout) const {
  if (timeout.count() <= 0) timeout = std::chrono::milliseconds(timeout_ms_);
  // The communicator keeps to its deadline itself, and says who is late.
  return timeout < deadline_ ? timeout : std::chrono::milliseconds(0);
}

c10::intrusive_ptr<WeftWork> WeftBackend::new_work(const Operation& operation,
                                                   std::chrono::milliseconds timeout) {
  const bool counted = !c10d::isP2POp(operation.type);
  const uint64_t number = counted ? ++sequence_number_ : sequence_number_.load();
  return c10::make_intrusive<WeftWork>(rank_, operation.type, operation.title, operation.inputs,
                                       operation.outputs, number, timeout);
}

WorkPtr WeftBackend::run(Operation operation, bool async, std::chrono::milliseconds timeout) {
  check_open();
  timeout = own_timeout(timeout);
  auto work = new_work(operation, timeout);
  if (coalescing_.load() == std::this_thread::get_id()) {
    coalesced_.push_back({std::move(operation), work});
    // torch would wait for a Work at once, before it ends the group.
    return async ? work : nullptr;
  }
  if (!async && timeout.count() == 0) {
    run_blocking(operation);
    work->complete(nullptr);
    return work;
  }
  std::vector<Started> started;
  started.push_back({std::move(operation), work});
  issue(std::move(started), nullptr);
  if (!async) work->wait(timeout);
  return work;
}

void WeftBackend::run_blocking(Operation& operation) {
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

AsyncQueue& WeftBackend::queue(const QueueKey& key) {
  std::unique_ptr<AsyncQueue>& found = queues_[key];
  if (!found) found = std::make_unique<AsyncQueue>([this](weftResult_t result) { return sentence(result); });
  return *found;
}

void WeftBackend::issue(std::vector<Started> started, const c10::intrusive_ptr<WeftWork>& whole) {
  std::lock_guard<std::mutex> lock(issue_mutex_);
  check_open();
  weftResult_t result = weftSuccess;
  {
    std::optional<CallGroup> group;
    if (started.size() > 1) group.emplace();
    for (Started& one : started) {
      result = one.operation.start(queue(one.operation.queue).stream());
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
  for (Started& one : started) {
    one.operation.scaled.clear();
    AsyncQueue& its = queue(one.operation.queue);
    auto kept = std::make_shared<Started>(std::move(one));
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
      bool callbacks = kept->work->complete(error);
      if (whole && whole->part_complete(error)) callbacks = true;
      if (collective) --collectives_in_flight_;
      --in_flight_;
      return callbacks;
    };
    auto callbacks = [kept, whole] {
      kept->work->run_callbacks();
      if (whole) whole->run_callbacks();
    };
    its.push({std::move(complete), std::move(callbacks)});
  }
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
  auto whole = new_work(all, own_timeout(c10d::kUnsetTimeout));
  if (started.empty()) {
    whole->complete(nullptr);
    return whole;
  }
  whole->expect_parts(static_cast<int>(started.size()));
  issue(std::move(started), whole);
  return whole;
}

void WeftBackend::setTimeout(std::chrono::milliseconds timeout) {
  if (timeout > deadline_) {
    C10_THROW_ERROR(
        ValueError,
        c10::str("A timeout of ", timeout.count(), " ms is longer than the ", deadline_.count(),
                 " ms with which this group was made; give the longer one to init_process_group() or "
                 "new_group()."));
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
  std::map<QueueKey, std::unique_ptr<AsyncQueue>> queues;
  {
    std::lock_guard<std::mutex> lock(issue_mutex_);
    queues.swap(queues_);
  }
}  // waits for the operations, as the queues end

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
                                          options ? options->timeout : deadline_, name, global_ranks);
}

}  // namespace weft_torch
