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
// That is so for pre-norm blocks; what others do on rows, in the same pieces, is in split_block.cc. Gradients
// of matrices are pieces of their own because nobody waits for them: while a rank computes piece 2 or 6, the
// `sum` of the one before travels; during 4 the `incoming` of 3 is gathered. Piece 4 may come before 3, too.
//
// `normed` and `incoming` reach a sublayer with all rows: gathered, or computed on every rank. `sum` leaves
// it as a summand and comes back as the sum over the ranks (Korthikanti et al., "Reducing Activation
// Recomputation in Large Transformer Models", 2022, for divided rows).
//
// Thread safety: as Workers.
#pragma once

#include "model/attention.h"
#include "model/feed_forward.h"
#include "model/head_layers.h"
#include "model/pass.h"
#include "model/units.h"

namespace loom::model {

/// The arrays of a piece; null where it has none. `own` marks those with this rank's rows only, where rows
/// are divided.
template <typename T>
struct PieceArrays {
  using A = acc_t<T>;
  const T *parameters = nullptr, *tied_parameters = nullptr;
  A *gradient = nullptr, *tied_gradient = nullptr;
  bool add_gradient = false;       // of the embedding: to a tied head's, or earlier microbatches'
  const T* x = nullptr;            // own [M, C]
  T* y = nullptr;                  // own [M, C]
  T* d = nullptr;                  // own [M, C]
  std::byte* saved = nullptr;      // of a block, or of a head from its first piece to its last
  T* normed = nullptr;             // [M, C]; own for pieces on rows
  T* incoming = nullptr;           // [M, C]; own for pieces on rows
  T* sum = nullptr;                // [M, C]; own for pieces on rows
  A* logits = nullptr;             // [head_rows(), V / T]
  A* numbers = nullptr;            // [head_rows(), 3] of this rank
  const A* all_numbers = nullptr;  // [T, head_rows(), 3]
  const int32_t *token = nullptr, *target = nullptr;
  double* loss = nullptr;  // [M]
  int64_t only_row = -1;   // of M, where only its logits are asked for: SplitMasked
  std::byte* workspace = nullptr;
};

template <typename T>
struct SplitBlockSaved;

/// Bytes of a unit's buffers when its work is divided, for elements of T. Those of `rows` are [M, C], those
/// of `own` the same for this rank's rows.
struct SplitSizes {
  int64_t rows = 0, own = 0;
  int64_t block_saved = 0, head_saved = 0;
  int64_t logits = 0;     // of a pair of the head's pieces
  int64_t numbers = 0;    // of one row and rank
  int64_t workspace = 0;  // enough for any piece, of which an embedding's and a block's need so much:
  int64_t embedding_workspace = 0, block_workspace = 0;
};

/// Pieces of every unit: a block's, an embedding's, and a head's for so many pairs.
constexpr int kBlockPieces = 5;
constexpr int kBlockBackwardPieces = 8;
constexpr int kEmbeddingPieces = 2;
constexpr int head_pieces(int pairs) { return 2 * pairs + 2; }

/// Rows whose logits exist at a time: as much memory as without a division.
int64_t head_rows(const Share& share, int64_t rows);
/// Pairs of pieces that the head needs for all rows.
int head_pairs(const Share& share, int64_t rows);

template <typename T>
SplitSizes split_sizes(const ModelSpec& spec, const Share& share, int64_t batch, int64_t tokens);

template <typename T>
class SplitCompute {
 public:
  using A = acc_t<T>;

  SplitCompute(const ModelSpec& spec, const Share& share);

  /// 0: this rank's tokens -> sum; 1: sum, positions, norm and dropout -> y. What a norm read stays in sum.
  void embedding_forward(const Pass& pass, int piece, const PieceArrays<T>& a) const;
  /// 0: d through dropout and norm (which reads sum), in place, and the positions' gradient; 1: incoming ->
  /// the tokens' gradient.
  void embedding_backward(const Pass& pass, int piece, const PieceArrays<T>& a) const;

  void block_forward(const Pass& pass, const Unit& unit, int piece, const PieceArrays<T>& a) const;
  /// What piece 1 leaves in `workspace`, piece 2 reads; 5 and 6 are the same. Pieces 2 and 6 want the
  /// `normed` of their sublayer, 1 and 4 the `incoming` of piece 0, 5 and 6 that of piece 3.
  void block_backward(const Pass& pass, const Unit& unit, int piece, const PieceArrays<T>& a) const;

  /// 0: norm -> normed; then pairs of pieces for head_rows() rows each: normed -> logits and numbers; all
  /// ranks' numbers -> loss, sum and the matrix's gradient. The last piece: sum -> d.
  void head(const Pass& pass, const Unit& unit, int piece, A scale, const PieceArrays<T>& a) const;
  /// The same pieces, but the last, without gradients.
  void head_evaluate(const Pass& pass, const Unit& unit, int piece, const PieceArrays<T>& a) const;
  /// This rank's columns of the logits of row `row`, from the norm of all rows.
  void head_logits(const Pass& pass, const Unit& unit, const PieceArrays<T>& a, int64_t row, A* logits) const;

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
  void add_places(const Pass& pass, const Pass& own, const T* parameters, const T* sum, T* y) const;
  void finish_rows(const Pass& pass, int64_t first, A scale, const PieceArrays<T>& a) const;

  ModelSpec spec_;
  Share share_;
  std::vector<Unit> units_;
  Attention<T> attention_;
  FeedForward<T> feed_forward_;
  HeadLayers<T> head_layers_;
  const ops::Operators<T>& op_;
};

extern template class SplitCompute<float>;
extern template class SplitCompute<bf16>;
extern template class SplitCompute<fp16>;
extern template class SplitCompute<double>;

}  // namespace loom::model
