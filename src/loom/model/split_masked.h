// The head of a masked language model, where tensor ranks share its work and few rows have targets. Those
// rows are put together first, and the pieces of a head (split_compute.h) see them alone. Every rank knows
// all targets, so all pick the same rows. Where rows are divided, each has a part of those picked: the ranks
// add them up, which leaves each with as many as the others, and gather what goes back.
//
// Thread safety: as Workers.
#pragma once

#include "model/sequence_parallel.h"
#include "model/split_compute.h"

namespace loom::model {

/// Pieces of a head: picking rows comes first, giving their derivatives back last.
constexpr int picked_head_pieces(int pairs) { return head_pieces(pairs) + 2; }

/// Bytes of a head's buffers, for elements of T; those of `rows` are [R, C].
template <typename T>
SplitSizes picked_sizes(const ModelSpec& spec, const Share& share, int64_t targets);

template <typename T>
class SplitMasked {
 public:
  using A = acc_t<T>;

  /// `targets` of a sequence, at most.
  SplitMasked(const ModelSpec& spec, const Share& share, const SplitCompute<T>& split, int64_t targets)
      : spec_(spec), share_(share), split_(split), targets_(targets) {}

  /// 0: own rows x -> sum[R, C], those that are picked, zeros where another rank has them or nobody does;
  /// the ranks add these up. From 1 on, those of VocabularyHead::step() on R rows, whose last leaves its
  /// derivative in `incoming`. The last: incoming[R, C] -> d of own rows. All want the same `saved`.
  void head(const Pass& pass, const Unit& unit, int piece, A scale, const PieceArrays<T>& a) const;
  /// The same pieces, but the last two, without gradients.
  void head_evaluate(const Pass& pass, const Unit& unit, int piece, const PieceArrays<T>& a) const;
  /// As VocabularyHead::logits(), of a.only_row, from piece 2 on.
  void head_logits(const Pass& pass, const Unit& unit, const PieceArrays<T>& a, A* logits) const;

 private:
  int64_t places(const Pass& pass) const { return picked_rows(share_, pass.batch * targets_); }
  Pass pass_of_picked(const Pass& pass) const;
  PieceArrays<T> arrays_of_picked(const Pass& pass, const PieceArrays<T>& a) const;
  template <typename F>
  void for_own(const Pass& pass, const PieceArrays<T>& a, F&& visit) const;
  void pick(const Pass& pass, const PieceArrays<T>& a) const;
  void give_back(const Pass& pass, const PieceArrays<T>& a) const;
  void return_losses(const Pass& pass, const PieceArrays<T>& a) const;

  const ModelSpec& spec_;
  const Share& share_;
  const SplitCompute<T>& split_;
  int64_t targets_;
};

extern template class SplitMasked<float>;
extern template class SplitMasked<bf16>;
extern template class SplitMasked<fp16>;
extern template class SplitMasked<double>;

}  // namespace loom::model
