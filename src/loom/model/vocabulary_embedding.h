// A vocabulary-parallel embedding: of the matrix E[V, C] tensor rank t has the tokens [t · V/T, (t + 1) ·
// V/T), the last one perhaps fewer. Positions, types and the norm are on every rank.
//
//   forward   0: sum_t[M, C], the rows of E_t whose tokens are the rank's, zeros elsewhere: a summand
//                exchange: the ranks add up sum_t, since each row is on one of them
//             1: y[M, C] = dropout(norm(sum + positions + type)), on the rows that the rank has there
//   backward  0: d through dropout and norm; gradients of positions, types and norm, of the same rows
//                exchange: all rows of d, where rows are divided
//             1: dE_t: each row of d is added to its token's, where that is the rank's. Complete.
//
// Thread safety: as Workers.
#pragma once

#include "model/cut.h"
#include "model/pass.h"
#include "model/piece_arrays.h"
#include "model/units.h"

namespace loom::model {

constexpr Cut kEmbeddingCut = {0, 1};  // of E[V, C]
constexpr int kEmbeddingPieces = 2;

template <typename T>
class VocabularyEmbedding {
 public:
  using A = acc_t<T>;

  VocabularyEmbedding(const ModelSpec& spec, const Share& share);

  /// 0: this rank's tokens -> sum; 1: sum, positions, norm and dropout -> y. What a norm read stays in sum.
  void forward(const Pass& pass, int piece, const PieceArrays<T>& a) const;
  /// 0: d through dropout and norm (which reads sum), in place, and the positions' gradient; 1: incoming ->
  /// the tokens' gradient.
  void backward(const Pass& pass, int piece, const PieceArrays<T>& a) const;

 private:
  void add_places(const Pass& pass, const Pass& own, const PieceArrays<T>& a, T* y) const;

  ModelSpec spec_;
  Share share_;
  Unit unit_;  // as this rank holds it
  const ops::Operators<T>& op_;
};

extern template class VocabularyEmbedding<float>;
extern template class VocabularyEmbedding<bf16>;
extern template class VocabularyEmbedding<fp16>;
extern template class VocabularyEmbedding<double>;

}  // namespace loom::model
