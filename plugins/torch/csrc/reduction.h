// How Weft does a reduction of torch: which type and operator of Weft stand for those of torch.
#ifndef WEFT_TORCH_REDUCTION_H_
#define WEFT_TORCH_REDUCTION_H_

#include <ATen/core/Tensor.h>
#include <weft/weft.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

namespace weft_torch {

// Elements as Weft moves them: its own type where it has one, else bytes. `per_element` of them are one of
// torch's elements.
struct WireType {
  weftDataType_t type;
  size_t per_element;
};
WireType wire_type(at::ScalarType type);

// An operator of Weft, alive until the calls that use it have returned.
class ScaledSum {
 public:
  ScaledSum(double factor, at::ScalarType type, weftDataType_t wire, weftComm_t comm);
  ~ScaledSum();
  ScaledSum(const ScaledSum&) = delete;
  ScaledSum& operator=(const ScaledSum&) = delete;
  weftRedOp_t op() const { return op_; }

 private:
  weftComm_t comm_;
  weftRedOp_t op_ = weftSum;
};

struct Reduction {
  WireType wire{weftUint8, 1};
  weftRedOp_t op = weftSum;
  std::optional<at::ScalarType> wide;  // Weft lacks the type: reduce in this one and convert back
  std::shared_ptr<ScaledSum> scaled;
};

// Throws ValueError if the operator has no meaning for the type.
Reduction reduction_for(const c10d::ReduceOp& op, at::ScalarType type, weftComm_t comm);

const char* op_name(c10d::ReduceOp::RedOpType op);

}  // namespace weft_torch

#endif  // WEFT_TORCH_REDUCTION_H_
