// double_tree: AllReduce of all but the longest messages over many nodes. Each half of the message goes up a
// binary tree of nodes and down again. A node that has two children in one tree is a leaf in the other. So
// every node sends and receives each byte about twice, as in a ring, but after log2 as many hops. (P.
// Sanders, J. Speck, J. Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
// 2009.) Inside a node the ranks form a chain that ends at the node's place in the tree.
//
//     nodes     0 ── 4 ─┬─ 2 ─┬─ 1        tree 0 of 8 nodes: odd ones are leaves
//                       │     └─ 3
//                       └─ 6 ─┬─ 5
//                             └─ 7        tree 1: the same, counted from the other end
//
//     a rank    child ── slice ──→ scratch     sum of own input and children's, slice by slice, to the parent
//               parent ── slice ──→ output     the finished slice, to the children
//
// A half has two lanes, up and down. Scratch holds a half for each child: of the message at most three times.
#include "plan/transfer.h"

namespace weft::plan {
namespace {

constexpr char kName[] = "double_tree";
constexpr int kHalves = 2;

Status fits(const Request& request, const topology::Layout& layout, const Limits&) {
  WEFT_TRY(fits_any(request, layout));
  if (layout.nodes() < 2) {
    return fail(Code::unsupported, "double_tree is for several nodes, not {}; direct serves one",
                layout.to_string());
  }
  return refuse_strict(request, kName);
}

/// The parent of `place` in the binary tree over [0, count) in which place 0 is the root and odd ones are
/// leaves; -1: none.
int parent_of(int place, int count) {
  if (place == 0) return -1;
  const int bit = place & -place, below = place - bit;
  const int up = below | bit * 2;
  return up < count ? up : below;
}

/// The tree of one half, as a rank sees it: its parent, and its children in ascending order of places.
class Tree {
 public:
  Tree(const Task& task, int half) : task_(task), half_(half) {
    const auto& layout = task.layout;
    const int node = layout.node_of(task.rank), index = chain_index(task.rank);
    const auto& members = layout.on_node(node);
    const int size = static_cast<int>(members.size());
    if (index > 0) parent = in_chain(node, index - 1);
    if (index + 1 < size) adopt(in_chain(node, index + 1), size - index - 1);
    if (index > 0) return;
    const int above = parent_of(place_of(node), layout.nodes());
    if (above >= 0) parent = in_chain(node_at(above), 0);
    for (int place = 1; place < layout.nodes(); ++place) {
      if (parent_of(place, layout.nodes()) == place_of(node))
        adopt(in_chain(node_at(place), 0), ranks_below(place));
    }
  }

  /// Which of its parent's children this rank is.
  int number_at_parent() const {
    const Task theirs{task_.request, task_.layout, task_.limits, parent};
    const std::vector<int> siblings = Tree(theirs, half_).children;
    return static_cast<int>(std::find(siblings.begin(), siblings.end(), task_.rank) - siblings.begin());
  }

  int parent = -1;
  std::vector<int> children;
  std::vector<uint32_t> subtrees;  // how many ranks each child's subtree has, the child among them

 private:
  void adopt(int child, int ranks) {
    children.push_back(child);
    subtrees.push_back(static_cast<uint32_t>(ranks));
  }
  /// The ranks of the nodes in the subtree of a place other than 0. It reaches to either side as far as the
  /// place's lowest bit says.
  int ranks_below(int place) const {
    const int bit = place & -place, end = std::min(place + bit, task_.layout.nodes());
    int ranks = 0;
    for (int p = place - bit + 1; p < end; ++p)
      ranks += static_cast<int>(task_.layout.on_node(node_at(p)).size());
    return ranks;
  }
  /// With an even number of nodes the second tree counts from the other end, with an odd one from the next
  /// node: either way leaves and others change places.
  int place_of(int node) const {
    const int nodes = task_.layout.nodes();
    if (half_ == 0) return node;
    return nodes % 2 == 0 ? nodes - 1 - node : (node + 1) % nodes;
  }
  int node_at(int place) const {
    const int nodes = task_.layout.nodes();
    if (half_ == 0) return place;
    return nodes % 2 == 0 ? nodes - 1 - place : (place + nodes - 1) % nodes;
  }
  /// The chains of the two halves end at different ranks of the node, if it has several.
  int first_of(int node) const {
    return half_ * static_cast<int>(task_.layout.on_node(node).size()) / kHalves;
  }
  int in_chain(int node, int index) const { return task_.layout.rail_peer(node, first_of(node) + index); }
  int chain_index(int rank) const {
    const int node = task_.layout.node_of(rank);
    const int size = static_cast<int>(task_.layout.on_node(node).size());
    return (task_.layout.local_index(rank) - first_of(node) + size) % size;
  }

