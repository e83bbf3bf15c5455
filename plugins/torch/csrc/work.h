// A Work of torch: what a caller holds of an operation. It says when the operation is complete, or what
// failed. AsyncQueue or the caller's own thread completes it.
#ifndef WEFT_TORCH_WORK_H_
#define WEFT_TORCH_WORK_H_

#include <weft/weft.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "operation_work.h"

namespace weft_torch {

// An exception of torch's type for failures of a backend.
std::exception_ptr backend_error(const std::string& sentence);
// The sentence of a communicator's failed operation.
std::string failure_sentence(weftComm_t comm, weftResult_t result);
inline constexpr const char* kAborted =
    "This process group was aborted on this rank while the operation was running.";
// The time when a wait that begins now is over. A clock ends after 292 years, torch's timeouts do not.
std::chrono::steady_clock::time_point from_now(std::chrono::milliseconds wait);
// A wait is over before the operation is.
std::string not_complete(const char* title, uint64_t number, int rank, std::chrono::milliseconds waited);

// Programs for torch.compile have torch keep Works until somebody waits for them. A Work that was waited for
// leaves torch's registry.
void leave_registry(c10d::Work& work);

// Thread safety: every function may be called from any thread; complete() and part_complete() by its owner.
class WeftWork final : public OperationWork {
 public:
  WeftWork(int rank, const Operation& operation, uint64_t sequence_number)
      : OperationWork(rank, operation, sequence_number) {}

  // Waits until the operation is complete, and throws what it failed with. Without a timeout, the deadline of
  // the call or of the communicator ends the operation.
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override { wait(std::chrono::milliseconds(0)); }
  // From the first question on the operation completes by itself.
  bool isCompleted() override;
  // Its value is the list of output tensors.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  // Its value is SUCCESS or COMM_ERROR of c10d::WorkResult, as an integer; it has no error itself.
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;

  // The milliseconds from the call to the end of the operation. Throws if timing was off at the call, or the
  // operation is not complete.
  float getDuration() const override;
  // The operation begins now, and its duration is kept.
  void start_timing() { begin_ = Clock::now(); }
  // Whether the time of its end is asked for, by timing or by the profiler.
  bool is_timed() const { return begin_ || recordFunctionEndCallback_; }

  // How threads help an operation in flight.
  struct Driver {
    std::function<void(double)> drive;  // by a thread that waits, for so many seconds at most
    // So that the operation completes without a thread that waits, after such a thread's time. May be empty.
    std::function<void(double)> watch;
  };
  void set_driver(Driver driver);
  // The operation is complete; `error` is what it failed with, if it did. Waiting threads go on.
  void complete(std::exception_ptr error);
  // For a Work of several operations: it completes with the last of `parts`.
  void expect_parts(int parts) { parts_ = parts; }
  void part_complete(const std::exception_ptr& error);
  // Whether run_callbacks() has something to do.
  bool has_callbacks();
  // Completes the Futures of a complete operation, which runs their callbacks. Else, and a second time,
  // nothing.
  void run_callbacks();

 private:
  using Clock = std::chrono::steady_clock;
  enum FutureKind { kOutputs, kResult };
  struct KeptFuture {
    c10::intrusive_ptr<c10::ivalue::Future> future;  // made when it is asked for
    bool marked = false;                             // it is complete, or about to be
  };

  Driver driver();
  bool is_complete_after(double seconds);
  c10::intrusive_ptr<c10::ivalue::Future> future_of(FutureKind kind, c10::TypePtr type);
  void mark(c10::ivalue::Future& future, FutureKind kind) const;

  std::mutex driver_mutex_;
  Driver driver_;  // guarded by driver_mutex_; empty: another thread completes it
  std::mutex future_mutex_;
  KeptFuture futures_[2];  // by FutureKind; guarded by future_mutex_
  std::optional<Clock::time_point> begin_;
  Clock::time_point end_;  // set before the Work is complete
  std::atomic<int> parts_{0};
  std::mutex part_mutex_;
  std::exception_ptr part_error_;  // guarded by part_mutex_; the first one
};

}  // namespace weft_torch

#endif  // WEFT_TORCH_WORK_H_
