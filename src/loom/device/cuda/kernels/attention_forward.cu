// loom_attention_forward_<type>_<head size>: attention_forward.h.
#include "device/cuda/kernels/attention_forward.h"

namespace loom::cuda {

#define LOOM_ATTENTION(type, T, head)                                     \
  LOOM_KERNEL(loom_attention_forward_##type##_##head, AttentionArguments, \
              (AttentionForwardTiles<T, head>::kThreads)) {               \
    attention_forward<AttentionForwardTiles<T, head>>(arguments);         \
  }
#define LOOM_ATTENTION_OF_EVERY_HEAD(type, T) \
  LOOM_ATTENTION(type, T, 64)                 \
  LOOM_ATTENTION(type, T, 96) LOOM_ATTENTION(type, T, 128) LOOM_ATTENTION(type, T, 256)

LOOM_ATTENTION_OF_EVERY_HEAD(fp32, float)
LOOM_ATTENTION_OF_EVERY_HEAD(bf16, bf16)
LOOM_ATTENTION_OF_EVERY_HEAD(fp16, fp16)

}  // namespace loom::cuda
