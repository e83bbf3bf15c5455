// The host's side of a plan kernel: the kernel of a reduction, and its arguments.
//
// Thread safety: pure functions.
#pragma once

#include <string>

#include "device/cuda/plan_program.h"
#include "device/reduce.h"

namespace weft::device::cuda {

/// How a call reduces. `strict`: floats are added in the canonical tree.
void set_reduction(PlanCall& call, DataType type, ReduceOp op, bool strict);

/// Which kernel a plan is for: the type matters where it reduces. "weft_plan_sum_float32",
/// "weft_plan_mean_float32", "weft_plan_move".
std::string plan_kernel_name(bool reduces, DataType type, ReduceOp op);

}  // namespace weft::device::cuda
