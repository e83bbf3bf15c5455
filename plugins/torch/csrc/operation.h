// A call of torch, made ready for Weft: what an operation is before it runs.
#ifndef WEFT_TORCH_OPERATION_H_
#define WEFT_TORCH_OPERATION_H_

#include <weft/weft.h>

#include <chrono>
#include <functional>
#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "buffers.h"
#include "reduction.h"

namespace weft_torch {

class DeviceComm;

// Which stream an asynchronous operation is put on. Operations of one stream run one after the other.
struct QueueKey {
  enum Kind { kReduce, kMove, kSend, kReceive, kPut, kAwait } kind;
  int peer = 0;  // of the kinds from kSend on
  bool operator<(const QueueKey& other) const {
    return kind != other.kind ? kind < other.kind : peer < other.peer;
  }
};

// Its tensors are checked, and its buffers are what Weft can take.
struct Operation {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  const char* title = nullptr;  // null: the profiler does not show it
  QueueKey queue{QueueKey::kReduce};
  c10::Device device{c10::kCPU};          // of its buffers
  weftComm_t comm = nullptr;              // what start() is to be given
  std::shared_ptr<DeviceComm> on_device;  // the same, if the device is none of host memory
  Tensors inputs;                         // for the profiler
  Tensors outputs;                        // the Work's result
  // Calls Weft; on host memory, the stream NULL blocks.
  std::function<weftResult_t(weftComm_t, weftStream_t)> start;
  std::function<void()> finish;                    // copies results to where they belong; may be empty
  std::vector<std::shared_ptr<ScaledSum>> scaled;  // operators that start() uses
  std::chrono::milliseconds timeout{0};            // the call's own; 0: the group's
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

}  // namespace weft_torch

#endif  // WEFT_TORCH_OPERATION_H_
