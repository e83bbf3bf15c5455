// binomial, for collectives without a root: up two binomial trees of half of the ranks each, an exchange of
// their roots, and down again. 2n - 2 messages in all, where doubling takes n·log2(n) and all_to_all n·(n-1),
// after 2·log2(n) - 1 hops. Wins for short messages where ranks share cores, as then each message costs
// somebody else's time.
//
//     1 → 0 ←──→ 4 ← 5       8 ranks, on the way up; the same ways lead down
//     3 → 2 ↗      ↖ 6 ← 7
//
//   AllReduce      sums go up, the finished one down
//   AllGather      subtrees' blocks go up, all blocks down
//   ReduceScatter  sums of all blocks go up, the roots exchange what the other one's tree is to have, and
//                  subtrees' blocks go down
//
// All steps are in one lane. Sums are added in the order of ranks.
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

/// The tree of the lower ranks, or that of the upper ones.
struct Tree : BinomialTree {
  Tree(const Task& task, bool upper) : BinomialTree{task.ranks(), 0, 0, 0} {
    const int lower = static_cast<int>(std::bit_ceil(static_cast<unsigned>(all))) / 2;
    root = upper ? lower : 0;
    ranks = upper ? all - lower : lower;
    place = task.rank - root;
  }
  /// The one that the task's rank is in.
  static Tree of(const Task& task) {
    const Tree lower(task, false);
    return task.rank < lower.ranks ? lower : Tree(task, true);
  }
  bool is_root() const { return place == 0; }
};

/// One rank's part: who is above it (at a root, the other tree's root) and below it.
struct Part {
  explicit Part(const Task& task)
      : tree(Tree::of(task)),
        other(task, tree.root == 0),
        above(tree.is_root() ? other.root : tree.rank_of(tree.parent())) {}

  const Tree tree, other;
  const int above;
};

/// Reduces this rank's input and what its children have sent to scratch, `first` and every `room` bytes,
/// slice by slice, and hands each over.
template <typename Then>
void add_up(Builder& b, const Tree& tree, Region sum, const Slices& slices, uint64_t first, uint64_t room,
            Then then) {
  const std::vector<int> children = tree.children();
  for (int s = 0; s < slices.count(); ++s) {
    const uint64_t at = slices.begin(s);
    std::vector<Region> sources{b.input(at)};
    for (size_t k = 0; k < children.size(); ++k) {
      b.wait(kLane, tree.rank_of(children[k]), tag(Phase::ready, s));
      sources.push_back(b.scratch(first + room * k + at));
    }
    if (!children.empty()) b.reduce(kLane, sources, sum + at, slices.bytes(s), false);
    then(s, children.empty() ? b.input(at) : sum + at);
  }
}

/// Scratch: what comes from the other root, then a place for each child's sum.
void all_reduce(const Task& task, Builder& b) {
  const auto [tree, other, above] = Part(task);
  const Slices slices(task.bytes(), task);
  const uint64_t room = round_up(task.bytes(), 64);
  const std::vector<int> children = tree.children_largest_first();
  b.reserve(room * (children.size() + 1));
  for (int child : tree.children())
    offer(task, b, kLane, tree.rank_of(child), task.bytes(), Space::scratch, Phase::open_scratch);
  offer(task, b, kLane, above, task.bytes(), tree.is_root() ? Space::scratch : Space::output);
  const Phase opened = tree.is_root() ? Phase::open : Phase::open_scratch;
  accept(task, b, kLane, above, task.bytes(), Space::scratch, opened);
  const uint64_t at_parent =
      tree.is_root() ? 0 : room * static_cast<uint64_t>(1 + Tree::number_of(tree.place));
  std::vector<StepId> sent;
  add_up(b, tree, b.output(), slices, room, room, [&](int s, Region sum) {
    sent.push_back(b.put(kLane, above, sum, {above, Space::scratch, at_parent + slices.begin(s)},
                         slices.bytes(s), tag(Phase::ready, s)));
  });
  for (int s = 0; s < slices.count(); ++s) {
    const uint64_t at = slices.begin(s);
    b.wait(kLane, above, tag(tree.is_root() ? Phase::ready : Phase::data, s));
    if (!tree.is_root()) continue;
    Region sources[] = {tree.is_leaf() ? b.input(at) : b.output(at), b.scratch(at)};
    if (above < task.rank) std::swap(sources[0], sources[1]);
    b.reduce(kLane, sources, b.output(at), slices.bytes(s), true, {&sent[s], 1});
  }
  for (int place : children) {
    const int child = tree.rank_of(place);
    accept(task, b, kLane, child, task.bytes(), Space::output);
    put_slices(b, kLane, child, b.output(), {child, Space::output, 0}, slices);
  }
}