  const Task& task_;
  const int half_;
};

/// Where in a rank's scratch the places for the children of a half begin.
uint64_t places_of(const Task& task, int rank, int half, uint64_t room) {
  if (half == 0) return 0;
  const Task theirs{task.request, task.layout, task.limits, rank};
  return room * Tree(theirs, 0).children.size();
}

/// One half of the message, from `begin` on.
void half_of(const Task& task, Builder& b, int half, uint64_t begin, uint64_t bytes, uint64_t room) {
  const Tree tree(task, half);
  const Slices slices(bytes, task);
  const bool root = tree.parent < 0, leaf = tree.children.empty();
  const int up = b.new_lane(), down = b.new_lane();
  const auto half_tag = [&](Phase phase, int s) {
    return tag(phase, static_cast<uint64_t>(half * Slices::kMost + s));
  };
  const auto eager = [&](int peer) { return task.eager(peer, slices.each()); };
  for (int child : tree.children) {
    if (!eager(child)) b.signal(up, child, half_tag(Phase::open_scratch, 0), Space::scratch);
  }
  if (!root && !eager(tree.parent)) {
    b.signal(up, tree.parent, half_tag(Phase::open, 0), Space::output);
    b.wait(up, tree.parent, half_tag(Phase::open_scratch, 0), Space::scratch);
  }
  const uint64_t places = places_of(task, task.rank, half, room);
  const uint64_t at_parent =
      root ? 0
           : places_of(task, tree.parent, half, room) + room * static_cast<uint64_t>(tree.number_at_parent());
  std::vector<StepId> finished(static_cast<size_t>(slices.count()), kNoStep);
  for (int s = 0; s < slices.count(); ++s) {
    const uint64_t at = slices.begin(s);
    const Region own = b.input(begin + at);
    Region sum = own;
    std::vector<Source> sources{{own}};
    for (size_t k = 0; k < tree.children.size(); ++k) {
      b.wait(up, tree.children[k], half_tag(Phase::ready, s));
      sources.push_back({b.scratch(places + room * k + at), tree.subtrees[k]});
    }
    if (!leaf) {
      sum = root ? b.output(begin + at) : sources[1].region;
      finished[s] = b.reduce(up, sources, sum, slices.bytes(s));
    }
    if (root) continue;
    b.put(up, tree.parent, sum, {tree.parent, Space::scratch, at_parent + at}, slices.bytes(s),
          half_tag(Phase::ready, s));
  }
  for (int child : tree.children) {
    if (!eager(child)) b.wait(down, child, half_tag(Phase::open, 0), Space::output);
  }
  for (int s = 0; s < slices.count(); ++s) {
    const uint64_t at = begin + slices.begin(s);
    if (!root) b.wait(down, tree.parent, half_tag(Phase::data, s));
    for (int child : tree.children) {
      // Puts of a lane start in order: what the first waits for, all have waited for.
      const bool waits = root && child == tree.children.front();
      b.put(down, child, b.output(at), {child, Space::output, at}, slices.bytes(s), half_tag(Phase::data, s),
            {&finished[s], waits ? size_t{1} : 0});
    }
  }
}

void all_reduce(const Task& task, Builder& b) {
  const Blocks halves = Blocks::divide(task.bytes(), task.request.element_bytes, kHalves);
  const uint64_t room = round_up(halves.largest(), 64);
  for (int half = 0; half < kHalves; ++half) {
    if (halves.bytes(half) > 0) b.reserve(room * Tree(task, half).children.size());
  }
  for (int half = 0; half < kHalves; ++half) {
    if (halves.bytes(half) > 0) half_of(task, b, half, halves.begin(half), halves.bytes(half), room);
  }
}

constexpr Algorithm kTable[] = {
    {kName, Collective::all_reduce, "each half goes up one of two trees of nodes, and down again", fits,
     make_with<kName, all_reduce>},
};

}  // namespace

std::span<const Algorithm> double_tree_algorithms() { return kTable; }

}  // namespace weft::plan
