// ring: every rank exchanges data only with its two neighbours. Ranks of a node are neighbours, so each
// node's link carries one stream in and one out. Best for very long messages, and on networks where many
// flows at once disturb each other.
//
//   AllGather      n - 1 rounds: in round k, position i passes on the block of position i - k. A slice is
//                  passed on as soon as it has arrived, so all rounds overlap.
//   ReduceScatter  n - 1 rounds: in round k, position i sends its sum of block i - 1 - k, which has grown
//                  on the way; after the last round it holds its own block, whole.
//   AllReduce      ReduceScatter into the own block of output, then AllGather of those.
//   Broadcast      a chain from the root: each passes on slice by slice.
//
// Sums travel through scratch that caches hold. So long blocks are reduced in groups of slices. Each group
// goes all the way round before the next begins, except for the next group's first put, which starts before
// the group is finished. AllReduce gathers a group while it reduces the next.
//
// Scratch is places for some groups, used in turn; a credit for each slice says that its place is free again.
// (One place would not do: a rank's sends would wait for credits all the way round the ring. Short blocks
// have more, or each would take the time of a credit's way back.)
#include "plan/transfer.h"

namespace weft::plan {
namespace {

constexpr char kName[] = "ring";
constexpr int kMain = 0;    // what must happen in order
constexpr int kReturn = 1;  // credits, which wait for puts
// As many places as this has room for: inside a node what caches hold beside everything else, between nodes
// what must be under way.
constexpr uint64_t kPlacesInside = 2 << 20, kPlacesBetween = 4 << 20;
constexpr int kFewestPlaces = 2, kMostPlaces = 16;
constexpr int kMostSlices = 512;  // of all blocks that a rank reduces or passes on, if they are long

Status fits(const Request& request, const topology::Layout& layout, const Limits&) {
  WEFT_TRY(fits_any(request, layout));
  return refuse_strict(request, kName);
}

/// The ring's order: `first`, its node-mates, then node by node.
struct Ring {
  std::vector<int> order;
  int position = 0;  // of the own rank

  Ring(const Task& task, int first) {
    const auto& layout = task.layout;
    for (int k = 0; k < layout.nodes(); ++k) {
      const auto& members = layout.on_node((layout.node_of(first) + k) % layout.nodes());
      const auto start = k > 0 ? members.begin() : std::find(members.begin(), members.end(), first);
      order.insert(order.end(), start, members.end());
      order.insert(order.end(), members.begin(), start);
    }
    position = static_cast<int>(std::find(order.begin(), order.end(), task.rank) - order.begin());
  }

  /// The rank `distance` positions further on; negative goes back.
  int rank_at(int distance) const {
    const int n = static_cast<int>(order.size());
    return order[static_cast<size_t>(((position + distance) % n + n) % n)];
  }
  int next() const { return rank_at(1); }
  int previous() const { return rank_at(-1); }
};

/// One rank's view of its collective: where blocks lie, and how all of them are sliced.
struct Lap {
  const Task& task;
  Builder& b;
  Ring ring{task, 0};
  Blocks blocks;
  Slices slices;

