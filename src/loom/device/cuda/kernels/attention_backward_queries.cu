// loom_attention_backward_queries_<type>_<head size>: attention_backward.h. ptxas would rather spill a few
// bytes than have room for one block less; the 1 says that one is enough.
#include "device/cuda/kernels/attention_backward.h"

namespace loom::cuda {

#define LOOM_ATTENTION(type, T, head)                                              \
  LOOM_KERNEL(loom_attention_backward_queries_##type##_##head, AttentionArguments, \
              (AttentionQueriesTiles<T, head>::kThreads), 1) {                     \
    attention_backward_queries<AttentionQueriesTiles<T, head>>(arguments);         \
  }
#define LOOM_ATTENTION_OF_EVERY_HEAD(type, T) \
  LOOM_ATTENTION(type, T, 64)                 \
  LOOM_ATTENTION(type, T, 96) LOOM_ATTENTION(type, T, 128) LOOM_ATTENTION(type, T, 256)

LOOM_ATTENTION_OF_EVERY_HEAD(fp32, float)
LOOM_ATTENTION_OF_EVERY_HEAD(bf16, bf16)
LOOM_ATTENTION_OF_EVERY_HEAD(fp16, fp16)

}  // namespace loom::cuda
