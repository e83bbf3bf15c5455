// Fold: how algorithms that want a power of two of ranks serve any number. The largest power of two of them
// take part; each of the first few also speaks for a ward, the rank after it:
//
//     rank           0 1   2 3   4   5        6 ranks: 4 participants, the first two with a ward
//     participant     0     1    2   3
//
// The ranks that consecutive participants speak for are consecutive, unless nodes have several ranks each and
// all numbers are powers of two. Then node-mates differ in the highest bits:
//
//     node           0 0   1 1   2 2   3 3
//     rank           0 1   2 3   4 5   6 7
//     participant    0 4   1 5   2 6   3 7
//
// so that halving begins, and doubling ends, inside nodes, and each rank moves only its part of its node's
// data between them. Private to plan/.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "plan/plan.h"

namespace weft::plan {

class Fold {
 public:
  /// In the order of ranks.
  explicit Fold(int ranks)
      : participants_(static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)))),
        wards_(ranks - participants_) {}

  /// The layout must outlive it.
  explicit Fold(const topology::Layout& layout) : Fold(layout.ranks()) {
    if (wards_ == 0 && are_alike(layout)) layout_ = &layout;
    for (int p = 0; layout_ != nullptr && p < participants_; ++p)
      if (rank_of(p) != p) return;
    layout_ = nullptr;
  }

  int participants() const { return participants_; }
  int wards() const { return wards_; }
  int rounds() const { return std::countr_zero(static_cast<unsigned>(participants_)); }
  bool in_order() const { return layout_ == nullptr; }
  bool is_ward(int rank) const { return rank < 2 * wards_ && rank % 2 == 1; }
  bool has_ward(int rank) const { return rank < 2 * wards_ && rank % 2 == 0; }
  int participant(int rank) const {
    if (!in_order()) return layout_->local_index(rank) * layout_->nodes() + layout_->node_of(rank);
    return rank < 2 * wards_ ? rank / 2 : rank - wards_;
  }
  /// The rank that is this participant, the first that it speaks for. In order, `participants` gives the
  /// number of ranks.
  int rank_of(int participant) const {
    if (!in_order()) return layout_->on_node(participant % layout_->nodes())[participant / layout_->nodes()];
    return participant < wards_ ? 2 * participant : participant + wards_;
  }

  /// For how many ranks these participants speak: `first`, and so many in all, each `stride` after the one
  /// before.
  uint32_t ranks_of(int first, int stride, int count) const {
    int ranks = count;
    for (int p = first; count > 0 && p < wards_; p += stride, --count) ++ranks;
    return static_cast<uint32_t>(ranks);
  }

  /// Where this participant's blocks begin, counted in blocks, in the order of participants. `participants`
  /// gives the number of ranks.
  int place(int participant) const { return in_order() ? rank_of(participant) : participant; }

 private:
  static bool are_alike(const topology::Layout& layout) {
    for (int node = 1; node < layout.nodes(); ++node)
      if (layout.on_node(node).size() != layout.on_node(0).size()) return false;
    return layout.nodes() > 1 && layout.ranks() > layout.nodes();
  }

  int participants_, wards_;
  const topology::Layout* layout_ = nullptr;  // null: in order
};

/// The Fold for `all_bytes` of data in the order of ranks, which a copy for each rank brings into the order
/// of participants, or back. The copies are worth their time if transfers are NIC-bound, if the data is long
/// enough, and if a block takes an interface longer than a step takes a CPU. Engines copy device memory,
/// which takes microseconds for each copy.
inline Fold fold_of_blocks(const topology::Layout& layout, const Limits& limits, uint64_t all_bytes) {
  constexpr uint64_t kBriefData = 4 << 10, kBriefBlock = 256;
  const uint64_t least = std::max(kBriefData, kBriefBlock * static_cast<uint64_t>(layout.ranks()));
  return limits.nic_bound && all_bytes >= least ? Fold(layout) : Fold(layout.ranks());
}

}  // namespace weft::plan
