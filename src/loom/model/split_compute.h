// What a rank of a tensor-parallel group computes of a unit, in pieces: between two pieces the ranks exchange
// something, and what they exchange is not this file's business.
//
// Pieces of a block, forward and backward, are numbered from 0. Some work on rows (norms, dropout, the
// residual), the others on a sublayer's products. With rows divided, the former have this rank's rows only,
// the latter always all M.
//
//   forward   0: norm           -> normed          backward  0: through dropout        -> incoming
//             1: attention      -> sum                       1: feed-forward's input   -> sum
//             2: residual, norm -> normed                    2: gradient of the way up
//             3: feed-forward   -> sum                       3: norm, through dropout  -> incoming
//             4: residual       -> y                         4: gradient of the way down
//                                                            5: attention's input      -> sum
//                                                            6: gradients of attention
//                                                            7: norm                   -> d
//
// Pieces of embedding and head are told in vocabulary_embedding.h and vocabulary_head.h. The table is of
// pre-norm blocks; what others do on rows, in the same pieces, is in split_block.cc. Gradients
// of matrices are pieces of their own because nobody waits for them: while a rank computes piece 2 or 6, the
// `sum` of the one before travels; during 4 the `incoming` of 3 is gathered. Piece 4 may come before 3, too.
//
// `normed` and `incoming` reach a sublayer with all rows: gathered, or computed on every rank. `sum` leaves
// it as a summand and comes back as the sum over the ranks (sequence_parallel.h, for divided rows).
//
// Thread safety: as Workers.
#pragma once

#include "model/attention.h"
#include "model/feed_forward.h"
#include "model/pass.h"
#include "model/piece_arrays.h"
#include "model/split_sizes.h"
#include "model/units.h"
#include "model/vocabulary_embedding.h"
#include "model/vocabulary_head.h"

namespace loom::model {

template <typename T>
struct SplitBlockSaved;

/// Pieces of a block; those of embedding and head are told in their files.
constexpr int kBlockPieces = 5;
constexpr int kBlockBackwardPieces = 8;

template <typename T>
class SplitCompute {
 public:
  using A = acc_t<T>;

  SplitCompute(const ModelSpec& spec, const Share& share);

  const VocabularyEmbedding<T>& embedding() const { return embedding_; }
  const VocabularyHead<T>& head() const { return head_; }

  void block_forward(const Pass& pass, const Unit& unit, int piece, const PieceArrays<T>& a) const;
  /// What piece 1 leaves in `workspace`, piece 2 reads; 5 and 6 are the same. Pieces 2 and 6 want the
  /// `normed` of their sublayer, 1 and 4 the `incoming` of piece 0, 5 and 6 that of piece 3.
  void block_backward(const Pass& pass, const Unit& unit, int piece, const PieceArrays<T>& a) const;

 private:
  /// d += that of the norm's input, from dy; or d becomes it, and then dy may be d.
  void norm_backward(const Pass& pass, const Unit& unit, Part weight, const PieceArrays<T>& a, const T* x,
                     const A* mean, const A* rstd, const T* dy, bool add) const;
  void add(const Pass& pass, const T* a, T* sum) const;
  void add_to_residual(const Pass& pass, const Unit& unit, Site site, Part bias, const PieceArrays<T>& a,
                       const T* residual, T* y) const;
  void through_dropout(const Pass& pass, const Unit& unit, Site site, const T* d, T* incoming) const;
  void rows_forward(const Pass& own, const Unit& unit, int piece, const PieceArrays<T>& a,
                    const SplitBlockSaved<T>& s) const;
  void rows_backward(const Pass& own, const Unit& unit, int piece, const PieceArrays<T>& a,
                     const SplitBlockSaved<T>& s) const;

  ModelSpec spec_;
  Share share_;
  VocabularyEmbedding<T> embedding_;
  VocabularyHead<T> head_;
  Attention<T> attention_;
  FeedForward<T> feed_forward_;
  const ops::Operators<T>& op_;
};

extern template class SplitCompute<float>;
extern template class SplitCompute<bf16>;
extern template class SplitCompute<fp16>;
extern template class SplitCompute<double>;

}  // namespace loom::model
