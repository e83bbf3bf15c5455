// ring: every rank talks to its two neighbours only; node-mates are neighbours, so each node's link carries
// one stream in and one out. Best for very long messages, and where many flows at once would trip over each
// other.
//
//   AllGather      n - 1 rounds: in round k, position i passes on the block of position i - k. A slice is
//                  passed on as soon as it has arrived, so all rounds overlap.
//   ReduceScatter  n - 1 rounds: in round k, position i sends its sum of block i - 1 - k, which has grown
//                  on the way; after the last round it holds its own block, whole.
//   AllReduce      ReduceScatter into the own block of output, then AllGather of those.
//   Broadcast      a chain from the root: each passes on slice by slice.
//
// Sums travel through places for some blocks of scratch, used in turn; a credit for each slice says that its
// place is free again. (One place would not do: a rank's sends would wait for credits all the way round the
// ring. Short blocks have more, or each would take the time of a credit's way back.)
#include "plan/schedule.h"

namespace weft::plan {
namespace {

constexpr char kName[] = "ring";
constexpr int kMain = 0;                            // what must happen in order
constexpr int kReturn = 1;                          // credits, which wait for puts
constexpr uint64_t kPlacesBytes = 4 << 20;          // as many places as this has room for, …
constexpr int kFewestPlaces = 2, kMostPlaces = 16;  // … within these

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
  Slices slices{blocks.largest(), task};

  int rounds() const { return task.ranks() - 1; }
  /// Every block has the same number of slices, so that notifications pair up; some may be empty.
  int slice_count() const { return slices.count(); }
  uint64_t at(int block, int slice) const {
    return blocks.begin(block) + slices.of(blocks.bytes(block)).begin(slice);
  }
  uint64_t bytes(int block, int slice) const { return slices.of(blocks.bytes(block)).bytes(slice); }
  uint64_t index(int round, int slice) const { return static_cast<uint64_t>(round * slice_count() + slice); }
  bool eager(int peer) const { return task.eager(peer, blocks.largest()); }
};

/// Passes blocks round until everyone's output has all; the own block leaves from `source`.
void gather_lap(const Lap& lap, Region source) {
  Builder& b = lap.b;
  const int next = lap.ring.next(), previous = lap.ring.previous(), own = lap.task.rank;
  if (!lap.eager(previous)) b.signal(kMain, previous, tag(Phase::open), Space::output);
  if (!lap.eager(next)) b.wait(kMain, next, tag(Phase::open), Space::output);
  for (int round = 0; round <= lap.rounds(); ++round) {
    const int block = lap.ring.rank_at(-round);
    for (int s = 0; s < lap.slice_count(); ++s) {
      const uint64_t at = lap.at(block, s);
      const Region src = block == own ? source + (at - lap.blocks.begin(own)) : b.output(at);
      if (round > 0) b.wait(kMain, previous, tag(Phase::data, lap.index(round - 1, s)));
      if (round == lap.rounds()) continue;
      b.put(kMain, next, src, {next, Space::output, at}, lap.bytes(block, s),
            tag(Phase::data, lap.index(round, s)));
    }
  }
}

/// Sums travel round until the own block is whole, at `result`.
void reduce_lap(const Lap& lap, Region result) {
  Builder& b = lap.b;
  const int next = lap.ring.next(), previous = lap.ring.previous();
  const uint64_t place = round_up(lap.slices.each() * lap.slice_count(), 64);  // room for the longest block
  const int count = static_cast<int>(
      std::clamp<uint64_t>(kPlacesBytes / std::max<uint64_t>(place, 1), kFewestPlaces, kMostPlaces));
  const uint64_t places = b.reserve(static_cast<uint64_t>(count) * place);
  const auto slot = [&](int at, int round, int s) {
    return Region{at, Space::scratch,
                  places + static_cast<uint64_t>(round % count) * place + lap.slices.begin(s)};
  };
  if (!lap.eager(previous)) b.signal(kMain, previous, tag(Phase::open_scratch), Space::scratch);
  if (!lap.eager(next)) b.wait(kMain, next, tag(Phase::open_scratch), Space::scratch);
  for (int round = 0; round <= lap.rounds(); ++round) {
    const int block = lap.ring.rank_at(-1 - round);
    for (int s = 0; s < lap.slice_count(); ++s) {
      const Region own = b.input(lap.at(block, s));
      const uint64_t bytes = lap.bytes(block, s);
      const bool last = round == lap.rounds();
      Region sum = own;
      if (round > 0) {
        const Region received = slot(lap.task.rank, round - 1, s);
        const Region sources[] = {received, own};
        b.wait(kMain, previous, tag(Phase::ready, lap.index(round - 1, s)));
        sum = last ? result + lap.slices.begin(s) : received;
        b.reduce(kMain, sources, sum, bytes, last);
      }
      if (last) continue;
      if (round >= count) b.wait(kMain, next, tag(Phase::credit, lap.index(round - count, s)));
      const StepId put =
          b.put(kMain, next, sum, slot(next, round, s), bytes, tag(Phase::ready, lap.index(round, s)));
      // The place of this sum is wanted again for what `previous` sends `count` rounds after it sent this.
      if (round >= 1 && round - 1 + count < lap.rounds()) {
        b.signal(kReturn, previous, tag(Phase::credit, lap.index(round - 1, s)), Space::none, {&put, 1});
      }
    }
  }
}

void all_gather(const Task& task, Builder& b) {
  const Lap lap{.task = task, .b = b, .blocks = Blocks::equal(task.ranks(), task.bytes())};
  gather_lap(lap, b.input());
  b.copy(b.new_lane(), b.input(), b.output(lap.blocks.begin(task.rank)), task.bytes());
}

void reduce_scatter(const Task& task, Builder& b) {
  reduce_lap({.task = task, .b = b, .blocks = Blocks::equal(task.ranks(), task.bytes())}, b.output());
}

void all_reduce(const Task& task, Builder& b) {
  const Blocks blocks = Blocks::divide(task.bytes(), task.request.element_bytes, task.ranks());
  const Lap lap{.task = task, .b = b, .blocks = blocks};
  const Region own = b.output(blocks.begin(task.rank));
  reduce_lap(lap, own);
  gather_lap(lap, own);
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
  if (task.is_root()) b.copy(b.new_lane(), b.input(), b.output(), task.bytes());
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
