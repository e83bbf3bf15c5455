// loom_normal: normal.h. Compiled without fused multiplications, for the CPU's bits.
#include "device/cuda/kernels/normal.h"

namespace loom::cuda {

LOOM_KERNEL(loom_normal, NormalArguments, kElementThreads) { normal(arguments); }

}  // namespace loom::cuda
