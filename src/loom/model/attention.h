// The attention of a block: a column-parallel projection to queries, keys and values, the heads, and a
// row-parallel output projection. Tensor parallelism divides the heads: each rank has the columns of the
// first and the rows of the second projection that belong to its own.
//
// Forward ends where the product of the output projection is complete but for its bias, backward where that
// of the first projection is. Under tensor parallelism both are this rank's summand of a sum over ranks: what
// adds them up stands between the sublayer and the block.
//
// Thread safety: as Workers.
#pragma once

#include "model/column_parallel.h"
#include "model/divider.h"
#include "model/pass.h"
#include "model/row_parallel.h"
#include "model/units.h"

namespace loom::model {

/// Blocks of the first projection's columns: queries, keys and values, each divided by heads.
constexpr int kQkvBlocks = 3;

/// What forward leaves for backward; H heads of size D, M rows.
template <typename T>
struct AttentionSaved {
  using A = acc_t<T>;
  T *qkv, *heads;  // [M, 3·H·D], [M, H·D]
  A* lse;          // [B, H, S]

  AttentionSaved(Divider& divider, const ModelSpec& spec, const Share& share, int64_t rows) {
    const int64_t across = share.heads * spec.head_size();
    qkv = divider.take<T>(rows * 3 * across);
    heads = divider.take<T>(rows * across);
    lse = divider.take<A>(rows * share.heads);
  }
};

template <typename T>
class Attention {
 public:
  using A = acc_t<T>;

  Attention(const ModelSpec& spec, const Share& share)
      : spec_(spec),
        share_(share),
        qkv_(Part::qkv_weight, spec.width, kQkvBlocks * share.heads * spec.head_size()),
        projection_(Part::projection_weight, share.heads * spec.head_size(), spec.width),
        op_(ops::operators<T>()) {}

  /// product[M, C] from x[M, C], without the bias of the output projection.
  void forward(const Pass& pass, const Unit& unit, const T* parameters, const T* x,
               const AttentionSaved<T>& saved, T* product) const;

  /// dx[M, C] from dy[M, C], the gradient with respect to the product and its bias; overwrites the sublayer's
  /// part of `gradient`, that bias too. `wide` has 4·M·H·D elements.
  void backward(const Pass& pass, const Unit& unit, const T* parameters, const T* x,
                const AttentionSaved<T>& saved, const T* dy, T* dx, A* gradient, T* wide) const;

  /// The same in two parts. dx, for which others may be waiting; `wide` then begins with the derivatives of
  /// queries, keys and values.
  void backward_input(const Pass& pass, const Unit& unit, const T* parameters, const AttentionSaved<T>& saved,
                      const T* dy, T* dx, T* wide) const;
  /// The gradients of both projections, from x and what backward_input left.
  void backward_weights(const Pass& pass, const Unit& unit, const T* x, const AttentionSaved<T>& saved,
                        const T* dy, const T* wide, A* gradient) const;

  /// Heads and masks of a block's attention.
  ops::AttentionShape shape(const Pass& pass, const Unit& unit) const;
  /// Turns of queries and keys; only of specs that have them.
  ops::RotaryShape rotary(const Pass& pass) const;

 private:
  ModelSpec spec_;
  Share share_;
  ColumnParallel<T> qkv_;
  RowParallel<T> projection_;
  const ops::Operators<T>& op_;
};

extern template class Attention<float>;
extern template class Attention<bf16>;
extern template class Attention<fp16>;
extern template class Attention<double>;

}  // namespace loom::model