  int rounds() const { return task.ranks() - 1; }
  /// Every block has the same number of slices, so that notifications pair up; some may be empty.
  int slice_count() const { return slices.count(); }
  uint64_t places_bytes() const { return task.layout.nodes() > 1 ? kPlacesBetween : kPlacesInside; }
  /// How many slices of each block are reduced together.
  int group() const {
    const uint64_t fit = places_bytes() / kFewestPlaces / slices.each();
    return static_cast<int>(std::clamp<uint64_t>(fit, 1, static_cast<uint64_t>(slice_count())));
  }
  uint64_t at(int block, int slice) const {
    return blocks.begin(block) + slices.of(blocks.bytes(block)).begin(slice);
  }
  uint64_t bytes(int block, int slice) const { return slices.of(blocks.bytes(block)).bytes(slice); }
  uint64_t index(int round, int slice) const { return static_cast<uint64_t>(round * slice_count() + slice); }
  bool eager(int peer) const { return task.eager(peer, blocks.largest()); }
};

/// Passes blocks round until everyone's output has all, `group` slices after another; the own block leaves
/// from `source`, each slice once its step of `ready` is done, or at once if that is empty.
void gather_lap(const Lap& lap, int lane, Region source, int group, std::span<const StepId> ready) {
  Builder& b = lap.b;
  const int next = lap.ring.next(), previous = lap.ring.previous(), own = lap.task.rank;
  const auto receive = [&](int round, int s) {
    b.wait(lane, previous, tag(Phase::data, lap.index(round, s)));
  };
  if (!lap.eager(previous)) b.signal(lane, previous, tag(Phase::open), Space::output);
  if (!lap.eager(next)) b.wait(lane, next, tag(Phase::open), Space::output);
  for (int first = 0; first < lap.slice_count(); first += group) {
    for (int round = 0; round < lap.rounds(); ++round) {
      const int block = lap.ring.rank_at(-round);
      for (int s = first; s < std::min(first + group, lap.slice_count()); ++s) {
        const uint64_t at = lap.at(block, s);
        const Region src = block == own ? source + (at - lap.blocks.begin(own)) : b.output(at);
        if (round > 0) receive(round - 1, s);
        b.put(lane, next, src, {next, Space::output, at}, lap.bytes(block, s),
              tag(Phase::data, lap.index(round, s)),
              round > 0 || ready.empty() ? ready.first(0) : ready.subspan(static_cast<size_t>(s), 1));
      }
    }
  }
  for (int s = 0; s < lap.slice_count(); ++s) receive(lap.rounds() - 1, s);
}

/// Sums travel round until the own block is whole, at `result`.
class Reduction {
 public:
  Reduction(const Lap& lap, Region result) : lap_(lap), result_(result) {}

  /// In lane kMain; the ids of the steps that finish each slice.
  std::vector<StepId> run() {
    if (!lap_.eager(previous_)) b_.signal(kMain, previous_, tag(Phase::open_scratch), Space::scratch);
    if (!lap_.eager(next_)) b_.wait(kMain, next_, tag(Phase::open_scratch), Space::scratch);
    for (int group = 0; group <= groups_; ++group) {
      if (group < groups_) pass_on(group, 0);
      if (group > 0) finish(group - 1);
      for (int round = 1; group < groups_ && round < lap_.rounds(); ++round) pass_on(group, round);
    }
    return std::move(finals_);
  }

 private:
  int block(int round) const { return lap_.ring.rank_at(-1 - round); }
  int begin(int group) const { return group * group_; }
  int end(int group) const { return std::min(begin(group + 1), lap_.slice_count()); }
  /// How many groups have been put before this one is in this round; they take their places in this order.
  int turn(int group, int round) const { return group * lap_.rounds() + round; }
  uint64_t place(int turn, int s) const {
    return scratch_ + static_cast<uint64_t>(turn % places_) * place_ +
           static_cast<uint64_t>(s % group_) * lap_.slices.each();
  }
  uint32_t credit(int turn, int s) const {
    return tag(Phase::credit, static_cast<uint64_t>(turn * group_ + s % group_));
  }

  /// The sum of slice `s` so far, with the own part: at `to`.
  StepId add(int group, int round, int s, Region to) {
    const Source sources[] = {{b_.scratch(place(turn(group, round - 1), s)), static_cast<uint32_t>(round)},
                              {b_.input(lap_.at(block(round), s))}};
    b_.wait(kMain, previous_, tag(Phase::ready, lap_.index(round - 1, s)));
    return b_.reduce(kMain, sources, to, lap_.bytes(block(round), s));
  }

  /// What `previous` puts so many places after this may be put once `after` is done.
  void give_credit(int group, int round, int s, StepId after) {
    const int next = turn(group, round) + places_;
    const int of_group = next / lap_.rounds(), of_slice = begin(of_group) + s % group_;
    if (of_slice < lap_.slice_count())
      b_.signal(kReturn, previous_, credit(next, s), Space::none, {&after, 1});
  }

  void pass_on(int group, int round) {
    const int turn = this->turn(group, round);
    for (int s = begin(group); s < end(group); ++s) {
      Region sum = b_.input(lap_.at(block(round), s));
      if (round > 0) {
        sum = b_.scratch(place(this->turn(group, round - 1), s));
        add(group, round, s, sum);
      }
      if (turn >= places_) b_.wait(kMain, next_, credit(turn, s));
      const StepId put = b_.put(kMain, next_, sum, {next_, Space::scratch, place(turn, s)},
                                lap_.bytes(block(round), s), tag(Phase::ready, lap_.index(round, s)));
      if (round > 0) give_credit(group, round - 1, s, put);
    }
  }

