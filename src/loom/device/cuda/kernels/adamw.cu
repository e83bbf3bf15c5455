// loom_adamw_<type of the parameters>: adamw.h.
#include "device/cuda/kernels/adamw.h"
#include "device/cuda/kernels/types.h"

namespace loom::cuda {

#define LOOM_ADAMW(name, T) \
  LOOM_KERNEL(loom_adamw_##name, AdamWArguments<T>, kElementThreads) { adamw(arguments); }
LOOM_EACH_TYPE(LOOM_ADAMW)

}  // namespace loom::cuda
