// Windows of a group: memory of each rank into which the others write (torch's one-sided API, from 2.14).
#ifndef WEFT_TORCH_WINDOW_H_
#define WEFT_TORCH_WINDOW_H_

#include <torch/csrc/distributed/c10d/Backend.hpp>

#ifdef C10D_BACKEND_HAS_WINDOW

#include <torch/csrc/distributed/c10d/Window.hpp>

#include "backend.h"

namespace weft_torch {

// A window's signals are its own: another window of the group does not count them. signal() says that all
// puts of this rank to that peer before it are there; put() signals nothing.
//
// Thread safety: as the backend's. put() and signal() to one peer are carried out in the order of the calls.
class WeftWindow final : public c10d::Window {
 public:
  // `number`: how many windows the group has had before; the same on all ranks.
  WeftWindow(c10::intrusive_ptr<WeftBackend> backend, int number);
  // Closes the memory on this rank alone, if tensor_deregister() has not.
  ~WeftWindow() override;

  // Collectives. The first throws ValueError for a tensor that is not contiguous, or on a device that the
  // group does not serve. The second returns when all puts of all ranks into the window are there.
  void tensor_register(const at::Tensor& tensor, bool owning) override;
  void tensor_deregister() override;

  // Throw ValueError for a rank or an offset out of range, and for another type than the window's.
  WorkPtr put(const at::Tensor& tensor, int64_t peer, int64_t offset, bool async,
              const c10d::PutOptions& options) override;
  WorkPtr signal(int64_t peer, bool async, const c10d::SignalOptions& options) override;
  WorkPtr wait_signal(int64_t peer, bool async, const c10d::WaitSignalOptions& options) override;
  c10d::WindowAttr get_attr(int64_t peer) override;

 private:
  void check_registered() const;
  // An operation on the communicator of the window's memory.
  Operation prepare(c10d::OpType type, const char* title, QueueKey queue) const;
  WorkPtr run(Operation operation, bool async, std::chrono::milliseconds timeout) const;

  const c10::intrusive_ptr<WeftBackend> backend_;
  const int index_, context_;  // of its signals
  at::Tensor tensor_;          // undefined: not registered, or not kept
  at::ScalarType type_ = at::ScalarType::Undefined;
  Operation of_memory_;  // what locate() says of it
  weftWindow_t window_ = nullptr;
};

}  // namespace weft_torch

#endif  // C10D_BACKEND_HAS_WINDOW

#endif  // WEFT_TORCH_WINDOW_H_
