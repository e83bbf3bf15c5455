// bruck: AlltoAll in ceil(log2 n) messages a rank instead of n - 1, each of up to half of all blocks: for
// short blocks on many ranks, where a message costs more than its bytes. A block that has to go d ranks
// further goes the powers of two that d is made of, shortest first, together with all others that go this
// far.
//
//     rank 0 of 5   round 0   the blocks for ranks 1, 3      → 1      distances with bit 0
//                   round 1   for ranks 2, 3                 → 2      … with bit 1; 3's by now another's
//                   round 2   for rank 4                     → 4
//
// A place is where the block now lies that has `distance` to go in all; each round packs the places that it
// sends, and the arrived take their places, where they lie. So no block is copied more often than it travels,
// and once into the output. Works in place: output is written when the whole input has been packed.
//
// J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby: Efficient algorithms for all-to-all communications
// in multiport message-passing systems, IEEE TPDS 8(11), 1997.
#include "plan/schedule.h"

namespace weft::plan {
namespace {

constexpr char kName[] = "bruck";
constexpr int kLane = 0;

/// How many of the distances below `ranks` have bit `round`.
uint64_t travellers(int ranks, int round) {
  uint64_t count = 0;
  for (int distance = 1; distance < ranks; ++distance) count += distance >> round & 1;
  return count;
}

Status fits(const Request& request, const topology::Layout& layout, const Limits& limits) {
  WEFT_TRY(fits_any(request, layout));
  return refuse_long(request, travellers(layout.ranks(), 0), layout, limits, kName);
}

void all_to_all(const Task& task, Builder& b) {
  const int ranks = task.ranks();
  const auto block = [&](uint64_t index) { return task.bytes() * index; };
  std::vector<Region> place;  // by distance
  for (int distance = 0; distance < ranks; ++distance)
    place.push_back(b.input(block(task.rank_after(distance))));

  for (int round = 0; 1 << round < ranks; ++round) {
    const uint64_t bytes = block(travellers(ranks, round));
    const uint64_t packed = b.reserve(bytes), arrived = b.reserve(bytes);  // at the same offsets on all ranks
    uint64_t at = 0;
    for (int distance = 1; distance < ranks; ++distance) {
      if ((distance >> round & 1) == 0) continue;
      b.copy(kLane, place[distance], b.scratch(packed + at), task.bytes());
      place[distance] = b.scratch(arrived + at);
      at += task.bytes();
    }
    const int peer = task.rank_after(1 << round);
    b.put(kLane, peer, b.scratch(packed), {peer, Space::scratch, arrived}, bytes, tag(Phase::data));
    b.wait(kLane, task.rank_before(1 << round), tag(Phase::data));
  }
  for (int distance = 0; distance < ranks; ++distance)
    b.copy(kLane, place[distance], b.output(block(task.rank_before(distance))), task.bytes());
}

constexpr Algorithm kTable[] = {
    {kName, Collective::all_to_all, "log2(n) messages, each of all blocks that go this power of two further",
     fits, make_with<kName, all_to_all>},
};

}  // namespace

std::span<const Algorithm> bruck_algorithms() { return kTable; }

}  // namespace weft::plan
