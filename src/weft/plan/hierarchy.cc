// hierarchy: who talks to whom.
#include "plan/hierarchy.h"

namespace weft::plan {

namespace {

/// The more nodes there are, the more transfers overlap anyway, and the fewer slices each needs.
int most_slices(const topology::Layout& layout) {
  return std::clamp(1024 / std::max(1, layout.nodes() - 1), 4, Slices::kMost);
}

}  // namespace

Cut::Cut(const Task& task, Blocks b)
    : blocks(b),
      at_once(most_at_once(task, b.largest(), task.layout.nodes())),
      slices(b.largest(), task, most_slices(task.layout)) {
  if (!all_at_once()) slices = slices.halved(task);
}

std::vector<int> node_mates(const Task& task) {
  const auto& members = task.layout.on_node(task.layout.node_of(task.rank));
  const int size = static_cast<int>(members.size()), own = task.layout.local_index(task.rank);
  std::vector<int> mates;
  for (int k = 1; k < size; ++k) mates.push_back(members[(own + k) % size]);
  return mates;
}

std::vector<int> rail_peers(const Task& task) {
  const auto& layout = task.layout;
  std::vector<int> peers;
  for (int k = 1; k < layout.nodes(); ++k) {
    const int node = (layout.node_of(task.rank) + k) % layout.nodes();
    peers.push_back(layout.rail_peer(node, layout.local_index(task.rank)));
  }
  return peers;
}

std::vector<int> origins(const Task& task, int of) {
  const auto& layout = task.layout;
  const int own_node = layout.node_of(of), own_size = static_cast<int>(layout.on_node(own_node).size());
  std::vector<int> found;
  for (int k = 1; k < layout.nodes(); ++k) {
    const auto& members = layout.on_node((own_node + layout.nodes() - k) % layout.nodes());
    for (size_t i = layout.local_index(of); i < members.size(); i += own_size) found.push_back(members[i]);
  }
  return found;
}

}  // namespace weft::plan
