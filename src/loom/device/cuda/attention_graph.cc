// The operations of both passes.
#include "device/cuda/attention_graph.h"

#include <cmath>
#include <limits>

#include "base/round.h"
#include "device/cuda/attention_tensors.h"

namespace loom::cuda {
namespace {

constexpr int64_t kAlignment = 256;  // of each part of the scratch
constexpr float kHidden = -std::numeric_limits<float>::infinity(), kOne = 1;

const std::byte* at(const void* array, int64_t bytes) { return static_cast<const std::byte*>(array) + bytes; }

/// Where k and v of qkv begin, and their gradients of dqkv.
int64_t key_bytes(const AttentionGraphShape& shape) { return shape.width() * size_of(shape.type); }
int64_t value_bytes(const AttentionGraphShape& shape) {
  return (shape.width() + shape.key_width()) * size_of(shape.type);
}

void bind_lengths(std::vector<DnnBinding>& bindings, DnnTensorRef queries, DnnTensorRef keys,
                  const AttentionLengths& lengths) {
  if (queries.id == 0) return;
  bindings.push_back({queries, lengths.queries});
  bindings.push_back({keys, lengths.keys});
}

}  // namespace

std::string to_string(const AttentionGraphShape& s) {
  return fmt::format("attention of {} × {} tokens with {} heads of {}{} ({}{}{}{})", s.batch, s.tokens,
                     s.heads, s.head_size, s.is_shared() ? fmt::format(" and {} of keys", s.key_heads) : "",
                     s.type == ElementType::fp16   ? "fp16"
                     : s.type == ElementType::bf16 ? "bf16"
                                                   : "fp32",
                     s.causal ? ", causal" : "", s.padded ? ", padded" : "",
                     s.deterministic ? ", deterministic" : "");
}

Status check_attention(const AttentionGraphShape& shape) {
  constexpr int64_t kPiece = 8, kMost = 256;
  if (shape.type == ElementType::fp32)
    return fail(Code::unsupported, "cuDNN's attention takes bf16 and fp16, not fp32: set parallel.precision");
  if (shape.head_size % kPiece != 0 || shape.head_size > kMost)
    return fail(Code::unsupported,
                "cuDNN's attention takes heads of a multiple of {} elements up to {}, not of {}", kPiece,
                kMost, shape.head_size);
  // The sums over heads would read gradients of padding, which the library need not write.
  if (shape.is_shared() && shape.padded)
    return fail(
        Code::unsupported,
        "cuDNN's attention is not taken where sequences are padded and {} heads of queries share {} of keys",
        shape.heads, shape.key_heads);
  return {};
}

// ---- Forward

Result<std::unique_ptr<AttentionForward>> AttentionForward::create(const AttentionGraphShape& shape,
                                                                   const DnnTarget& target) {
  LOOM_TRY(check_attention(shape));
  std::unique_ptr<AttentionForward> made(new AttentionForward);
  AttentionForward& f = *made;
  f.shape_ = shape;
  DnnGraph graph;
  const AttentionTensors tensors(graph, shape);
  f.q_ = tensors.queries(), f.k_ = tensors.keys_transposed(), f.v_ = tensors.keys();
  f.out_ = tensors.output(), f.lse_ = tensors.row_array();
  f.scale_ = graph.number(), f.hidden_ = graph.number();
  if (shape.padded) f.queries_ = tensors.lengths(), f.keys_ = tensors.lengths();

  DnnTensorRef scores = graph.multiply(f.q_, f.k_, tensors.pairs(),
                                       {.rows = f.queries_, .columns = f.keys_, .padded = shape.padded});
  scores = tensors.apply(kDnnMultiply, {scores, f.scale_}, tensors.pairs());
  scores = tensors.mask(scores, f.hidden_, f.queries_, f.keys_);
  const DnnTensorRef most = graph.reduce(kDnnMost, scores, tensors.rows());
  const DnnTensorRef less = tensors.apply(kDnnSubtract, {scores, most}, tensors.pairs());
  const DnnTensorRef exponentials = tensors.apply(kDnnExp, {less}, tensors.pairs());
  const DnnTensorRef sum = graph.reduce(kDnnSum, exponentials, tensors.rows());
  const DnnTensorRef log = tensors.apply(kDnnLog, {sum}, tensors.rows());
  tensors.apply(kDnnAdd, {most, log}, f.lse_);
  const DnnTensorRef p = tensors.apply(kDnnDivide, {exponentials, sum}, tensors.short_pairs());
  graph.multiply(p, f.v_, f.out_, {.rows = f.queries_, .terms = f.keys_});

  Result<std::unique_ptr<DnnPlan>> plan = graph.plan(target);
  LOOM_TRY(plan.status().in(to_string(shape)));
  f.plan_ = plan.take();
  return made;
}

Status AttentionForward::run(DnnHandle* handle, float scale, const void* qkv, void* out, float* lse,
                             const AttentionLengths& lengths, void* scratch) const {
  std::vector<DnnBinding> bindings = {{q_, qkv},
                                      {k_, at(qkv, key_bytes(shape_))},
                                      {v_, at(qkv, value_bytes(shape_))},
                                      {out_, out},
                                      {lse_, lse},
                                      {scale_, &scale},
                                      {hidden_, &kHidden}};
  bind_lengths(bindings, queries_, keys_, lengths);
  return plan_->run(handle, bindings, scratch);
}

// ---- Backward

Result<std::unique_ptr<AttentionBackward>> AttentionBackward::create(const AttentionGraphShape& shape,
                                                                     const DnnTarget& target) {
  LOOM_TRY(check_attention(shape));
  std::unique_ptr<AttentionBackward> made(new AttentionBackward);
  AttentionBackward& b = *made;
  b.shape_ = shape;
  DnnGraph graph;
  const AttentionTensors tensors(graph, shape);
  b.q_ = tensors.queries(), b.k_ = tensors.keys_transposed(), b.v_ = tensors.keys_transposed();
  b.out_ = tensors.output(), b.dout_ = tensors.output(), b.lse_ = tensors.row_array();
  b.dq_ = tensors.queries(), b.dk_ = tensors.keys(), b.dv_ = tensors.keys();
  b.sums_ = tensors.row_array();
  b.scale_ = graph.number(), b.one_ = graph.number(), b.hidden_ = graph.number();
  if (shape.padded) b.queries_ = tensors.lengths(), b.keys_ = tensors.lengths();

  const DnnTensorRef products = tensors.apply(kDnnMultiply, {b.dout_, b.out_}, tensors.products());
  const DnnTensorRef sums = graph.reduce(kDnnSum, products, tensors.rows());
  tensors.apply(kDnnMultiply, {sums, b.one_}, b.sums_);  // without dropout, whose scale stands here otherwise

  DnnTensorRef scores = graph.multiply(b.q_, b.k_, tensors.pairs(), {.rows = b.queries_, .columns = b.keys_});
  scores = tensors.apply(kDnnMultiply, {scores, b.scale_}, tensors.pairs());
  scores = tensors.apply(kDnnSubtract, {scores, b.lse_}, tensors.pairs());
  scores = tensors.mask(scores, b.hidden_, b.queries_, b.keys_);
  const DnnTensorRef p = tensors.apply(kDnnExp, {scores}, tensors.pairs());
  const DnnTensorRef p_transposed = graph.reshape(p, tensors.transposed_pairs());
  tensors.multiply_for_keys(p_transposed, b.dout_, b.dv_, {.rows = b.keys_, .terms = b.queries_});

  DnnTensorRef ds = graph.multiply(b.dout_, b.v_, tensors.pairs(), {.rows = b.queries_, .columns = b.keys_});
  ds = tensors.apply(kDnnSubtract, {ds, b.sums_}, tensors.pairs());
  ds = tensors.apply(kDnnMultiply, {ds, p}, tensors.pairs());
  ds = tensors.apply(kDnnMultiply, {ds, b.scale_}, tensors.pairs());
  const DnnTensorRef ds_transposed = graph.reshape(ds, tensors.transposed_pairs());
  tensors.multiply_for_keys(ds_transposed, b.q_, b.dk_, {.rows = b.keys_, .terms = b.queries_});

  const DnnTensorRef k = graph.reshape(b.k_, tensors.keys_between());
  if (shape.deterministic) {
    graph.multiply(ds, k, b.dq_, {.rows = b.queries_, .terms = b.keys_});
  } else {
    b.dq_sums_ = tensors.dq_sums();
    graph.multiply(ds, k, b.dq_sums_, {.rows = b.queries_, .terms = b.keys_});
    tensors.apply(kDnnIdentity, {b.dq_sums_}, b.dq_);
  }

  Result<std::unique_ptr<DnnPlan>> plan = graph.plan(target);
  LOOM_TRY(plan.status().in("the gradient of " + to_string(shape)));
  b.plan_ = plan.take();
  return made;
}

int64_t AttentionBackward::dq_bytes() const {
  if (shape_.deterministic) return 0;
  return round_up(shape_.batch * shape_.tokens * shape_.width() * int64_t{sizeof(float)}, kAlignment);
}

int64_t AttentionBackward::sums_bytes() const {
  return round_up(shape_.batch * shape_.heads * shape_.tokens * int64_t{sizeof(float)}, kAlignment);
}

Status AttentionBackward::run(DnnHandle* handle, float scale, const void* qkv, const void* out,
                              const float* lse, const void* dout, void* dqkv, const AttentionLengths& lengths,
                              void* scratch) const {
  const int64_t to_keys = key_bytes(shape_), to_values = value_bytes(shape_);
  auto* const parts = static_cast<std::byte*>(scratch);
  std::vector<DnnBinding> bindings = {{q_, qkv},
                                      {k_, at(qkv, to_keys)},
                                      {v_, at(qkv, to_values)},
                                      {out_, out},
                                      {lse_, lse},
                                      {dout_, dout},
                                      {dq_, dqkv},
                                      {dk_, at(dqkv, to_keys)},
                                      {dv_, at(dqkv, to_values)},
                                      {sums_, parts + dq_bytes()},
                                      {scale_, &scale},
                                      {one_, &kOne},
                                      {hidden_, &kHidden}};
  if (!shape_.deterministic) bindings.push_back({dq_sums_, parts});
  bind_lengths(bindings, queries_, keys_, lengths);
  return plan_->run(handle, bindings, parts + dq_bytes() + sums_bytes());
}

/// cuDNN 9.19's plans for sm_90 take 256 bytes in the forward pass. The backward pass takes as much, or dq in
/// fp32 once more, or ds of all pairs in tiles of 64 × 128; and dk and dv of each head of queries, where they
/// are summed over several.
int64_t attention_scratch_bound(const AttentionGraphShape& s) {
  constexpr int64_t kRows = 64, kColumns = 128, kBesides = 1 << 20;
  const int64_t heads = s.batch * s.heads, row_bytes = heads * s.tokens * int64_t{sizeof(float)};
  const int64_t ds_bytes = 2 * heads * round_up(s.tokens, kRows) * round_up(s.tokens, kColumns);
  const int64_t shared_bytes = s.is_shared() ? 4 * heads * s.tokens * s.head_size : 0;
  return (s.deterministic ? ds_bytes : 2 * row_bytes * s.head_size) + shared_bytes + row_bytes + kBesides;
}

}  // namespace loom::cuda
