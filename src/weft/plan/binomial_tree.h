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

namespace weft::plan {

struct BinomialTree {
  int all;    // ranks there are; behind the last one comes the first
  int root;   // a rank
  int ranks;  // of the tree, from the root on
  int place;  // of whoever sees it

  int rank_of(int p) const { return (root + p) % all; }
  static int lowest_bit(int p) { return p & -p; }
  int parent() const { return place - lowest_bit(place); }
  int size_of(int p) const { return p == 0 ? ranks : std::min(lowest_bit(p), ranks - p); }
  int size() const { return size_of(place); }
  bool is_leaf() const { return size() == 1; }
  /// Which of its parent's children a place is.
  static int number_of(int p) { return std::countr_zero(static_cast<unsigned>(p)); }

  /// Places, smallest subtree first.
  std::vector<int> children() const {
    std::vector<int> found;
    for (int bit = 1; bit < size(); bit *= 2) found.push_back(place + bit);
    return found;
  }
  std::vector<int> children_largest_first() const {
    const std::vector<int> found = children();
    return {found.rbegin(), found.rend()};
  }
};

}  // namespace weft::plan
