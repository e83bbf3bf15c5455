// LifetimeIndex: which of many buffers are in use at some time. A segment tree over instructions: a lifetime
// is noted at the few nodes that cover it, so that adding one takes time in proportion to the logarithm of
// the program's length, and asking to that of the length asked about and the number of answers.
//
// Thread safety: one thread.
#pragma once

#include <utility>
#include <vector>

#include "program/order.h"

namespace loom::program {

class LifetimeIndex {
 public:
  explicit LifetimeIndex(size_t instructions) {
    while (leaves_ < instructions) leaves_ *= 2;
    at_.resize(2 * leaves_);
    below_.resize(2 * leaves_);
  }

  void add(BufferId buffer, const Lifetime& lifetime) {
    const auto [begin, end] = leaves_of(lifetime);
    for (size_t first = begin + leaves_, last = end + leaves_; first < last; first /= 2, last /= 2) {
      if (first % 2 == 1) note(first++, buffer);
      if (last % 2 == 1) note(--last, buffer);
    }
  }

  /// Calls found(buffer) for every buffer whose lifetime overlaps this one; for some of them more than once.
  template <typename F>
  void overlapping(const Lifetime& lifetime, F&& found) const {
    const auto [begin, end] = leaves_of(lifetime);
    visit(1, 0, leaves_, begin, end, found);
  }

 private:
  /// Lifetimes begin with an instruction, at an even time: two overlap where they have a leaf in common.
  static std::pair<size_t, size_t> leaves_of(const Lifetime& lifetime) {
    return {static_cast<size_t>(lifetime.begin / 2), static_cast<size_t>((lifetime.end + 1) / 2)};
  }

  void note(size_t node, BufferId buffer) {
    at_[node].push_back(buffer);
    for (; node > 0 && !below_[node]; node /= 2) below_[node] = true;
  }

  template <typename F>
  void visit(size_t node, size_t first, size_t count, size_t begin, size_t end, F& found) const {
    if (!below_[node] || end <= first || first + count <= begin) return;
    for (const BufferId buffer : at_[node]) found(buffer);
    if (count == 1) return;
    visit(2 * node, first, count / 2, begin, end, found);
    visit(2 * node + 1, first + count / 2, count / 2, begin, end, found);
  }

  size_t leaves_ = 1;
  std::vector<std::vector<BufferId>> at_;  // by node; the children of node k are 2k and 2k + 1
  std::vector<bool> below_;                // whether anything is noted at a node or below it
};

}  // namespace loom::program
