// Rows to and from the pieces of a head.
#include "model/split_masked.h"

#include <algorithm>

#include "model/sequence_parallel.h"
#include "model/split_regions.h"

namespace loom::model {
namespace {

/// What a head's first piece leaves for the others.
template <typename T>
struct Picked {
  Divider divider;
  std::byte* head;          // SplitHeadSaved of the picked rows
  int32_t *place, *target;  // [R]: the row of the microbatch, or -1; its target, or -1
  double* loss;             // [R]
  int64_t bytes;

  Picked(const ModelSpec& spec, const Share& share, int64_t rows, std::byte* buffer)
      : divider(buffer),
        head(divider.take<std::byte>(split_sizes<T>(spec, share, rows, 1).head_saved)),
        place(divider.take<int32_t>(rows)),
        target(divider.take<int32_t>(rows)),
        loss(divider.take<double>(rows)),
        bytes(divider.bytes()) {}
};

}  // namespace

template <typename T>
SplitSizes picked_sizes(const ModelSpec& spec, const Share& share, int64_t targets) {
  const int64_t rows = picked_rows(share, targets);
  SplitSizes sizes = split_sizes<T>(spec, share, rows, 1);
  sizes.head_saved = Picked<T>(spec, share, rows, nullptr).bytes;
  return sizes;
}

template SplitSizes picked_sizes<float>(const ModelSpec&, const Share&, int64_t);
template SplitSizes picked_sizes<bf16>(const ModelSpec&, const Share&, int64_t);
template SplitSizes picked_sizes<fp16>(const ModelSpec&, const Share&, int64_t);
template SplitSizes picked_sizes<double>(const ModelSpec&, const Share&, int64_t);

/// Sequences of one token each: a head looks at no other.
template <typename T>
Pass SplitMasked<T>::pass_of_picked(const Pass& pass) const {
  Pass picked = pass;
  picked.batch = places(pass);
  picked.tokens = 1;
  picked.lengths = nullptr;
  return picked;
}

template <typename T>
PieceArrays<T> SplitMasked<T>::arrays_of_picked(const Pass& pass, const PieceArrays<T>& a) const {
  const Picked<T> picked(spec_, share_, places(pass), a.saved);
  PieceArrays<T> of_picked = a;
  of_picked.saved = picked.head;
  of_picked.target = picked.target;
  of_picked.loss = picked.loss;
  of_picked.d = a.incoming;
  return of_picked;
}

/// Calls visit(row among the picked, row among those that this rank has).
template <typename T>
template <typename F>
void SplitMasked<T>::for_own(const Pass& pass, const PieceArrays<T>& a, F&& visit) const {
  const Picked<T> picked(spec_, share_, places(pass), a.saved);
  const int64_t own = own_rows(share_, pass.rows()), first = first_own_row(share_, pass.rows());
  for (int64_t r = 0; r < places(pass); ++r)
    if (const int64_t row = picked.place[r] - first; picked.place[r] >= 0 && row >= 0 && row < own)
      visit(r, row);
}

template <typename T>
void SplitMasked<T>::pick(const Pass& pass, const PieceArrays<T>& a) const {
  const int64_t most = places(pass), width = spec_.width;
  const Picked<T> picked(spec_, share_, most, a.saved);
  int64_t count = 0;
  const auto take = [&](int64_t row) {
    picked.place[count] = static_cast<int32_t>(row);
    picked.target[count++] = a.target[row];
  };
  if (a.only_row >= 0) take(a.only_row);
  for (int64_t row = 0; a.only_row < 0 && row < pass.rows() && count < most; ++row)
    if (a.target[row] >= 0) take(row);
  std::fill_n(picked.place + count, most - count, -1);
  std::fill_n(picked.target + count, most - count, -1);
  std::fill_n(picked.loss, most, 0.0);
  std::fill_n(a.sum, most * width, T{});
  for_own(pass, a, [&](int64_t r, int64_t row) { std::copy_n(a.x + row * width, width, a.sum + r * width); });
}

template <typename T>
void SplitMasked<T>::give_back(const Pass& pass, const PieceArrays<T>& a) const {
  const int64_t width = spec_.width;
  std::fill_n(a.d, own_rows(share_, pass.rows()) * width, T{});
  for_own(pass, a,
          [&](int64_t r, int64_t row) { std::copy_n(a.incoming + r * width, width, a.d + row * width); });
}

/// Losses to the rows whose targets they are of; 0 elsewhere, and where they are still to come.
template <typename T>
void SplitMasked<T>::return_losses(const Pass& pass, const PieceArrays<T>& a) const {
  const Picked<T> picked(spec_, share_, places(pass), a.saved);
  std::fill_n(a.loss, pass.rows(), 0.0);
  for (int64_t r = 0; r < places(pass); ++r)
    if (picked.place[r] >= 0) a.loss[picked.place[r]] = picked.loss[r];
}

template <typename T>
void SplitMasked<T>::head(const Pass& pass, const Unit& unit, int piece, A scale,
                          const PieceArrays<T>& a) const {
  if (piece == 0) return pick(pass, a);
  if (piece + 1 == picked_head_pieces(head_pairs(share_, places(pass)))) return give_back(pass, a);
  split_.head().step(pass_of_picked(pass), unit, piece - 1, scale, arrays_of_picked(pass, a));
  if (piece % 2 == 1 && piece > 1) return_losses(pass, a);
}

template <typename T>
void SplitMasked<T>::head_evaluate(const Pass& pass, const Unit& unit, int piece,
                                   const PieceArrays<T>& a) const {
  if (piece == 0) return pick(pass, a);
  split_.head().evaluate(pass_of_picked(pass), unit, piece - 1, arrays_of_picked(pass, a));
  if (piece % 2 == 1 && piece > 1) return_losses(pass, a);
}

template <typename T>
void SplitMasked<T>::head_logits(const Pass& pass, const Unit& unit, const PieceArrays<T>& a,
                                 A* logits) const {
  split_.head().logits(pass_of_picked(pass), unit, a, 0, logits);
}

template class SplitMasked<float>;
template class SplitMasked<bf16>;
template class SplitMasked<fp16>;
template class SplitMasked<double>;

}  // namespace loom::model
