#include "topology/layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace weft::topology {

Layout::Layout(const std::vector<int>& node_of_rank) {
  std::map<int, int> number_of_label;
  for (int rank = 0; rank < static_cast<int>(node_of_rank.size()); ++rank) {
    auto [it, is_new] = number_of_label.try_emplace(node_of_rank[rank], static_cast<int>(members_.size()));
    if (is_new) members_.emplace_back();
    auto& members = members_[it->second];
    node_of_.push_back(it->second);
    local_index_.push_back(static_cast<int>(members.size()));
    members.push_back(rank);
  }
}

Layout Layout::blocks(int nodes, int ranks_per_node) {
  std::vector<int> node_of(static_cast<size_t>(nodes) * ranks_per_node);
  for (size_t rank = 0; rank < node_of.size(); ++rank)
    node_of[rank] = static_cast<int>(rank) / ranks_per_node;
  return Layout(node_of);
}

std::string Layout::to_string() const {
  std::vector<size_t> sizes;
  for (const auto& members : members_) sizes.push_back(members.size());
  const bool equal = std::adjacent_find(sizes.begin(), sizes.end(), std::not_equal_to<>()) == sizes.end();
  const std::string each = sizes.empty() ? ""
                           : equal       ? fmt::format("{} each", sizes[0])
                                         : fmt::format("{}", fmt::join(sizes, "+"));
  return fmt::format("{} rank{} on {} node{} ({})", ranks(), ranks() == 1 ? "" : "s", nodes(),
                     nodes() == 1 ? "" : "s", each);
}

}  // namespace weft::topology
