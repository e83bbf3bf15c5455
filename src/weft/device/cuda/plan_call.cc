#include "device/cuda/plan_call.h"

#include <fmt/format.h>

#include "device/cuda/kernels.h"
#include "device/kernels.h"

namespace weft::device::cuda {

void set_reduction(PlanCall& call, DataType type, ReduceOp op, bool strict) {
  const Combiner combiner = combiner_of(op);
  const bool ordered = is_float(type) && (combiner == Combiner::sum || combiner == Combiner::prod);
  call.op = static_cast<uint8_t>(combiner);
  call.tree = strict && ordered;
  call.divides = op == ReduceOp::avg && !is_float(type);
}

std::string plan_kernel_name(bool reduces, DataType type, ReduceOp op) {
  if (!reduces) return "weft_plan_move";
  const bool mean = is_float(type) && op == ReduceOp::avg;
  return fmt::format("weft_plan_{}_{}", mean ? "mean" : "sum", kernel_suffix(type));
}

}  // namespace weft::device::cuda
