// A vocabulary-parallel head with its cross-entropy: of the matrix W[V, C], which may be the embedding's, and
// of its bias tensor rank t has the tokens [t · V/T, (t + 1) · V/T), the last one perhaps fewer, and so those
// columns of the logits. Logits are never gathered.
//
//   first piece   the norm, and what else stands before the logits, on the rows that the rank has there
//                 exchange: all rows of that, normed[M, C], where rows are divided
//   pairs, for R = head_rows() rows each, so that not all logits exist together:
//     logits_t[R, V/T] = normed · W_tᵀ + b_t, and three numbers of each row: its maximum here, the sum of
//                 exponentials, and the target's logit where the target is here
//                 exchange: the numbers[R, 3] of all ranks are gathered
//     loss[R] from all ranks' numbers, the same on all; dlogits_t; dW_t and db_t, which are complete; and
//                 sum_t[R, C] = dlogits_t · W_t, a summand
//                 exchange: the ranks add up sum_t[M, C]
//   last piece    back through the norm -> d, on the rows that the rank has
//
// The loss is that of logits on one rank (Shoeybi et al., "Megatron-LM", 2019, section 3).
//
// Thread safety: as Workers.
#pragma once

#include "model/cut.h"
#include "model/head_layers.h"
#include "model/pass.h"
#include "model/piece_arrays.h"
#include "model/units.h"

namespace loom::model {

constexpr Cut kHeadCut = {0, 1};  // of W[V, C] and b[V]

/// Pieces for so many pairs.
constexpr int head_pieces(int pairs) { return 2 * pairs + 2; }

/// Rows whose logits exist at a time: as much memory as without a division.
int64_t head_rows(const Share& share, int64_t rows);
/// Pairs of pieces that the head needs for all rows.
int head_pairs(const Share& share, int64_t rows);

template <typename T>
class VocabularyHead {
 public:
  using A = acc_t<T>;

  VocabularyHead(const ModelSpec& spec, const Share& share);

  /// 0: norm -> normed; then pairs of pieces for head_rows() rows each: normed -> logits and numbers; all
  /// ranks' numbers -> loss, sum and the matrix's gradient. The last piece: sum -> d.
  void step(const Pass& pass, const Unit& unit, int piece, A scale, const PieceArrays<T>& a) const;
  /// The same pieces, but the last, without gradients.
  void evaluate(const Pass& pass, const Unit& unit, int piece, const PieceArrays<T>& a) const;
  /// This rank's columns of the logits of row `row`, from the norm of all rows.
  void logits(const Pass& pass, const Unit& unit, const PieceArrays<T>& a, int64_t row, A* logits) const;

 private:
  void finish_rows(const Pass& pass, int64_t first, A scale, const PieceArrays<T>& a) const;

  ModelSpec spec_;
  Share share_;
  Unit embedding_;  // as this rank holds it: a tied head's matrix
  HeadLayers<T> layers_;
  const ops::Operators<T>& op_;
};

extern template class VocabularyHead<float>;
extern template class VocabularyHead<bf16>;
extern template class VocabularyHead<fp16>;
extern template class VocabularyHead<double>;

}  // namespace loom::model
