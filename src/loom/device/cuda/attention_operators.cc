// Attention by its kernels, forward is one and backward three; or by cuDNN, where the job takes it.
#include "device/cuda/kernels/attention_launch.h"
#include "device/cuda/operator_launches.h"
#include "device/cuda/operators.h"

namespace loom::cuda {
namespace {

bool is_taken(Compute& compute, const ops::AttentionShape& shape) {
  const Status status = check_sizes(0, shape.head_size);
  if (status.ok()) return true;
  compute.refuse(status);
  return false;
}

template <typename Arguments>
void queue_launch(Compute& compute, const KernelLaunch<Arguments>& launch) {
  compute.launch(launch.name, launch.shape, launch.arguments);
}

/// A pass by cuDNN.
template <typename T>
void attend(Compute& compute, const char* name, const ops::AttentionShape& shape,
            const AttentionArrays& arrays,
            void (Attentions::*pass)(const ops::AttentionShape&, ElementType, const AttentionArrays&,
                                     void*)) {
  Attentions& cudnn = *compute.attentions();
  const Result<AttentionGraphShape> planned = cudnn.plan_shape(shape, kElementType<T>);
  if (!planned.ok()) return compute.refuse(planned.status());
  if (void* const scratch = compute.prepare_attention(*planned))
    compute.call(name, [&] { (cudnn.*pass)(shape, kElementType<T>, arrays, scratch); });
}

template <typename T>
void forward(Compute& compute, const ops::AttentionShape& shape, const T* qkv, T* out, float* lse) {
  if (compute.attentions() != nullptr)
    return attend<T>(compute, "cuDNN's attention", shape, {.qkv = qkv, .out = out, .lse = lse},
                     &Attentions::forward);
  if (is_taken(compute, shape)) queue_launch(compute, attention_forward_launch(shape, qkv, out, lse));
}

template <typename T>
void backward(Compute& compute, const ops::AttentionShape& shape, const T* qkv, const T* out,
              const float* lse, const T* dout, T* dqkv) {
  if (compute.attentions() != nullptr)
    return attend<T>(
        compute, "the gradient of cuDNN's attention", shape,
        {.qkv = qkv, .out = const_cast<T*>(out), .lse = const_cast<float*>(lse), .dout = dout, .dqkv = dqkv},
        &Attentions::backward);
  if (!is_taken(compute, shape)) return;
  float* const delta = compute.scratch<float>(shape.batch * shape.heads * shape.tokens);
  if (delta == nullptr) return;
  const AttentionBackwardLaunch launch =
      attention_backward_launch(shape, qkv, out, const_cast<float*>(lse), dout, dqkv, delta);
  queue_launch(compute, launch.delta);
  queue_launch(compute, launch.keys);
  queue_launch(compute, launch.queries);
}

}  // namespace

template <typename T>
void add_attention(ops::Operators<T>& table) {
  table.attention_forward = forward<T>;
  table.attention_backward = backward<T>;
}
LOOM_FOR_EVERY_GPU_TYPE(add_attention, Operators)

}  // namespace loom::cuda
