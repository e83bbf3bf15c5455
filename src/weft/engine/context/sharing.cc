#include "engine/context/sharing.h"

#include <algorithm>

namespace weft::engine {

void ReachReport::add(size_t position, bool single_copy) {
  const auto set = [this](size_t at) { bits_[at / 8] |= std::byte{1} << (at % 8); };
  set(position);
  if (single_copy) set(4 * bits_.size() + position);
}

size_t largest_node(const topology::Layout& layout) {
  size_t most = 0;
  for (int node = 0; node < layout.nodes(); ++node) most = std::max(most, layout.on_node(node).size());
  return most;
}

topology::Layout split_by_reach(const topology::Layout& layout, const std::vector<ReachReport>& reports) {
  const auto reaches = [&](int from, int to) {
    return reports[static_cast<size_t>(from)].reaches(static_cast<size_t>(layout.local_index(to)));
  };
  std::vector<int> labels(static_cast<size_t>(layout.ranks()));
  int parts = 0;
  for (int node = 0; node < layout.nodes(); ++node) {
    std::vector<std::vector<int>> groups;
    for (const int rank : layout.on_node(node)) {
      auto group = std::ranges::find_if(groups, [&](const std::vector<int>& members) {
        return std::ranges::all_of(members,
                                   [&](int other) { return reaches(rank, other) && reaches(other, rank); });
      });
      if (group == groups.end()) group = groups.insert(group, std::vector<int>());
      group->push_back(rank);
      labels[static_cast<size_t>(rank)] = parts + static_cast<int>(group - groups.begin());
    }
    parts += static_cast<int>(groups.size());
  }
  return topology::Layout(labels);
}

bool is_first_to_lack(const topology::Layout& layout, int rank, const std::vector<ReachReport>& reports) {
  const std::vector<int>& members = layout.on_node(layout.node_of(rank));
  const auto first = std::ranges::find_if(members, [&](int from) {
    return !std::ranges::all_of(members, [&](int to) {
      return from == to ||
             reports[static_cast<size_t>(from)].reaches(static_cast<size_t>(layout.local_index(to)));
    });
  });
  return first != members.end() && *first == rank;
}

bool all_read(const topology::Layout& layout, int rank, const topology::Layout& before,
              const std::vector<ReachReport>& reports) {
  const std::vector<int>& members = layout.on_node(layout.node_of(rank));
  return std::ranges::all_of(members, [&](int from) {
    return std::ranges::all_of(members, [&](int to) {
      return from == to ||
             reports[static_cast<size_t>(from)].reads(static_cast<size_t>(before.local_index(to)));
    });
  });
}

}  // namespace weft::engine
