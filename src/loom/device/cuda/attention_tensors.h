// The tensors of attention's graphs, and its mask. A tensor between two operations is made where it is
// written.
//
// Internal to attention_graph.cc.
//
// Thread safety: one thread at a time.
#pragma once

#include <initializer_list>

#include "device/cuda/attention_graph.h"

namespace loom::cuda {

class AttentionTensors {
 public:
  AttentionTensors(DnnGraph& graph, const AttentionGraphShape& shape) : graph_(graph), s_(shape) {}

  // ---- Arrays

  /// q or its gradient: [B, heads, S, D] in the rows of qkv.
  DnnTensorRef queries() const { return graph_.array({by_tokens(), slice_strides(), type()}); }
  /// k, v or the gradient of one: [B, heads of keys, S, D] in the rows of qkv.
  DnnTensorRef keys() const { return graph_.array({of_keys(), slice_strides(), type()}); }
  /// [B, heads of keys, D, S] of the same memory.
  DnnTensorRef keys_transposed() const {
    const Four strides = slice_strides();
    return graph_.array({{s_.batch, s_.key_heads, s_.head_size, s_.tokens},
                         {strides[0], strides[1], strides[3], strides[2]},
                         type()});
  }
  /// out or its gradient: [B, heads, S, D] in [B, S, C].
  DnnTensorRef output() const {
    return graph_.array({by_tokens(), {s_.tokens * s_.width(), s_.head_size, s_.width(), 1}, type()});
  }
  /// A number for each query: [B, heads, S, 1].
  DnnTensorRef row_array() const { return graph_.array({of_rows(), row_strides()}); }
  /// dq in fp32, [B, heads, S, D] as it stands.
  DnnTensorRef dq_sums() const {
    const int64_t head = s_.tokens * s_.head_size;
    return graph_.array({by_tokens(), {s_.heads * head, head, s_.head_size, 1}});
  }
  DnnTensorRef lengths() const { return graph_.array({{s_.batch, 1, 1, 1}, {1, 1, 1, 1}, kDnnInt32}); }

  // ---- Between operations

  /// A value for each query and key: [B, heads, S, S].
  DnnTensorRef pairs(DnnType type = kDnnFloat32) const {
    return graph_.between(
        {of_pairs(), {s_.heads * s_.tokens * s_.tokens, s_.tokens * s_.tokens, s_.tokens, 1}, type});
  }
  DnnTensorRef short_pairs() const { return pairs(type()); }
  /// The same with keys as rows, in the elements' type.
  DnnTensorRef transposed_pairs() const {
    return graph_.between(
        {of_pairs(), {s_.heads * s_.tokens * s_.tokens, s_.tokens * s_.tokens, 1, s_.tokens}, type()});
  }
  DnnTensorRef rows() const { return graph_.between({of_rows(), row_strides()}); }
  /// dout ∘ out.
  DnnTensorRef products() const {
    const int64_t head = s_.tokens * s_.head_size;
    return graph_.between({by_tokens(), {s_.heads * head, head, s_.width(), 1}});
  }
  /// k, seen from k transposed.
  DnnTensorRef keys_between() const { return graph_.between({of_keys(), slice_strides(), type()}); }

  // ---- Operations

  DnnTensorRef apply(DnnPointwiseMode mode, std::initializer_list<DnnTensorRef> operands, DnnTensorRef y,
                     DnnType precision = kDnnFloat32) const {
    return graph_.pointwise(mode, {operands.begin(), operands.size()}, y, precision);
  }

  /// dk or dv: a[B, heads, S, S] · b[B, heads, S, D] to y, which has the heads of keys.
  void multiply_for_keys(DnnTensorRef a, DnnTensorRef b, DnnTensorRef y,
                         const DnnGraph::Extents& extents) const {
    if (!s_.is_shared()) {
      graph_.multiply(a, b, y, extents);
      return;
    }
    const int64_t head = s_.tokens * s_.head_size;
    const DnnTensorRef of_queries =
        graph_.between({by_tokens(), {s_.heads * head, head, s_.head_size, 1}, type()});
    graph_.reduce(kDnnSum, graph_.multiply(a, b, of_queries, extents), y);
  }

  /// Scores of keys that a query does not see become `hidden`. `queries` and `keys` are none where no
  /// sequence is padded.
  DnnTensorRef mask(DnnTensorRef scores, DnnTensorRef hidden, DnnTensorRef queries, DnnTensorRef keys) const {
    if (s_.padded) {
      const DnnTensorRef row = graph_.index(scores, 2, pairs(kDnnInt32), kDnnInt32),
                         column = graph_.index(scores, 3, pairs(kDnnInt32), kDnnInt32);
      const DnnTensorRef in_rows = apply(kDnnLess, {row, queries}, pairs(kDnnBool), kDnnBool),
                         in_columns = apply(kDnnLess, {column, keys}, pairs(kDnnBool), kDnnBool);
      const DnnTensorRef seen = apply(kDnnAnd, {in_rows, in_columns}, pairs(kDnnBool), kDnnBool);
      scores = apply(kDnnSelect, {scores, hidden, seen}, pairs());
    }
    if (s_.causal) {
      const DnnTensorRef row = graph_.index(scores, 2, pairs(kDnnInt32), kDnnFloat32),
                         column = graph_.index(scores, 3, pairs(kDnnInt32), kDnnFloat32);
      const DnnTensorRef seen = apply(kDnnGreaterOrEqual, {row, column}, pairs(kDnnBool), kDnnBool);
      scores = apply(kDnnSelect, {scores, hidden, seen}, pairs());
    }
    return scores;
  }

 private:
  DnnType type() const { return s_.type == ElementType::fp16 ? kDnnFloat16 : kDnnBfloat16; }
  Four by_tokens() const { return {s_.batch, s_.heads, s_.tokens, s_.head_size}; }
  Four of_keys() const { return {s_.batch, s_.key_heads, s_.tokens, s_.head_size}; }
  Four slice_strides() const { return {s_.tokens * s_.qkv_width(), s_.head_size, s_.qkv_width(), 1}; }
  Four of_rows() const { return {s_.batch, s_.heads, s_.tokens, 1}; }
  Four row_strides() const { return {s_.heads * s_.tokens, s_.tokens, 1, 1}; }
  Four of_pairs() const { return {s_.batch, s_.heads, s_.tokens, s_.tokens}; }

  DnnGraph& graph_;
  const AttentionGraphShape& s_;
};

}  // namespace loom::cuda
