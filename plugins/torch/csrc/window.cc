#include "window.h"

#ifdef C10D_BACKEND_HAS_WINDOW

#include <ATen/core/LegacyTypeDispatch.h>

#include <utility>
#include <vector>

namespace weft_torch {

namespace {

// The last name is that of the signals of tensor_deregister().
constexpr int kNames = WEFT_NUM_SIGNALS - 1;
constexpr int kFlush = WEFT_NUM_SIGNALS - 1;

}  // namespace

WeftWindow::WeftWindow(c10::intrusive_ptr<WeftBackend> backend, int number)
    : backend_(std::move(backend)), index_(number % kNames), context_(number / kNames % WEFT_NUM_SIGNALS) {}

WeftWindow::~WeftWindow() {
  if (window_) (void)weftCommWindowDeregister(of_memory_.comm, window_);  // the group may have ended
}

void WeftWindow::check_registered() const {
  backend_->check_open();
  if (window_) return;
  C10_THROW_ERROR(ValueError, "This window has no tensor; call tensor_register() on all ranks first.");
}

void WeftWindow::tensor_register(const at::Tensor& tensor, bool owning) {
  backend_->check_open();
  if (window_) {
    C10_THROW_ERROR(ValueError, "This window has a tensor; call tensor_deregister() on all ranks first.");
  }
  check_output(tensor, "The tensor of a window");
  if (!is_plain(tensor)) {
    C10_THROW_ERROR(ValueError, "The tensor of a window is not contiguous; pass tensor.contiguous().");
  }
  Operation of_memory;
  backend_->locate(of_memory, tensor, "The tensor of a window");
  weftWindow_t window = nullptr;
  const weftResult_t result =
      weftCommWindowRegister(of_memory.comm, tensor.data_ptr(), tensor.nbytes(), &window, WEFT_WIN_DEFAULT);
  if (result != weftSuccess) std::rethrow_exception(backend_error(backend_->sentence(result)));
  window_ = window;
  of_memory_ = std::move(of_memory);
  type_ = tensor.scalar_type();
  if (owning) tensor_ = tensor;
}

// A signal to each rank says that all puts to it are there.
void WeftWindow::tensor_deregister() {
  check_registered();
  std::vector<WorkPtr> sent;
  std::vector<weftWaitSignalDesc_t> awaited;
  for (int peer = 0; peer < backend_->getSize(); ++peer) {
    Operation flush = prepare(c10d::OpType::SEND, "weft:signal", {QueueKey::kPut, peer});
    flush.start = [peer](weftComm_t comm, weftStream_t stream) {
      return weftSignal(peer, kFlush, 0, 0, comm, stream);
    };
    sent.push_back(run(std::move(flush), true, c10d::kUnsetTimeout));
    awaited.push_back({1, peer, kFlush, 0});
  }
  Operation wait = prepare(c10d::OpType::RECV, "weft:wait_signal", {QueueKey::kAwait, 0});
  wait.start = [awaited](weftComm_t comm, weftStream_t stream) {
    return weftWaitSignal(static_cast<int>(awaited.size()), awaited.data(), comm, stream);
  };
  run(std::move(wait), true, c10d::kUnsetTimeout)->wait();
  for (const WorkPtr& work : sent) work->wait();
  if (of_memory_.on_device) backend_->device_->synchronize();  // the waits above are those of streams
  const weftResult_t result = weftCommWindowDeregister(of_memory_.comm, std::exchange(window_, nullptr));
  tensor_ = at::Tensor();
  if (result != weftSuccess) std::rethrow_exception(backend_error(backend_->sentence(result)));
}

Operation WeftWindow::prepare(c10d::OpType type, const char* title, QueueKey queue) const {
  Operation made;
  made.type = type;
  made.title = title;
  made.queue = queue;
  made.device = of_memory_.device;
  made.comm = of_memory_.comm;
  made.on_device = of_memory_.on_device;
  return made;
}

// On a stream of its own also if the caller waits: an earlier asynchronous one to that peer comes first.
WorkPtr WeftWindow::run(Operation operation, bool async, std::chrono::milliseconds timeout) const {
  WorkPtr work = backend_->run(std::move(operation), true, timeout);
  if (!async && work) work->wait();
  return work;
}

WorkPtr WeftWindow::put(const at::Tensor& tensor, int64_t peer, int64_t offset, bool async,
                        const c10d::PutOptions& options) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  check_registered();
  check_input(tensor, "The tensor of put");
  backend_->check_root(peer, "The destination of put");
  if (tensor.scalar_type() != type_ || tensor.device() != of_memory_.device) {
    C10_THROW_ERROR(ValueError,
                    c10::str("The tensor of put is of ", tensor.scalar_type(), " on ", tensor.device(),
                             ", but the window is of ", type_, " on ", of_memory_.device, "."));
  }
  if (offset < 0) {
    C10_THROW_ERROR(ValueError, c10::str("The offset of put is ", offset, "; it must be at least 0."));
  }
  const int to = static_cast<int>(peer);
  const WireType wire = wire_type(type_);
  const at::Tensor source = plain(tensor);
  Operation made = prepare(c10d::OpType::SEND, "weft:put", {QueueKey::kPut, to});
  made.start = [=, window = window_, bytes = static_cast<size_t>(offset) * tensor.itemsize()](
                   weftComm_t comm, weftStream_t stream) {
    return weftPutSignal(source.data_ptr(), source.numel() * wire.per_element, wire.type, to, window, bytes,
                         WEFT_SIGNAL_NONE, 0, 0, comm, stream);
  };
  made.inputs = {source};
  made.outputs = {source};
  return run(std::move(made), async, options.timeout);
}

WorkPtr WeftWindow::signal(int64_t peer, bool async, const c10d::SignalOptions& options) {
  check_registered();
  backend_->check_root(peer, "The destination of signal");
  const int to = static_cast<int>(peer);
  Operation made = prepare(c10d::OpType::SEND, "weft:signal", {QueueKey::kPut, to});
  made.start = [to, index = index_, context = context_](weftComm_t comm, weftStream_t stream) {
    return weftSignal(to, index, context, 0, comm, stream);
  };
  return run(std::move(made), async, options.timeout);
}

WorkPtr WeftWindow::wait_signal(int64_t peer, bool async, const c10d::WaitSignalOptions& options) {
  check_registered();
  backend_->check_root(peer, "The source of wait_signal");
  const weftWaitSignalDesc_t awaited{1, static_cast<int>(peer), index_, context_};
  Operation made =
      prepare(c10d::OpType::RECV, "weft:wait_signal", {QueueKey::kAwait, static_cast<int>(peer)});
  made.start = [awaited](weftComm_t comm, weftStream_t stream) {
    return weftWaitSignal(1, &awaited, comm, stream);
  };
  return run(std::move(made), async, options.timeout);
}

// Ranks write into the memory itself.
c10d::WindowAttr WeftWindow::get_attr(int64_t peer) {
  backend_->check_root(peer, "The rank of get_attr");
  return {c10d::WindowAccessType::UNIFIED};
}

c10::intrusive_ptr<c10d::Window> WeftBackend::new_window(const std::optional<at::Tensor>& tensor) {
  check_open();
  auto window = c10::make_intrusive<WeftWindow>(
      c10::intrusive_ptr<WeftBackend>::unsafe_reclaim_from_nonowning(this), windows_++);
  if (tensor) window->tensor_register(*tensor, true);
  return window;
}

}  // namespace weft_torch

#endif  // C10D_BACKEND_HAS_WINDOW
