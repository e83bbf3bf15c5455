// BinomialTree: the tree of the algorithms called binomial, over consecutive ranks, as one of them sees it.
//
//     place (rank - root)    0 ─┬─ 1             place v's parent is v less its lowest bit;
//                               ├─ 2 ── 3        its subtree is [v, v + lowest bit), as far as ranks go
//                               └─ 4 ─┬─ 5
//                                     └─ 6 ── 7
//
// Private to plan/.
#pragma once

#include <algorithm>
#include <bit>
#include <vector>

#include "plan/schedule.h"

namespace weft::plan {

class BinomialTree {
 public:
  /// Of the `ranks` ranks from `root` on, among `ranks_in_all`; the first follows the last. Seen from
  /// `place`.
  BinomialTree(int root, int ranks, int ranks_in_all, int place)
      : root_(root), ranks_(ranks), ranks_in_all_(ranks_in_all), place_(place) {}

  int place() const { return place_; }
  int rank_of(int p) const { return (root_ + p) % ranks_in_all_; }
  static int lowest_bit(int p) { return p & -p; }
  int parent() const { return place_ - lowest_bit(place_); }
  int size_of(int p) const { return p == 0 ? ranks_ : std::min(lowest_bit(p), ranks_ - p); }
  int size() const { return size_of(place_); }
  bool is_root() const { return place_ == 0; }
  bool is_leaf() const { return size() == 1; }
  /// Which of its parent's children a place is.
  static int number_of(int p) { return std::countr_zero(static_cast<unsigned>(p)); }

  /// Places, smallest subtree first.
  std::vector<int> children() const {
    std::vector<int> found;
    for (int bit = 1; bit < size(); bit *= 2) found.push_back(place_ + bit);
    return found;
  }
  std::vector<int> children_largest_first() const {
    const std::vector<int> found = children();
    return {found.rbegin(), found.rend()};
  }

 private:
  int root_, ranks_, ranks_in_all_, place_;
};

/// Where children's data goes in scratch: child k's from `first` + k * `each` on.
struct Rooms {
  uint64_t first, each;
  uint64_t of(int child) const { return first + each * static_cast<uint64_t>(child); }
};

/// Waits for what the children have put to their rooms (Phase::ready), adds it to this rank's input, slice by
/// slice in `lane`, and hands each sum over: then(slice, region). A leaf's is its input.
template <typename Then>
void add_children(Builder& b, int lane, const BinomialTree& tree, const Slices& slices, Rooms rooms,
                  Region sum, Then then) {
  const std::vector<int> children = tree.children();
  for (int s = 0; s < slices.count(); ++s) {
    const uint64_t at = slices.begin(s);
    std::vector<Source> sources{{b.input(at)}};
    for (size_t k = 0; k < children.size(); ++k) {
      b.wait(lane, tree.rank_of(children[k]), tag(Phase::ready, s));
      sources.push_back(
          {b.scratch(rooms.of(static_cast<int>(k)) + at), static_cast<uint32_t>(tree.size_of(children[k]))});
    }
    if (!children.empty()) b.reduce(lane, sources, sum + at, slices.bytes(s));
    then(s, children.empty() ? b.input(at) : sum + at);
  }
}

}  // namespace weft::plan
