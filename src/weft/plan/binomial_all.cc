// binomial, for collectives without a root: up two binomial trees, an exchange of their roots, and down
// again. It takes 2n - 2 messages in all, and 2·log2(n) - 1 hops. Doubling and bruck take n·log2(n)
// messages, halving as many or twice as many, and all_to_all n·(n-1). It wins for short messages where ranks
// share cores: there a message costs all of them time, and a hop costs little more than its messages.
//
//     1 → 0 ←──→ 4 ← 5       8 ranks, on the way up; the same ways lead down
//     3 → 2 ↗      ↖ 6 ← 7
//
//   AllReduce      sums go up, the finished one down
//   AllGather      subtrees' blocks go up, all blocks down
//   ReduceScatter  sums of all blocks go up, the roots exchange what the other one's tree is to have, and
//                  subtrees' blocks go down
//   AlltoAll       whole inputs go up, the roots exchange what the other one's tree is to have, and what all
//                  ranks send to a subtree goes down
//
// The lower tree has a power of two of ranks, at least half of all, so that its subtrees are nodes where
// these have as many. All steps are in one lane. Sums are added in the order of ranks.
#include <array>

#include "plan/binomial_tree.h"
#include "plan/transfer.h"

namespace weft::plan {
namespace {

constexpr char kName[] = "binomial";
constexpr int kLane = 0;

Status fits(const Request& request, const topology::Layout& layout, const Limits&) {
  WEFT_TRY(fits_any(request, layout));
  if (layout.ranks() < 3)
    return fail(Code::unsupported, "binomial is for three ranks or more, not {}", layout.ranks());
  return refuse_strict(request, kName);
}

/// Every block passes a root, so AlltoAll is for short ones only. The longest message is that of a root's
/// largest child.
Status fits_all_to_all(const Request& request, const topology::Layout& layout, const Limits& limits) {
  WEFT_TRY(fits(request, layout, limits));
  const uint64_t ranks = layout.ranks(), lower = std::bit_ceil(ranks) / 2;
  return refuse_long(request, ranks * (lower / 2), layout, limits, kName);
}

/// One rank's part: its tree, the other one as that one's root sees it, and whom it sends to on the way up.
struct Part {
  explicit Part(const Task& task)
      : ranks(task.ranks()),
        cut(static_cast<int>(std::bit_ceil(static_cast<unsigned>(ranks))) / 2),
        upper(task.rank >= cut),
        tree(half(upper, task.rank)),
        other(half(!upper, upper ? 0 : cut)),
        above(tree.is_root() ? other.rank_of(0) : tree.rank_of(tree.parent())) {}

  const int ranks, cut;  // the upper tree begins there
  const bool upper;
  const BinomialTree tree, other;
  const int above;

  /// A root's last reduction adds its own tree's sum and the other's, in the order of ranks.
  std::array<Source, 2> at_root(Region own, Region theirs) const {
    const Source mine{own, static_cast<uint32_t>(tree.size())};
    const Source others{theirs, static_cast<uint32_t>(other.size())};
    return upper ? std::array{others, mine} : std::array{mine, others};
  }

