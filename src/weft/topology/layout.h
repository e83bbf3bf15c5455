// Layout: which rank sits on which node. The one view of the machine that plans are made from; a pure value,
// made by the engine from what ranks told each other, or by hand in tests and simulations.
#pragma once

#include <string>
#include <vector>

namespace weft::topology {

class Layout {
 public:
  /// node_of_rank[r] is any label; nodes are numbered 0, 1, … in the order of their lowest rank.
  explicit Layout(const std::vector<int>& node_of_rank);
  /// `nodes` nodes with `ranks_per_node` ranks each, in blocks: rank r is on node r / ranks_per_node.
  static Layout blocks(int nodes, int ranks_per_node);

  int ranks() const { return static_cast<int>(node_of_.size()); }
  int nodes() const { return static_cast<int>(members_.size()); }
  int node_of(int rank) const { return node_of_[rank]; }
  /// Position of a rank among its node's ranks, 0-based, in rank order.
  int local_index(int rank) const { return local_index_[rank]; }
  /// The ranks of a node, ascending.
  const std::vector<int>& on_node(int node) const { return members_[node]; }
  bool same_node(int a, int b) const { return node_of_[a] == node_of_[b]; }
  /// The rank of `node` that exchanges with local index `index` of other nodes: index modulo the node's size.
  int rail_peer(int node, int index) const {
    return members_[node][index % static_cast<int>(members_[node].size())];
  }
  /// "16 ranks on 4 nodes (4 each)", "7 ranks on 2 nodes (4+3)".
  std::string to_string() const;

  friend bool operator==(const Layout&, const Layout&) = default;

 private:
  std::vector<int> node_of_;
  std::vector<int> local_index_;
  std::vector<std::vector<int>> members_;
};

}  // namespace weft::topology
