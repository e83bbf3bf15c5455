// loom_dropout_<type>, loom_add_dropout_<type>: dropout.h.
#include "device/cuda/kernels/dropout.h"
#include "device/cuda/kernels/types.h"

namespace loom::cuda {

#define LOOM_DROPOUT(name, T)                                                                    \
  LOOM_KERNEL(loom_dropout_##name, DropoutArguments<T>, kElementThreads) { dropout(arguments); } \
  LOOM_KERNEL(loom_add_dropout_##name, AddDropoutArguments<T>, kElementThreads) { add_dropout(arguments); }
LOOM_EACH_TYPE(LOOM_DROPOUT)

}  // namespace loom::cuda
