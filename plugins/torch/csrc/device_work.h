// A Work of torch for an operation on an accelerator. The stream that the operation is on completes it: an
// event marks its end. wait() makes the current stream wait, and returns.
#ifndef WEFT_TORCH_DEVICE_WORK_H_
#define WEFT_TORCH_DEVICE_WORK_H_

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "operation_work.h"

namespace weft_torch {

// A communicator on a device, which Works may ask for its failure also when it has ended.
//
// Thread safety: any thread may call every function.
class DeviceComm {
 public:
  explicit DeviceComm(weftComm_t comm) : comm_(comm) {}
  // After end() it may not be used.
  weftComm_t get() const { return comm_; }
  // The communicator's failure as torch's exception; null if there is none.
  std::exception_ptr failure();
  weftResult_t result();
  void set_timeout(double seconds);
  // Waits for its operations, or ends them for a reason. A second time, nothing.
  void end(const char* reason_to_abort = nullptr);

 private:
  const weftComm_t comm_;
  std::mutex mutex_;
  bool ended_ = false;            // guarded by mutex_
  std::exception_ptr left_with_;  // guarded by mutex_; what an ended one had failed with
};

// Operations on a stream: the event at their end, and the tensors that must stay until then.
//
// Thread safety: any thread may call every function.
class InFlight {
 public:
  InFlight(c10::Event end, std::vector<Operation> kept) : end_(std::move(end)), kept_(std::move(kept)) {}
  const c10::Event& end() const { return end_; }
  // Releases the tensors: the current stream waits for the event, or the event has been reached.
  void let_go();

 private:
  const c10::Event end_;
  std::mutex mutex_;
  std::vector<Operation> kept_;  // guarded by mutex_
};

// Thread safety: every function may be called from any thread; issued() once.
class DeviceWork final : public OperationWork {
 public:
  DeviceWork(int rank, const Operation& operation, uint64_t sequence_number)
      : OperationWork(rank, operation, sequence_number) {}

  // The operations of the Work are on the current stream, with all that belongs to them.
  void issued(std::shared_ptr<DeviceComm> comm, std::shared_ptr<InFlight> in_flight);

  // Whether the stream has reached the event.
  bool isCompleted() override;
  // Throws what the communicator has failed with, so far as that is known. With a timeout it blocks until the
  // end, for so long at most.
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override;
  // Complete at once; its value, the list of output tensors, is ready when the stream is. Throws for a Work
  // of coalesced calls before their end.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    check_issued();
    return future_;
  }

 private:
  void check_issued() const;

  std::shared_ptr<DeviceComm> comm_;  // this and the next two are set by issued()
  std::shared_ptr<InFlight> in_flight_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace weft_torch

#endif  // WEFT_TORCH_DEVICE_WORK_H_