 private:
  BinomialTree half(bool is_upper, int rank) const {
    return is_upper ? BinomialTree(cut, ranks - cut, ranks, rank - cut) : BinomialTree(0, cut, ranks, rank);
  }
};

/// Scratch: a place for each child's sum, behind them at a root one for the other root's.
void all_reduce(const Task& task, Builder& b) {
  const Part part(task);
  const BinomialTree& tree = part.tree;
  const int above = part.above;
  const Slices slices(task.bytes(), task);
  const Rooms rooms{0, round_up(task.bytes(), 64)};
  const auto behind = [](const BinomialTree& t) { return static_cast<int>(t.children().size()); };
  b.reserve(rooms.of(behind(tree) + (tree.is_root() ? 1 : 0)));
  for (int child : tree.children())
    offer(task, b, kLane, tree.rank_of(child), task.bytes(), Space::scratch, Phase::open_scratch);
  offer(task, b, kLane, above, task.bytes(), tree.is_root() ? Space::scratch : Space::output);
  const Phase opened = tree.is_root() ? Phase::open : Phase::open_scratch;
  accept(task, b, kLane, above, task.bytes(), Space::scratch, opened);
  const uint64_t there =
      rooms.of(tree.is_root() ? behind(part.other) : BinomialTree::number_of(tree.place()));
  std::vector<StepId> sent;
  add_children(b, kLane, tree, slices, rooms, b.output(), [&](int s, Region sum) {
    sent.push_back(b.put(kLane, above, sum, {above, Space::scratch, there + slices.begin(s)}, slices.bytes(s),
                         tag(Phase::ready, s)));
  });
  for (int s = 0; s < slices.count(); ++s) {
    const uint64_t at = slices.begin(s);
    b.wait(kLane, above, tag(tree.is_root() ? Phase::ready : Phase::data, s));
    if (!tree.is_root()) continue;
    const Region own = tree.is_leaf() ? b.input(at) : b.output(at);
    const auto sources = part.at_root(own, b.scratch(rooms.of(behind(tree)) + at));
    b.reduce(kLane, sources, b.output(at), slices.bytes(s), {&sent[s], 1});
  }
  for (int place : tree.children_largest_first()) {
    const int child = tree.rank_of(place);
    accept(task, b, kLane, child, task.bytes(), Space::output);
    put_slices(b, kLane, child, b.output(), {child, Space::output, 0}, slices);
  }
}

/// All blocks go down, a child's own among them: it has sent these before, and one message is quicker than
/// two.
void all_gather(const Task& task, Builder& b) {
  const Part part(task);
  const BinomialTree& tree = part.tree;
  const int above = part.above;
  const uint64_t all = task.bytes() * task.ranks(), own = task.bytes() * task.rank;
  const auto subtree = [&](int place) { return task.bytes() * tree.size_of(place); };
  const uint64_t from_above = tree.is_root() ? task.bytes() * part.other.size() : all;
  for (int place : tree.children()) offer(task, b, kLane, tree.rank_of(place), subtree(place), Space::output);
  offer(task, b, kLane, above, from_above, Space::output);
  b.copy(kLane, b.input(), b.output(own), task.bytes());
  for (int place : tree.children())
    receive_slices(b, kLane, tree.rank_of(place), Slices(subtree(place), task), Phase::ready);
  const uint64_t mine = subtree(tree.place());
  accept(task, b, kLane, above, mine, Space::output);
  put_slices(b, kLane, above, b.output(own), {above, Space::output, own}, Slices(mine, task), Phase::ready);
  receive_slices(b, kLane, above, Slices(from_above, task), tree.is_root() ? Phase::ready : Phase::data);
  for (int place : tree.children_largest_first()) {
    const int child = tree.rank_of(place);
    accept(task, b, kLane, child, all, Space::output);
    put_slices(b, kLane, child, b.output(), {child, Space::output, 0}, Slices(all, task));
  }
}

/// Scratch: what comes from above, unless it lands in the output, as a leaf's does; a place for each child's
/// sums; the own sums.
void reduce_scatter(const Task& task, Builder& b) {
  const Part part(task);
  const BinomialTree& tree = part.tree;
  const int above = part.above;
  const uint64_t all = task.bytes() * task.ranks();
  const auto subtree = [&](int place) { return task.bytes() * tree.size_of(place); };
  const auto rooms_of = [&](int place) { return Rooms{round_up(subtree(place), 64), round_up(all, 64)}; };
  const std::vector<int> children = tree.children();
  const uint64_t mine = subtree(tree.place());
  const bool lands = tree.is_leaf() && !tree.is_root();
  b.reserve(lands ? 0 : rooms_of(tree.place()).of(static_cast<int>(children.size())));
  const Region sum = b.scratch(b.reserve(children.empty() ? 0 : all));
  for (int place : children)
    offer(task, b, kLane, tree.rank_of(place), all, Space::scratch, Phase::open_scratch);
  offer(task, b, kLane, above, mine, lands ? Space::output : Space::scratch);
  const Slices slices(all, task);
  if (!tree.is_root()) accept(task, b, kLane, above, all, Space::scratch, Phase::open_scratch);
  add_children(b, kLane, tree, slices, rooms_of(tree.place()), sum, [&](int s, Region added) {
    if (tree.is_root()) return;
    const uint64_t there = rooms_of(tree.parent()).of(BinomialTree::number_of(tree.place()));
    b.put(kLane, above, added, {above, Space::scratch, there + slices.begin(s)}, slices.bytes(s),
          tag(Phase::ready, s));
  });
  const Region held = b.scratch(0);  // this subtree's blocks, own first
  if (tree.is_root()) {
    const Region added = children.empty() ? b.input() : sum;
    const uint64_t theirs = task.bytes() * part.other.size();
    accept(task, b, kLane, above, theirs, Space::scratch);
    put_slices(b, kLane, above, added + task.bytes() * above, {above, Space::scratch, 0},
               Slices(theirs, task));
    receive_slices(b, kLane, above, Slices(mine, task));
    const auto finish = [&](uint64_t at, uint64_t bytes, Region into) {
      const auto sources = part.at_root(added + task.bytes() * task.rank + at, b.scratch(at));
      b.reduce(kLane, sources, into, bytes);
    };
    finish(0, task.bytes(), b.output());
    finish(task.bytes(), mine - task.bytes(), held + task.bytes());
  } else {
    receive_slices(b, kLane, above, Slices(mine, task));
  }
  for (int place : tree.children_largest_first()) {
    const int child = tree.rank_of(place);
    const Space theirs = tree.size_of(place) == 1 ? Space::output : Space::scratch;
    accept(task, b, kLane, child, subtree(place), theirs);
    put_slices(b, kLane, child, held + task.bytes() * (place - tree.place()), {child, theirs, 0},
               Slices(subtree(place), task));
  }
  if (!tree.is_root() && !lands) b.copy(kLane, held, b.output(), task.bytes());
}

/// Scratch: the inputs of the subtree's ranks; behind them what comes from above, all ranks' blocks for the
/// subtree, or at a root those of the other tree's; what is packed to go on. A leaf needs none: its input
/// goes up, and what comes down is its output, which is written only when all have what they need of the
/// input.
void all_to_all(const Task& task, Builder& b) {
  const Part part(task);
  const BinomialTree& tree = part.tree;
  const int above = part.above;
  const auto inputs = [&](int places) { return task.bytes() * task.ranks() * places; };
  /// Where what comes from above begins, at the root of a subtree of so many.
  const auto below = [&](int places) { return round_up(inputs(places), 64); };
  const bool lands = tree.is_leaf() && !tree.is_root();
  if (!lands) {
    b.reserve(below(tree.size()) + inputs(tree.size()));
    b.copy(kLane, b.input(), b.scratch(0), inputs(1));
  }
  for (int place : tree.children()) b.wait(kLane, tree.rank_of(place), tag(Phase::ready));

  /// The block of rank `from` for rank `to`, which is in this subtree or, seen from a root, in the other
  /// tree.
  const auto block = [&](int from, int to) {
    const int row = from - task.rank, first_from_above = tree.is_root() ? above : 0;
    if (tree.is_root() && row >= 0 && row < tree.size()) return b.scratch(inputs(row) + task.bytes() * to);
    return b.scratch(below(tree.size()) +
                     task.bytes() * ((from - first_from_above) * tree.size() + to - task.rank));
  };
  /// Puts the blocks of `senders` ranks for `receivers` ranks, from `from` and `to` on, side by side.
  const auto put_blocks = [&](int from, int senders, int to, int receivers, Region there) {
    const uint64_t each = task.bytes() * receivers, packed = b.reserve(each * senders);
    for (int k = 0; k < senders; ++k) b.copy(kLane, block(from + k, to), b.scratch(packed + each * k), each);
    b.put(kLane, there.rank, b.scratch(packed), there, each * senders, tag(Phase::data));
  };

  if (tree.is_root()) {
    put_blocks(task.rank, tree.size(), above, part.other.size(),
               {above, Space::scratch, below(part.other.size())});
  } else {
    b.put(kLane, above, lands ? b.input() : b.scratch(0),
          {above, Space::scratch, inputs(BinomialTree::lowest_bit(tree.place()))}, inputs(tree.size()),
          tag(Phase::ready));
  }
  b.wait(kLane, above, tag(Phase::data));
  for (int place : tree.children_largest_first()) {
    const int child = tree.rank_of(place), size = tree.size_of(place);
    put_blocks(0, task.ranks(), child, size,
               size == 1 ? Region{child, Space::output, 0} : Region{child, Space::scratch, below(size)});
  }
  if (lands) return;
  for (int from = 0; from < task.ranks(); ++from)
    b.copy(kLane, block(from, task.rank), b.output(task.bytes() * from), task.bytes());
}

constexpr Algorithm kTable[] = {
    {kName, Collective::all_reduce, "sums up two trees, exchanged at their roots, and down again", fits,
     make_with<kName, all_reduce>},
    {kName, Collective::all_gather, "blocks up two trees, exchanged at their roots, and all down again", fits,
     make_with<kName, all_gather>},
    {kName, Collective::reduce_scatter, "sums up two trees, exchanged at their roots, and blocks down again",
     fits, make_with<kName, reduce_scatter>},
    {kName, Collective::all_to_all, "inputs up two trees, exchanged at their roots, and blocks down again",
     fits_all_to_all, make_with<kName, all_to_all>},
};

}  // namespace

std::span<const Algorithm> binomial_all_algorithms() { return kTable; }

}  // namespace weft::plan
