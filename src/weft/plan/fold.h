// Fold: how algorithms that want a power of two of ranks serve any number. The largest power of two of them
// take part; each of the first few also speaks for a ward, the rank after it:
//
//     rank           0 1   2 3   4   5        6 ranks: 4 participants, the first two with a ward
//     participant     0     1    2   3
//
// The ranks that consecutive participants speak for are consecutive. Private to plan/.
#pragma once

#include <bit>

namespace weft::plan {

struct Fold {
  int participants, wards;

  explicit Fold(int ranks)
      : participants(static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)))),
        wards(ranks - participants) {}

  int rounds() const { return std::countr_zero(static_cast<unsigned>(participants)); }
  bool is_ward(int rank) const { return rank < 2 * wards && rank % 2 == 1; }
  bool has_ward(int rank) const { return rank < 2 * wards && rank % 2 == 0; }
  int participant(int rank) const { return rank < 2 * wards ? rank / 2 : rank - wards; }
  /// The rank that is this participant, the first that it speaks for; `participants` gives the number of
  /// ranks.
  int rank_of(int participant) const { return participant < wards ? 2 * participant : participant + wards; }
};

}  // namespace weft::plan
