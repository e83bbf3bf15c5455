// loom_add, loom_convert_<type>, loom_widen_<type>, loom_sum_of_squares, loom_sum: elementwise.h.
#include "device/cuda/kernels/elementwise.h"
#include "device/cuda/kernels/types.h"

namespace loom::cuda {

LOOM_KERNEL(loom_add, AddArguments, kElementThreads) { add(arguments); }
#define LOOM_CONVERT(name, T)                                                                    \
  LOOM_KERNEL(loom_convert_##name, ConvertArguments<T>, kElementThreads) { convert(arguments); } \
  LOOM_KERNEL(loom_widen_##name, WidenArguments<T>, kElementThreads) { widen(arguments); }
LOOM_EACH_TYPE(LOOM_CONVERT)
LOOM_KERNEL(loom_sum_of_squares, SumOfSquaresArguments, kElementThreads) { sum_of_squares(arguments); }
LOOM_KERNEL(loom_sum, SumArguments, SumArguments::kThreads) { sum(arguments); }

}  // namespace loom::cuda
