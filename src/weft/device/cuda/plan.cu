// The plan kernels: weft_plan_sum_<type>, for floats weft_plan_mean_<type>, and weft_plan_move for plans that
// reduce nothing. What a block does is in plan_kernel.h. nvcc compiles them into a fat binary, which the
// library carries as data (kernel_image.cc).
#include "device/cuda/plan_kernel.h"

namespace weft::device::cuda {

template <typename Math>
__device__ void run_block(const PlanArguments& arguments) {
  __shared__ MeanArguments of_reduction;
  PlanBlock block(blockIdx.x, of_reduction);
  PlanRun<Math>(block, arguments).go_on();
}

#define WEFT_PLAN_KERNEL(name, Math)                                      \
  extern "C" __global__ void __launch_bounds__(kPlanThreads)              \
      weft_plan_##name(const __grid_constant__ PlanArguments arguments) { \
    run_block<Math>(arguments);                                           \
  }
#define WEFT_SUM_PLAN(name, Type) WEFT_PLAN_KERNEL(sum_##name, PlanSums<Type>)
#define WEFT_MEAN_PLAN(name, Type) WEFT_PLAN_KERNEL(mean_##name, PlanMeans<Type>)

WEFT_PLAN_KERNEL(move, PlanMoves)
#ifndef WEFT_MOVE_ONLY
WEFT_EACH_KERNEL_TYPE(WEFT_SUM_PLAN)
WEFT_EACH_FLOAT_KERNEL_TYPE(WEFT_MEAN_PLAN)
#endif

}  // namespace weft::device::cuda
