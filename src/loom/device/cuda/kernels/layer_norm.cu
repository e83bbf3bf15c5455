// loom_layer_norm_{forward,backward}_<type>, and the same with _wide for rows beyond kNarrowNorm:
// layer_norm.h.
#include "device/cuda/kernels/layer_norm.h"
#include "device/cuda/kernels/types.h"

namespace loom::cuda {

#define LOOM_LAYER_NORM(name, T)                                                                           \
  LOOM_KERNEL(loom_layer_norm_forward_##name, LayerNormForwardArguments<T>, kForwardNormThreads) {         \
    layer_norm_forward<16>(arguments);                                                                     \
  }                                                                                                        \
  LOOM_KERNEL(loom_layer_norm_backward_##name, LayerNormBackwardArguments<T>, kBackwardNormThreads) {      \
    layer_norm_backward<16>(arguments);                                                                    \
  }                                                                                                        \
  LOOM_KERNEL(loom_layer_norm_backward_wide_##name, LayerNormBackwardArguments<T>, kBackwardNormThreads) { \
    layer_norm_backward<32>(arguments);                                                                    \
  }
LOOM_EACH_TYPE(LOOM_LAYER_NORM)

}  // namespace loom::cuda
