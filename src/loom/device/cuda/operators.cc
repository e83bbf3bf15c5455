// The table, put together.
#include "device/cuda/operators.h"

#include "device/cuda/kernels/attention_launch.h"
#include "device/cuda/kernels/norm.h"
#include "device/cuda/operator_launches.h"

namespace loom::cuda {

Status check_sizes(int64_t width, int64_t head_size) {
  if (width > kLongestNorm)
    return fail(Code::unsupported, "norms of a GPU have at most {} columns, not {}", kLongestNorm, width);
  if (head_size > kLargestAttentionHead)
    return fail(Code::unsupported, "attention on a GPU takes heads of at most {} elements, not {}",
                kLargestAttentionHead, head_size);
  return {};
}

template <typename T>
const ops::Operators<T>& operators() {
  static const ops::Operators<T> table = [] {
    ops::Operators<T> made{};
    made.name = "cuda";
    add_attention(made);
    add_products(made);
    add_rows(made);
    add_elements(made);
    return made;
  }();
  return table;
}
template const ops::Operators<float>& operators<float>();
template const ops::Operators<bf16>& operators<bf16>();
template const ops::Operators<fp16>& operators<fp16>();

template <typename T>
const ops::FusedOperators<T>& fused_operators() {
  static const ops::FusedOperators<T> table = [] {
    ops::FusedOperators<T> made{};
    add_fused_products(made);
    add_fused_rows(made);
    return made;
  }();
  return table;
}
template const ops::FusedOperators<float>& fused_operators<float>();
template const ops::FusedOperators<bf16>& fused_operators<bf16>();
template const ops::FusedOperators<fp16>& fused_operators<fp16>();

}  // namespace loom::cuda
