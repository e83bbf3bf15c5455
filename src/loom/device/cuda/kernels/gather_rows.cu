// loom_gather_rows_<type>, loom_count_right_<type>: gather_rows.h.
#include "device/cuda/kernels/gather_rows.h"
#include "device/cuda/kernels/types.h"

namespace loom::cuda {

#define LOOM_ROWS(name, T)                                                                                  \
  LOOM_KERNEL(loom_gather_rows_##name, GatherRowsArguments<T>, kElementThreads) { gather_rows(arguments); } \
  LOOM_KERNEL(loom_count_right_##name, CountRightArguments<T>, kElementThreads) { count_right(arguments); }
LOOM_EACH_TYPE(LOOM_ROWS)

}  // namespace loom::cuda
