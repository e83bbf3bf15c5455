// loom_attention_backward_queries_<type>_<head size>: attention_backward.h. ptxas would rather spill a few
// bytes than have room for one block less; the 1 says that one is enough.
#include "device/cuda/kernels/attention_backward.h"

namespace loom::cuda {

#define LOOM_ATTENTION(type, T, head)                                              \
  LOOM_KERNEL(loom_attention_backward_queries_##type##_##head, AttentionArguments, \
              (AttentionQueriesTiles<T, head>::kThreads), 1) {                     \
    attention_backward_queries<AttentionQueriesTiles<T, head>>(arguments);         \
  }
LOOM_EACH_ATTENTION(LOOM_ATTENTION)

}  // namespace loom::cuda
