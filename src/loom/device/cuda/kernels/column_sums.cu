// loom_column_sums_<type>, loom_fold: column_sums.h.
#include "device/cuda/kernels/column_sums.h"
#include "device/cuda/kernels/types.h"

namespace loom::cuda {

#define LOOM_COLUMN_SUMS(name, T)                                                                         \
  LOOM_KERNEL(loom_column_sums_##name, ColumnSumsArguments<T>, kLanes* ColumnSumsArguments<T>::kGroups) { \
    column_sums(arguments);                                                                               \
  }
LOOM_EACH_TYPE(LOOM_COLUMN_SUMS)
LOOM_KERNEL(loom_fold, FoldArguments, kLanes* FoldArguments::kGroups) { fold(arguments); }

}  // namespace loom::cuda
