// Occupancy finds the lowest place in a memory that is free for as long as a buffer lives. It is a segment
// tree over instructions. A node keeps the bytes that are taken all through its time, and those that are
// taken at any time of it, as ranges. Buffers that lie side by side are one range. Buffers that blocks save
// for backward lie side by side, so a node has few ranges however many layers there are.
//
// Thread safety: one thread.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "program/order.h"

namespace loom::program {

/// Bytes, as ranges [begin, end) that ascend and do not touch.
class ByteRanges {
 public:
  void add(int64_t begin, int64_t end) {
    // The first that ends at `begin` or later, and the first that begins behind `end`.
    const auto first = std::partition_point(ranges_.begin(), ranges_.end(),
                                            [&](const auto& range) { return range.second < begin; });
    const auto last =
        std::partition_point(first, ranges_.end(), [&](const auto& range) { return range.first <= end; });
    if (first == last) {
      ranges_.insert(first, {begin, end});
      return;
    }
    first->first = std::min(first->first, begin);
    first->second = std::max(std::prev(last)->second, end);
    ranges_.erase(first + 1, last);
  }
  /// The first byte from `at` on behind which so many are free.
  int64_t free_from(int64_t at, int64_t bytes) const {
    auto range = std::partition_point(ranges_.begin(), ranges_.end(),
                                      [&](const auto& one) { return one.second <= at; });
    for (; range != ranges_.end() && range->first < at + bytes; ++range) at = range->second;
    return at;
  }
  bool empty() const { return ranges_.empty(); }

 private:
  std::vector<std::pair<int64_t, int64_t>> ranges_;
};

class Occupancy {
 public:
  explicit Occupancy(size_t instructions) {
    while (leaves_ < instructions) leaves_ *= 2;
  }

  /// Bytes [begin, end) are taken through this lifetime. Time: the logarithm of the program's length,
  /// squared.
  void add(const Lifetime& lifetime, int64_t begin, int64_t end) {
    if (begin == end) return;
    if (nodes_.empty()) nodes_.resize(2 * leaves_);
    const auto [from, to] = leaves_of(lifetime);
    note(1, 0, leaves_, from, to, begin, end);
  }

  /// The lowest place from `at` on where so many bytes are free through this lifetime. The same time, if what
  /// is taken makes few ranges.
  int64_t lowest(const Lifetime& lifetime, int64_t bytes, int64_t at) {
    if (nodes_.empty()) return at;
    const auto [from, to] = leaves_of(lifetime);
    seen_.clear();
    collect(1, 0, leaves_, from, to);
    for (int64_t before = -1; before != at;) {
      before = at;
      for (const ByteRanges* ranges : seen_) at = ranges->free_from(at, bytes);
    }
    return at;
  }

 private:
  struct Node {
    ByteRanges always, ever;  // taken all through the node's time; at any time of it
  };

  /// Lifetimes begin with an instruction, at an even time: two overlap where they have a leaf in common.
  static std::pair<size_t, size_t> leaves_of(const Lifetime& lifetime) {
    return {static_cast<size_t>(lifetime.begin / 2), static_cast<size_t>((lifetime.end + 1) / 2)};
  }

  /// The children of node k are 2k and 2k + 1.
  void note(size_t node, size_t first, size_t count, size_t from, size_t to, int64_t begin, int64_t end) {
    if (to <= first || first + count <= from) return;
    nodes_[node].ever.add(begin, end);
    if (from <= first && first + count <= to) return nodes_[node].always.add(begin, end);
    note(2 * node, first, count / 2, from, to, begin, end);
    note(2 * node + 1, first + count / 2, count / 2, from, to, begin, end);
  }

  /// Collects the ranges that may be in the way between two leaves: all of the nodes inside, and those that
  /// are taken all through the nodes above.
  void collect(size_t node, size_t first, size_t count, size_t from, size_t to) {
    if (to <= first || first + count <= from || nodes_[node].ever.empty()) return;
    const bool inside = from <= first && first + count <= to;
    const ByteRanges& ranges = inside ? nodes_[node].ever : nodes_[node].always;
    if (!ranges.empty()) seen_.push_back(&ranges);
    if (inside) return;
    collect(2 * node, first, count / 2, from, to);
    collect(2 * node + 1, first + count / 2, count / 2, from, to);
  }

  size_t leaves_ = 1;
  std::vector<Node> nodes_;
  std::vector<const ByteRanges*> seen_;
};

}  // namespace loom::program