/// All blocks go down, a child's own among them: it has sent these before, and one message is quicker than
/// two.
void all_gather(const Task& task, Builder& b) {
  const auto [tree, other, above] = Part(task);
  const uint64_t all = task.bytes() * task.ranks(), own = task.bytes() * task.rank;
  const auto bytes = [&](const Tree& t, int place) { return task.bytes() * t.size_of(place); };
  const uint64_t from_above = tree.is_root() ? bytes(other, 0) : all;
  for (int place : tree.children())
    offer(task, b, kLane, tree.rank_of(place), bytes(tree, place), Space::output);
  offer(task, b, kLane, above, from_above, Space::output);
  b.copy(kLane, b.input(), b.output(own), task.bytes());
  for (int place : tree.children())
    receive_slices(b, kLane, tree.rank_of(place), Slices(bytes(tree, place), task), Phase::ready);
  const uint64_t mine = bytes(tree, tree.place);
  accept(task, b, kLane, above, mine, Space::output);
  put_slices(b, kLane, above, b.output(own), {above, Space::output, own}, Slices(mine, task), Phase::ready);
  receive_slices(b, kLane, above, Slices(from_above, task), tree.is_root() ? Phase::ready : Phase::data);
  for (int place : tree.children_largest_first()) {
    const int child = tree.rank_of(place);
    accept(task, b, kLane, child, all, Space::output);
    put_slices(b, kLane, child, b.output(), {child, Space::output, 0}, Slices(all, task));
  }
}

/// Scratch: what comes from above (a leaf's goes to its output), a place for each child's sums, the own sums.
void reduce_scatter(const Task& task, Builder& b) {
  const auto [tree, other, above] = Part(task);
  const uint64_t all = task.bytes() * task.ranks(), room = round_up(all, 64);
  const auto bytes = [&](const Tree& t, int place) { return task.bytes() * t.size_of(place); };
  const auto first = [&](int place) { return round_up(bytes(tree, place), 64); };
  const std::vector<int> children = tree.children();
  const uint64_t mine = bytes(tree, tree.place);
  const bool lands = tree.is_leaf() && !tree.is_root();  // in the output
  b.reserve(first(tree.place) + room * children.size());
  const Region sum = b.scratch(b.reserve(children.empty() ? 0 : all));
  for (int place : children)
    offer(task, b, kLane, tree.rank_of(place), all, Space::scratch, Phase::open_scratch);
  offer(task, b, kLane, above, mine, lands ? Space::output : Space::scratch);
  const Slices slices(all, task);
  if (!tree.is_root()) accept(task, b, kLane, above, all, Space::scratch, Phase::open_scratch);
  const uint64_t at_parent =
      tree.is_root() ? 0 : first(tree.parent()) + room * static_cast<uint64_t>(Tree::number_of(tree.place));
  add_up(b, tree, sum, slices, first(tree.place), room, [&](int s, Region added) {
    if (tree.is_root()) return;
    b.put(kLane, above, added, {above, Space::scratch, at_parent + slices.begin(s)}, slices.bytes(s),
          tag(Phase::ready, s));
  });
  Region held = b.scratch(0);  // this subtree's blocks, own first
  if (tree.is_root()) {
    const Region added = children.empty() ? b.input() : sum;
    const uint64_t theirs = bytes(other, 0);
    accept(task, b, kLane, above, theirs, Space::scratch);
    put_slices(b, kLane, above, added + task.bytes() * other.root, {above, Space::scratch, 0},
               Slices(theirs, task));
    receive_slices(b, kLane, above, Slices(mine, task));
    const auto finish = [&](uint64_t at, uint64_t count, Region into) {
      Region sources[] = {added + task.bytes() * tree.root + at, b.scratch(at)};
      if (above < task.rank) std::swap(sources[0], sources[1]);
      b.reduce(kLane, sources, into, count, true);
    };
    finish(0, task.bytes(), b.output());
    if (mine > task.bytes()) finish(task.bytes(), mine - task.bytes(), held + task.bytes());
  } else {
    receive_slices(b, kLane, above, Slices(mine, task));
    if (!lands) b.copy(kLane, held, b.output(), task.bytes());
  }
  for (int place : tree.children_largest_first()) {
    const int child = tree.rank_of(place);
    const Space theirs = tree.size_of(place) == 1 ? Space::output : Space::scratch;
    accept(task, b, kLane, child, bytes(tree, place), theirs);
    put_slices(b, kLane, child, held + task.bytes() * (place - tree.place), {child, theirs, 0},
               Slices(bytes(tree, place), task));
  }
}

constexpr Algorithm kTable[] = {
    {kName, Collective::all_reduce, "sums up two trees, exchanged at their roots, and down again", fits,
     make_with<kName, all_reduce>},
    {kName, Collective::all_gather, "blocks up two trees, exchanged at their roots, and all down again", fits,
     make_with<kName, all_gather>},
    {kName, Collective::reduce_scatter, "sums up two trees, exchanged at their roots, and blocks down again",
     fits, make_with<kName, reduce_scatter>},
};

}  // namespace

std::span<const Algorithm> binomial_all_algorithms() { return kTable; }

}  // namespace weft::plan
