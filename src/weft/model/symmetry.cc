#include "model/symmetry.h"

#include <algorithm>
#include <bit>
#include <set>

namespace weft::model {
namespace {

using plan::Plan;
using plan::Region;
using plan::Step;
using topology::Layout;

constexpr int kAllOf = 16;  // so many nodes are all looked at
constexpr int kSample = 8;

std::set<int> nodes_to_compare(int nodes) {
  std::set<int> chosen{1, nodes / 2, nodes - 1};
  if (nodes <= kAllOf) {
    for (int node = 1; node < nodes; ++node) chosen.insert(node);
  }
  for (uint32_t k = 1; static_cast<int>(chosen.size()) < std::min(kSample, nodes - 1); ++k) {
    chosen.insert(1 + static_cast<int>((k * 2654435761u) % static_cast<uint32_t>(nodes - 1)));
  }
  return chosen;
}

class Comparison {
 public:
  Comparison(const Plan& original, const Plan& other, Symmetry symmetry, const Layout& layout, int by)
      : original_(original), other_(other), symmetry_(symmetry), layout_(layout), by_(by) {}

  bool holds() const {
    if (original_.steps.size() != other_.steps.size() || original_.lane_begin != other_.lane_begin ||
        original_.lane_steps != other_.lane_steps || original_.dependencies != other_.dependencies) {
      return false;
    }
    for (size_t i = 0; i < original_.steps.size(); ++i) {
      if (!same(original_.steps[i], other_.steps[i])) return false;
    }
    return true;
  }

 private:
  int moved(int rank) const {
    const int per_node = layout_.ranks() / layout_.nodes();
    return moved_node(symmetry_, layout_.nodes(), rank / per_node, by_) * per_node + rank % per_node;
  }

  bool same(const Step& a, const Step& b) const {
    if (a.kind != b.kind || a.lane != b.lane || a.tag != b.tag || a.bytes != b.bytes || a.after != b.after ||
        a.after_count != b.after_count || a.source_count != b.source_count) {
      return false;
    }
    if ((a.peer < 0) != (b.peer < 0) || (a.peer >= 0 && moved(a.peer) != b.peer)) return false;
    // Own sources cost the same wherever they stand among the others.
    const auto is_own = [](const Plan& plan) {
      return [&plan](const Region& region) { return region.rank == plan.rank; };
    };
    const auto ours = original_.sources_of(a), theirs = other_.sources_of(b);
    auto at = theirs.begin();
    for (const Region& region : ours) {
      if (is_own(original_)(region)) continue;
      at = std::find_if_not(at, theirs.end(), is_own(other_));
      if (at == theirs.end() || at->rank != moved(region.rank)) return false;
      ++at;
    }
    return std::all_of(at, theirs.end(), is_own(other_));
  }

  const Plan& original_;
  const Plan& other_;
  const Symmetry symmetry_;
  const Layout& layout_;
  const int by_;
};

}  // namespace

bool in_blocks(const Layout& layout) {
  const int per_node = layout.ranks() / layout.nodes();
  if (per_node * layout.nodes() != layout.ranks()) return false;
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    if (layout.node_of(rank) != rank / per_node) return false;
  }
  return true;
}

bool is_moved(const Plan& original, const Plan& other, Symmetry symmetry, const Layout& layout, int by) {
  return Comparison(original, other, symmetry, layout, by).holds();
}

Symmetry find_symmetry(const plan::Algorithm& algorithm, const plan::Request& request, const Layout& layout,
                       const plan::Limits& limits) {
  const int nodes = layout.nodes();
  if (nodes < 2 || plan::has_root(request.collective) || !in_blocks(layout)) return Symmetry::none;
  const int per_node = layout.ranks() / nodes;
  bool rotation = true, exchange = std::has_single_bit(static_cast<unsigned>(nodes));
  for (int local = 0; local < per_node; ++local) {
    const Plan original = algorithm.make(request, layout, limits, local);
    for (const int node : nodes_to_compare(nodes)) {
      const Plan other = algorithm.make(request, layout, limits, node * per_node + local);
      rotation = rotation && is_moved(original, other, Symmetry::rotation, layout, node);
      exchange = exchange && is_moved(original, other, Symmetry::exchange, layout, node);
      if (!rotation && !exchange) return Symmetry::none;
    }
  }
  return rotation ? Symmetry::rotation : Symmetry::exchange;
}

}  // namespace weft::model
