// loom_attention_backward_keys_<type>_<head size>: attention_backward.h.
#include "device/cuda/kernels/attention_backward.h"

namespace loom::cuda {

#define LOOM_ATTENTION(type, T, head)                                           \
  LOOM_KERNEL(loom_attention_backward_keys_##type##_##head, AttentionArguments, \
              (AttentionKeysTiles<T, head>::kThreads)) {                        \
    attention_backward_keys<AttentionKeysTiles<T, head>>(arguments);            \
  }
LOOM_EACH_ATTENTION(LOOM_ATTENTION)

}  // namespace loom::cuda
