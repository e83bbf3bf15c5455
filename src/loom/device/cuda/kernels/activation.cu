// loom_<activation>_forward_<type>, loom_<activation>_backward_<type>,
// loom_gated_<activation>_forward_<type>, loom_gated_<activation>_backward_<type>: activation.h.
#include "device/cuda/kernels/activation.h"
#include "device/cuda/kernels/types.h"

namespace loom::cuda {

#define LOOM_ACTIVATION(activation, F, name, T)                                                        \
  LOOM_KERNEL(loom_##activation##_forward_##name, ActivationForwardArguments<T>, kElementThreads) {    \
    activation_forward<formulas::F<float>>(arguments);                                                 \
  }                                                                                                    \
  LOOM_KERNEL(loom_##activation##_backward_##name, ActivationBackwardArguments<T>, kElementThreads) {  \
    activation_backward<formulas::F<float>>(arguments);                                                \
  }                                                                                                    \
  LOOM_KERNEL(loom_gated_##activation##_forward_##name, GatedForwardArguments<T>, kElementThreads) {   \
    gated_forward<formulas::F<float>>(arguments);                                                      \
  }                                                                                                    \
  LOOM_KERNEL(loom_gated_##activation##_backward_##name, GatedBackwardArguments<T>, kElementThreads) { \
    gated_backward<formulas::F<float>>(arguments);                                                     \
  }
#define LOOM_ACTIVATIONS(name, T)               \
  LOOM_ACTIVATION(gelu_tanh, GeluTanh, name, T) \
  LOOM_ACTIVATION(gelu_erf, GeluErf, name, T)   \
  LOOM_ACTIVATION(relu, Relu, name, T)          \
  LOOM_ACTIVATION(silu, Silu, name, T) LOOM_ACTIVATION(tanh, Tanh, name, T)
LOOM_EACH_TYPE(LOOM_ACTIVATIONS)

}  // namespace loom::cuda
