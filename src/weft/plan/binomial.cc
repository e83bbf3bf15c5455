// binomial: rooted collectives along a binomial tree (binomial_tree.h), log2(n) hops deep. Wins for short
// messages on many ranks, where a root that talks to everybody would be the bottleneck. For those without a
// root see binomial_all.cc.
//
//   Broadcast, Scatter   down, the largest subtree first
//   Reduce, Gather       up, the smallest subtree first
#include "plan/binomial_tree.h"
#include "plan/transfer.h"

namespace weft::plan {
namespace {

constexpr char kName[] = "binomial";

Status fits(const Request& request, const topology::Layout& layout, const Limits&) {
  WEFT_TRY(fits_any(request, layout));
  return refuse_strict(request, kName);
}

using Tree = BinomialTree;

Tree tree_of(const Task& task) {
  const int ranks = task.ranks();
  return Tree(task.root(), ranks, ranks, (task.rank - task.root() + ranks) % ranks);
}

void broadcast(const Task& task, Builder& b) {
  const Tree tree = tree_of(task);
  const Slices slices(task.bytes(), task);
  const Region source = task.is_root() ? b.input() : b.output();
  std::vector<StepId> received(static_cast<size_t>(slices.count()), kNoStep);
  if (!task.is_root()) {
    const int parent = tree.rank_of(tree.parent());
    offer(task, b, 0, parent, task.bytes(), Space::output);
    for (int s = 0; s < slices.count(); ++s) received[s] = b.wait(0, parent, tag(Phase::data, s));
  }
  for (int place : tree.children_largest_first()) {
    const int child = tree.rank_of(place), lane = lane_beside(task, b, 0, child, task.bytes());
    accept(task, b, lane, child, task.bytes(), Space::output);
    for (int s = 0; s < slices.count(); ++s) {
      const uint64_t at = slices.begin(s);
      b.put(lane, child, source + at, {child, Space::output, at}, slices.bytes(s), tag(Phase::data, s),
            {&received[s], 1});
    }
  }
  if (task.is_root())
    b.copy(lane_beside(task, b, 0, tree.rank_of(1), task.bytes()), b.input(), b.output(), task.bytes());
}

/// Child number k's sum arrives at k places into its parent's scratch; the own sum lies behind all of them.
void reduce(const Task& task, Builder& b) {
  const Tree tree = tree_of(task);
  const Slices slices(task.bytes(), task);
  const std::vector<int> children = tree.children();
  const Rooms rooms{0, round_up(task.bytes(), 64)};
  b.reserve(rooms.of(static_cast<int>(children.size())));
  for (int place : children) {
    offer(task, b, 0, tree.rank_of(place), task.bytes(), Space::scratch, Phase::open_scratch);
  }
  if (task.is_root()) return add_children(b, 0, tree, slices, rooms, b.output(), [](int, Region) {});
  const Region sum = b.scratch(b.reserve(tree.is_leaf() ? 0 : task.bytes()));
  const int parent = tree.rank_of(tree.parent());
  const uint64_t at_parent = rooms.of(Tree::number_of(tree.place()));
  accept(task, b, 0, parent, task.bytes(), Space::scratch, Phase::open_scratch);
  add_children(b, 0, tree, slices, rooms, sum, [&](int s, Region added) {
    b.put(0, parent, added, {parent, Space::scratch, at_parent + slices.begin(s)}, slices.bytes(s),
          tag(Phase::ready, s));
  });
}

/// Gather and scatter move whole subtrees. Inside the tree they lie in order of places, own block first, at
/// the root in order of ranks, where one may wrap round: then it goes in two pieces.
struct Piece {
  uint64_t in_subtree, at_parent, bytes;
  Phase phase;
};

std::vector<Piece> pieces_of(const Task& task, const Tree& tree, int place) {
  const int first = tree.rank_of(place), size = tree.size_of(place);
  const int before_wrap = std::min(size, task.ranks() - first);
  std::vector<Piece> pieces{{0, task.bytes() * first, task.bytes() * before_wrap, Phase::data}};
  if (before_wrap < size) {
    pieces.push_back({task.bytes() * before_wrap, 0, task.bytes() * (size - before_wrap), Phase::ready});
  }
  return pieces;
}

/// Where the subtree of `place` lies at its parent, and in how many pieces.
std::vector<Piece> pieces_at_parent(const Task& task, const Tree& tree, int place) {
  const int parent = place - Tree::lowest_bit(place);
  if (parent == 0) return pieces_of(task, tree, place);
  return {{0, task.bytes() * (place - parent), task.bytes() * tree.size_of(place), Phase::data}};
}

uint64_t subtree_bytes(const Task& task, const Tree& tree, int place) {
  return task.bytes() * tree.size_of(place);
}

void gather(const Task& task, Builder& b) {
  const Tree tree = tree_of(task);
  Region held = task.is_root() ? b.output() : b.input();
  if (!task.is_root() && !tree.is_leaf())
    held = b.scratch(b.reserve(subtree_bytes(task, tree, tree.place())));
  for (int place : tree.children()) {
    offer(task, b, 0, tree.rank_of(place), subtree_bytes(task, tree, place), held.space);
  }
  b.copy(0, b.input(), task.is_root() ? held + task.bytes() * task.rank : held, task.bytes());
  for (int place : tree.children()) {
    for (const Piece& piece : pieces_at_parent(task, tree, place)) {
      receive_slices(b, 0, tree.rank_of(place), Slices(piece.bytes, task), piece.phase);
    }
  }
  if (task.is_root()) return;
  const int parent = tree.rank_of(tree.parent());
  const Space theirs = tree.parent() == 0 ? Space::output : Space::scratch;
  accept(task, b, 0, parent, subtree_bytes(task, tree, tree.place()), theirs);
  for (const Piece& piece : pieces_at_parent(task, tree, tree.place())) {
    put_slices(b, 0, parent, held + piece.in_subtree, {parent, theirs, piece.at_parent},
               Slices(piece.bytes, task), piece.phase);
  }
}

void scatter(const Task& task, Builder& b) {
  const Tree tree = tree_of(task);
  Region held = task.is_root() ? b.input() : b.output();
  if (!task.is_root() && !tree.is_leaf())
    held = b.scratch(b.reserve(subtree_bytes(task, tree, tree.place())));
  if (!task.is_root()) {
    const int parent = tree.rank_of(tree.parent());
    offer(task, b, 0, parent, subtree_bytes(task, tree, tree.place()), held.space);
    for (const Piece& piece : pieces_at_parent(task, tree, tree.place())) {
      receive_slices(b, 0, parent, Slices(piece.bytes, task), piece.phase);
    }
  }
  for (int place : tree.children_largest_first()) {
    const int child = tree.rank_of(place);
    const Space theirs = tree.size_of(place) == 1 ? Space::output : Space::scratch;
    accept(task, b, 0, child, subtree_bytes(task, tree, place), theirs);
    for (const Piece& piece : pieces_at_parent(task, tree, place)) {
      put_slices(b, 0, child, held + piece.at_parent, {child, theirs, piece.in_subtree},
                 Slices(piece.bytes, task), piece.phase);
    }
  }
  b.copy(0, task.is_root() ? held + task.bytes() * task.rank : held, b.output(), task.bytes());
}

constexpr Algorithm kTable[] = {
    {kName, Collective::broadcast, "down a tree of log2(n) levels", fits, make_with<kName, broadcast>},
    {kName, Collective::reduce, "sums up a tree of log2(n) levels", fits, make_with<kName, reduce>},
    {kName, Collective::gather, "whole subtrees up a tree of log2(n) levels", fits, make_with<kName, gather>},
    {kName, Collective::scatter, "whole subtrees down a tree of log2(n) levels", fits,
     make_with<kName, scatter>},
};

}  // namespace

std::span<const Algorithm> binomial_algorithms() { return kTable; }

}  // namespace weft::plan
