// loom_norm_forward_<type>, loom_norm_backward_<type>, and loom_norm_backward_wide_<type> for rows beyond
// kNarrowNorm: norm.h.
#include "device/cuda/kernels/norm.h"
#include "device/cuda/kernels/types.h"

namespace loom::cuda {

#define LOOM_NORM(name, T)                                                                      \
  LOOM_KERNEL(loom_norm_forward_##name, NormForwardArguments<T>, kForwardNormThreads) {         \
    norm_forward<16>(arguments);                                                                \
  }                                                                                             \
  LOOM_KERNEL(loom_norm_backward_##name, NormBackwardArguments<T>, kBackwardNormThreads) {      \
    norm_backward<16>(arguments);                                                               \
  }                                                                                             \
  LOOM_KERNEL(loom_norm_backward_wide_##name, NormBackwardArguments<T>, kBackwardNormThreads) { \
    norm_backward<32>(arguments);                                                               \
  }
LOOM_EACH_TYPE(LOOM_NORM)

}  // namespace loom::cuda
