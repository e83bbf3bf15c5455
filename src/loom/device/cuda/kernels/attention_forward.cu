// loom_attention_forward_<type>_<head size>: attention_forward.h.
#include "device/cuda/kernels/attention_forward.h"

namespace loom::cuda {

#define LOOM_ATTENTION(type, T, head)                                     \
  LOOM_KERNEL(loom_attention_forward_##type##_##head, AttentionArguments, \
              (AttentionForwardTiles<T, head>::kThreads)) {               \
    attention_forward<AttentionForwardTiles<T, head>>(arguments);         \
  }
LOOM_EACH_ATTENTION(LOOM_ATTENTION)

}  // namespace loom::cuda
