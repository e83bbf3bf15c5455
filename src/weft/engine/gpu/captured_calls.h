// CapturedCalls: what a CUDA graph holds of the calls of one group, or of a single call, on a stream. A graph
// cannot hold an operation, half of which is done by the CPU. It holds
//   a host function, which re-arms a flag and hands these calls to the context: an operation is entered anew
//   for each; then a wait for that flag, which is set when all of them have ended.
// The host function does not wait itself. CUDA runs the host functions of all streams on one thread. There,
// the calls of one communicator could block those of another, for which its peers wait.
//
// They live as long as the graph does, and may outlive their communicator: close() tells them.
//
// Thread safety: as the methods say. The lock of this is taken after the context's, and held over no call of
// CUDA and no wait, since CUDA's own threads take it.
#pragma once

#include <memory>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "device/cuda/capture.h"
#include "device/cuda/device.h"
#include "engine/context/context_lock.h"
#include "engine/run/operation.h"

namespace weft::engine {

namespace cuda = device::cuda;

class CapturedCalls : public std::enable_shared_from_this<CapturedCalls> {
 public:
  /// `shadow` does the calls: see captures.h. Errors: out_of_memory, unhandled_cuda_error.
  static Result<std::shared_ptr<CapturedCalls>> create(Communicator& shadow);
  ~CapturedCalls();
  CapturedCalls(const CapturedCalls&) = delete;
  CapturedCalls& operator=(const CapturedCalls&) = delete;

  // While they are captured, under a Scope of the device.
  void add(const Call& call, std::shared_ptr<const PlanTables> tables);
  /// Puts the host function into the stream, and makes the graph keep this.
  Status arrive_in(cuda::StreamHandle* stream, cuda::GraphHandle* graph);
  /// Makes the stream wait for the end of the calls.
  Status wait_in(cuda::StreamHandle* stream);

  /// A launch of the graph has come here: from any thread.
  void arrive();
  // (lock)
  /// Enters and starts the operations of one arrival.
  void start() WEFT_REQUIRES(context_lock);
  /// One operation has failed, but the device is not done with it: the stream waits for that, too.
  void linger();
  /// One operation has ended; `lingered`: one of linger().
  void ended(bool lingered);
  /// From now on the stream passes by; whatever it waits for counts as ended, unless it lingers. No operation
  /// of these is in flight.
  void close();

 private:
  CapturedCalls(Communicator& shadow, cuda::Device& device, cuda::Device::Flags& flags);
  void let_stream_go() WEFT_REQUIRES(mutex_);
  void stop_counting() WEFT_REQUIRES(mutex_);

  cuda::Device& device_;
  cuda::Device::Flags& flags_;
  const uint32_t turn_;  // the value of flags_.done that the graph waits for
  std::vector<PlannedCall> calls_;

  Mutex mutex_;
  Communicator* shadow_ WEFT_GUARDED_BY(mutex_);  // null: closed
  bool told_ WEFT_GUARDED_BY(mutex_) = false;     // that they are closed
  // Operations that the stream waits for. Launches of an executable graph may overlap those of another one
  // made from the same graph.
  size_t unfinished_ WEFT_GUARDED_BY(mutex_) = 0;
  size_t lingering_ WEFT_GUARDED_BY(mutex_) = 0;  // of these
  bool counts_ WEFT_GUARDED_BY(mutex_) = true;    // as a graph that may make streams wait
};

}  // namespace weft::engine