  void finish(int group) {
    for (int s = begin(group); s < end(group); ++s) {
      finals_.push_back(add(group, lap_.rounds(), s, result_ + lap_.slices.begin(s)));
      give_credit(group, lap_.rounds() - 1, s, finals_.back());
    }
  }

  const Lap& lap_;
  Builder& b_ = lap_.b;
  const Region result_;
  const int next_ = lap_.ring.next(), previous_ = lap_.ring.previous();
  const int group_ = lap_.group();
  const uint64_t place_ = round_up(lap_.slices.each() * static_cast<uint64_t>(group_), 64);
  const int groups_ = static_cast<int>(divide_up(lap_.slice_count(), group_));
  const int places_ = std::min(
      static_cast<int>(std::clamp<uint64_t>(lap_.places_bytes() / place_, kFewestPlaces, kMostPlaces)),
      turn(groups_, 0));  // no more than turns
  const uint64_t scratch_ = b_.reserve(static_cast<uint64_t>(places_) * place_);
  std::vector<StepId> finals_;
};

void all_gather(const Task& task, Builder& b) {
  const Blocks blocks = Blocks::equal(task.ranks(), task.bytes());
  const Lap lap{.task = task, .b = b, .blocks = blocks, .slices = {blocks.largest(), task}};
  b.copy(lane_beside(task, b, kMain, lap.ring.next(), task.bytes()), b.input(),
         b.output(lap.blocks.begin(task.rank)), task.bytes());
  gather_lap(lap, kMain, b.input(), lap.slice_count(), {});
}

Slices reduced_slices(const Task& task, const Blocks& blocks) {
  return Slices(blocks.largest(), task, std::max(Slices::kMost, kMostSlices / (task.ranks() - 1)));
}

void reduce_scatter(const Task& task, Builder& b) {
  const Blocks blocks = Blocks::equal(task.ranks(), task.bytes());
  const Lap lap{.task = task, .b = b, .blocks = blocks, .slices = reduced_slices(task, blocks)};
  Reduction(lap, b.output()).run();
}

void all_reduce(const Task& task, Builder& b) {
  const Blocks blocks = Blocks::divide(task.bytes(), task.request.element_bytes, task.ranks());
  const Lap lap{.task = task, .b = b, .blocks = blocks, .slices = reduced_slices(task, blocks)};
  const Region own = b.output(blocks.begin(task.rank));
  const std::vector<StepId> finals = Reduction(lap, own).run();
  if (lap.group() == lap.slice_count()) gather_lap(lap, kMain, own, lap.group(), {});
  else gather_lap(lap, b.new_lane(), own, lap.group(), finals);
}

void broadcast(const Task& task, Builder& b) {
  const Ring ring(task, task.root());
  const Slices slices(task.bytes(), task);
  const int next = ring.next(), previous = ring.previous();
  const bool receives = ring.position > 0, sends = ring.position + 1 < task.ranks();
  if (receives && !task.eager(previous, task.bytes()))
    b.signal(kMain, previous, tag(Phase::open), Space::output);
  if (sends && !task.eager(next, task.bytes())) b.wait(kMain, next, tag(Phase::open), Space::output);
  for (int s = 0; s < slices.count(); ++s) {
    const Region src = task.is_root() ? b.input(slices.begin(s)) : b.output(slices.begin(s));
    const Region dst{next, Space::output, slices.begin(s)};
    if (receives) b.wait(kMain, previous, tag(Phase::data, s));
    if (sends) b.put(kMain, next, src, dst, slices.bytes(s), tag(Phase::data, s));
  }
  if (task.is_root())
    b.copy(lane_beside(task, b, kMain, next, task.bytes()), b.input(), b.output(), task.bytes());
}

constexpr Algorithm kTable[] = {
    {kName, Collective::all_reduce, "sums go round the ring, then the finished blocks do", fits,
     make_with<kName, all_reduce>},
    {kName, Collective::all_gather, "shards go round the ring", fits, make_with<kName, all_gather>},
    {kName, Collective::reduce_scatter, "sums go round the ring", fits, make_with<kName, reduce_scatter>},
    {kName, Collective::broadcast, "slices go down a chain that begins at the root", fits,
     make_with<kName, broadcast>},
};

}  // namespace

std::span<const Algorithm> ring_algorithms() { return kTable; }

}  // namespace weft::plan
