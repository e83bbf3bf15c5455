// What a unit computes, forward and backward, on buffers that the caller gives: nothing is allocated here and
// nothing is remembered between calls.
//
// Names of arrays: B sequences of S tokens, M = B·S rows, C the width, V the vocabulary. `x` enters a unit,
// `y` leaves it; `d` is the gradient of the loss with respect to a unit's output, and becomes in place that
// with respect to its input. What forward leaves for backward is one buffer, `saved`; `workspace` is free
// before and after each call. Gradients of parameters have the layout of the unit's parameters and are
// overwritten.
//
// Thread safety: as Workers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/attention.h"
#include "model/feed_forward.h"
#include "model/head_layers.h"
#include "model/pass.h"
#include "model/units.h"

namespace loom::model {

/// Rows whose logits exist at a time: the largest buffer of small models.
constexpr int64_t kHeadRows = 512;

/// Bytes of the buffers, for elements of T.
struct BufferSizes {
  int64_t activation = 0;                                                    // x, y and d
  int64_t saved = 0;                                                         // of a block
  int64_t workspace = 0;                                                     // enough for any call
  int64_t embedding_workspace = 0, block_workspace = 0, head_workspace = 0;  // … of a unit of that kind
  int64_t workspace_of(UnitKind kind) const {
    return kind == UnitKind::embedding ? embedding_workspace
           : kind == UnitKind::block   ? block_workspace
                                       : head_workspace;
  }
};
template <typename T>
BufferSizes buffer_sizes(const ModelSpec& spec, const Share& share, int64_t batch, int64_t tokens);

template <typename T>
struct BlockSaved;
template <typename T>
struct BlockWorkspace;

template <typename T>
class Compute {
 public:
  using A = acc_t<T>;

  Compute(const ModelSpec& spec, const Share& share);

  /// token[M] to y[M, C].
  void embedding_forward(const Pass& pass, const T* parameters, const int32_t* token, T* y,
                         std::byte* workspace) const;
  /// With `add`, adds to the gradient instead of overwriting it: a tied head's, or earlier microbatches'.
  void embedding_backward(const Pass& pass, const T* parameters, const int32_t* token, T* d, A* gradient,
                          bool add, std::byte* workspace) const;

  void block_forward(const Pass& pass, const Unit& unit, const T* parameters, const T* x, std::byte* saved,
                     T* y, std::byte* workspace) const;
  void block_backward(const Pass& pass, const Unit& unit, const T* parameters, const T* x,
                      const std::byte* saved, T* d, A* gradient, std::byte* workspace) const;

  /// Forward, loss and backward at once, a few rows at a time, so that all logits never exist together:
  /// loss[m] of target[m] (negative: none; of classification: the sequence's class, at its first token, and
  /// every sequence has one), d[M, C] with respect to x of Σ loss · scale. `embedding` and
  /// `embedding_gradient` are the borrowed unit's if the head is tied; that gradient is overwritten.
  void head_loss(const Pass& pass, const Unit& unit, const T* parameters, const T* embedding, const T* x,
                 const int32_t* target, A scale, double* loss, T* d, A* gradient, A* embedding_gradient,
                 std::byte* workspace) const;
  /// loss[m] only.
  void head_evaluate(const Pass& pass, const Unit& unit, const T* parameters, const T* embedding, const T* x,
                     const int32_t* target, double* loss, std::byte* workspace) const;
  /// logits[outputs] of row `row`, or of the sequence that it belongs to where sequences are classified.
  void head_logits(const Pass& pass, const Unit& unit, const T* parameters, const T* embedding, const T* x,
                   int64_t row, A* logits, std::byte* workspace) const;

 private:
  /// y = residual + dropout(product + bias): the last step of a sublayer.
  void add_to_residual(const Pass& pass, const Unit& unit, Site site, Part bias, const T* parameters,
                       const T* residual, const T* product, T* y) const;
  /// d after a site's dropout, in `masked`, or d itself where nothing is dropped.
  const T* through_dropout(const Pass& pass, const Unit& unit, Site site, const T* d, T* masked) const;

  void post_backward(const Pass& pass, const Unit& unit, const T* parameters, const T* x,
                     const BlockSaved<T>& s, const BlockWorkspace<T>& w, T* d, A* gradient) const;
  void parallel_backward(const Pass& pass, const Unit& unit, const T* parameters, const T* x,
                         const BlockSaved<T>& s, const BlockWorkspace<T>& w, T* d, A* gradient) const;
  struct HeadRows;  // what of x the head reads
  /// sum[M, C] = a + b; it may be either.
  void add(const Pass& pass, const T* a, const T* b, T* sum) const;

  ModelSpec spec_;
  Share share_;
  std::vector<Unit> units_;
  Attention<T> attention_;
  FeedForward<T> feed_forward_;
  HeadLayers<T> layers_;
  const ops::Operators<T>& op_;
};

extern template class Compute<float>;
extern template class Compute<bf16>;
extern template class Compute<fp16>;
extern template class Compute<double>;

}  // namespace loom::model
