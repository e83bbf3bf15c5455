// loom_attention_delta_<type>: attention_delta.h.
#include "device/cuda/kernels/attention_delta.h"

namespace loom::cuda {

LOOM_KERNEL(loom_attention_delta_fp32, AttentionDeltaArguments, kDeltaThreads) {
  attention_delta<float>(arguments);
}
LOOM_KERNEL(loom_attention_delta_bf16, AttentionDeltaArguments, kDeltaThreads) {
  attention_delta<bf16>(arguments);
}
LOOM_KERNEL(loom_attention_delta_fp16, AttentionDeltaArguments, kDeltaThreads) {
  attention_delta<fp16>(arguments);
}

}  // namespace loom::cuda
