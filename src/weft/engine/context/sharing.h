// Sharing: which ranks of a machine can really share memory. An equal name of the host does not suffice. The
// kernel lets a process open another's memory only if it may inspect that process. It may not inspect one of
// another user or user namespace, or one that may not be dumped; filters of system calls forbid it, too. So
// every rank tries and tells the others what it has found, and all compute the same nodes.
//
// Thread safety: values.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "topology/layout.h"

namespace weft::engine {

/// One rank's report of the others of its node, by their position there. Travels as plain bytes.
class ReachReport {
 public:
  explicit ReachReport(size_t ranks) : bits_(2 * bytes_for(ranks)) {}
  ReachReport(std::span<const std::byte> bytes) : bits_(bytes.begin(), bytes.end()) {}
  std::span<const std::byte> bytes() const { return bits_; }

  /// The rank at this position shares memory with this one, and its plain memory can be read, too, or not.
  void add(size_t position, bool single_copy);
  bool reaches(size_t position) const { return bit(position); }
  bool reads(size_t position) const { return bit(4 * bits_.size() + position); }

 private:
  static size_t bytes_for(size_t ranks) { return (ranks + 7) / 8; }
  bool bit(size_t at) const { return (bits_[at / 8] & (std::byte{1} << (at % 8))) != std::byte{0}; }
  std::vector<std::byte> bits_;  // whom it reaches, then whom it reads
};

/// Ranks of the largest node.
size_t largest_node(const topology::Layout& layout);
/// Splits nodes so that on each everybody reaches everybody. Ranks join the first part of their node that
/// they suit, in rank order. `reports` are all ranks', for the nodes of `layout`.
topology::Layout split_by_reach(const topology::Layout& layout, const std::vector<ReachReport>& reports);
/// Whether a rank is the first of its node that does not reach all others: it says so for them.
bool is_first_to_lack(const topology::Layout& layout, int rank, const std::vector<ReachReport>& reports);
/// Whether on the node of `rank` in `layout` everybody reads everybody. `reports` are of the nodes of
/// `before`.
bool all_read(const topology::Layout& layout, int rank, const topology::Layout& before,
              const std::vector<ReachReport>& reports);

}  // namespace weft::engine
