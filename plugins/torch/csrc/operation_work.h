// OperationWork: the base of Works on host memory and on a device. It holds the operation's title, outputs
// and number.
#ifndef WEFT_TORCH_OPERATION_WORK_H_
#define WEFT_TORCH_OPERATION_WORK_H_

#include <cstdint>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "operation.h"

namespace weft_torch {

// Thread safety: any thread may call every function.
class OperationWork : public c10d::Work {
 public:
  Tensors result() override { return outputs_; }
  uint64_t getSequencenumber() const override { return sequence_number_; }

 protected:
  // The profiler shows the operation from here on, if it has a title.
  OperationWork(int rank, const Operation& operation, uint64_t sequence_number)
      : Work(rank, operation.type, operation.title, operation.inputs),
        title_(operation.title),
        outputs_(operation.outputs),
        sequence_number_(sequence_number) {}

  const char* const title_;
  const Tensors outputs_;
  const uint64_t sequence_number_;
};

}  // namespace weft_torch

#endif  // WEFT_TORCH_OPERATION_WORK_H_
