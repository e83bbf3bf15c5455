// Scaled dot-product attention as graphs of cuDNN, on the arrays of Operators::attention_forward and
// attention_backward: q, k and v are slices of the rows of qkv, a head is a slice of one of them.
//
//   forward     s = scale · q·kᵀ, masked; lse = log Σ exp(s); out = exp(s - lse) · v
//   backward    p = exp(scale · q·kᵀ - lse), masked; dv = pᵀ·dout; ds = scale · p ∘ (dout·vᵀ - Σ dout ∘ out);
//               dk = dsᵀ·q; dq = ds·k
//
// Heads of queries may share those of keys. The products then take a head of keys as often as it is shared.
// dv and dk are sums over the heads that share: each one's gradient is rounded to the elements' type first.
//
// The library has one kernel for each of them and knows them by their shape: the operations, their order and
// the types between them are those of NVIDIA's frontend, so none of them can be left out or moved.
//
// A deterministic backward pass keeps ds of all pairs in the workspace, 2 · B · heads · S² bytes. Else dq is
// summed in fp32, in whatever order thread blocks come.
//
// Thread safety: one thread at a time.
#pragma once

#include <compare>
#include <memory>

#include "device/cuda/dnn_graph.h"
#include "device/cuda/product.h"

namespace loom::cuda {

/// What a plan depends on. The scale of scores is given to each run.
struct AttentionGraphShape {
  ElementType type = ElementType::bf16;  // or fp16
  int64_t batch = 0, tokens = 0, heads = 0, key_heads = 0, head_size = 0;
  bool causal = true;
  bool padded = false;  // queries see keys up to their sequence's length
  bool deterministic = false;
  auto operator<=>(const AttentionGraphShape&) const = default;
  bool is_shared() const { return key_heads != heads; }
  int64_t width() const { return heads * head_size; }
  int64_t key_width() const { return key_heads * head_size; }
  int64_t qkv_width() const { return width() + 2 * key_width(); }
};
/// "attention of 4 × 1024 tokens with 12 heads of 64 (bf16, causal)", or "… with 12 heads of 64 and 4 of keys
/// (bf16, causal)".
std::string to_string(const AttentionGraphShape& shape);

/// What of a shape cuDNN computes. Errors: unsupported, which says what it would compute.
Status check_attention(const AttentionGraphShape& shape);

/// int32 arrays of a padded graph, one number for each sequence.
struct AttentionLengths {
  const int32_t* queries = nullptr;  // all tokens: padding is computed as well, as on CPUs
  const int32_t* keys = nullptr;
};

class AttentionForward {
 public:
  static Result<std::unique_ptr<AttentionForward>> create(const AttentionGraphShape& shape,
                                                          const DnnTarget& target);
  int64_t scratch_bytes() const { return plan_->workspace_bytes(); }
  Status run(DnnHandle* handle, float scale, const void* qkv, void* out, float* lse,
             const AttentionLengths& lengths, void* scratch) const;

 private:
  AttentionGraphShape shape_;
  DnnTensorRef q_, k_, v_, out_, lse_, scale_, hidden_, queries_, keys_;
  std::unique_ptr<DnnPlan> plan_;
};

class AttentionBackward {
 public:
  static Result<std::unique_ptr<AttentionBackward>> create(const AttentionGraphShape& shape,
                                                           const DnnTarget& target);
  int64_t scratch_bytes() const { return dq_bytes() + sums_bytes() + plan_->workspace_bytes(); }
  /// Gradients of keys beyond a sequence's length stay as they are.
  Status run(DnnHandle* handle, float scale, const void* qkv, const void* out, const float* lse,
             const void* dout, void* dqkv, const AttentionLengths& lengths, void* scratch) const;

 private:
  /// Parts of the scratch: dq in fp32, and the sums of dout ∘ out.
  int64_t dq_bytes() const;
  int64_t sums_bytes() const;

  AttentionGraphShape shape_;
  DnnTensorRef q_, k_, v_, out_, lse_, dout_, dq_, dk_, dv_, sums_, dq_sums_, scale_, one_, hidden_, queries_,
      keys_;
  std::unique_ptr<DnnPlan> plan_;
};

/// Bytes of scratch memory that both passes need at most: what a plan of memory counts before there is a
/// library to ask.
int64_t attention_scratch_bound(const AttentionGraphShape& shape);

}  // namespace loom::cuda
