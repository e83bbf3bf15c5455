// one_hop: small messages. Every rank puts to every rank that needs its data, at once. Each reduces on its
// own, in rank order, so that all get the same bits. The latency is that of one message.
//
//     rank 0   put → 1, 2      wait ← 2, 1      reduce [own, 1, 2] → output
//     rank 1   put → 2, 0      wait ← 0, 2      reduce [0, own, 2] → output
//     rank 2   put → 0, 1      wait ← 1, 0      reduce [0, 1, own] → output
//
// Everything is in one lane. No put needs an exposed target: fits() sees to it.
#include "plan/at_once.h"
#include "plan/schedule.h"

namespace weft::plan {
namespace {

constexpr char kName[] = "one_hop";
constexpr int kLane = 0;

Status fits(const Request& request, const topology::Layout& layout, const Limits& limits) {
  WEFT_TRY(fits_any(request, layout));
  bool intra = false;
  for (int node = 0; node < layout.nodes(); ++node) intra |= layout.on_node(node).size() > 1;
  const auto check = [&](bool same_node, const char* link) -> Status {
    const uint64_t most = same_node ? limits.eager_intra_bytes : eager_bytes_meeting(layout, limits);
    if (request.bytes() <= most) return {};
    return fail(Code::unsupported, "one_hop sends {} bytes at once, at most {} go eagerly {}",
                request.bytes(), most, link);
  };
  if (intra) WEFT_TRY(check(true, "inside a node"));
  if (layout.nodes() > 1) WEFT_TRY(check(false, "between nodes"));
  return {};
}

/// Own scratch has room for a contribution of every rank; this is rank `from`'s at `at`.
Region slot(const Task& task, int at, int from) {
  return {at, Space::scratch, static_cast<uint64_t>(from) * task.bytes()};
}

void wait_for_all(const Task& task, Builder& b) {
  for (int k = 1; k < task.ranks(); ++k) b.wait(kLane, task.rank_before(k), tag(Phase::data));
}

/// output = all contributions in rank order: `own`, and the others' slots.
void reduce_slots(const Task& task, Builder& b, Region own, std::span<const StepId> after) {
  std::vector<Source> sources;
  for (int r = 0; r < task.ranks(); ++r) sources.push_back({r == task.rank ? own : slot(task, task.rank, r)});
  b.reduce(kLane, sources, b.output(), task.bytes(), after);
}

void all_reduce(const Task& task, Builder& b) {
  b.reserve(task.bytes() * task.ranks());
  std::vector<StepId> puts;
  for (int k = 1; k < task.ranks(); ++k) {
    const int peer = task.rank_after(k);
    puts.push_back(
        b.put(kLane, peer, b.input(), slot(task, peer, task.rank), task.bytes(), tag(Phase::data)));
  }
  wait_for_all(task, b);
  reduce_slots(task, b, b.input(), puts);
}

void reduce_scatter(const Task& task, Builder& b) {
  b.reserve(task.bytes() * task.ranks());
  for (int k = 1; k < task.ranks(); ++k) {
    const int peer = task.rank_after(k);
    b.put(kLane, peer, b.input(task.bytes() * peer), slot(task, peer, task.rank), task.bytes(),
          tag(Phase::data));
  }
  wait_for_all(task, b);
  reduce_slots(task, b, b.input(task.bytes() * task.rank), {});
}

void reduce(const Task& task, Builder& b) {
  if (!task.is_root()) {
    b.put(kLane, task.root(), b.input(), slot(task, task.root(), task.rank), task.bytes(), tag(Phase::data));
    return;
  }
  b.reserve(task.bytes() * task.ranks());
  wait_for_all(task, b);
  reduce_slots(task, b, b.input(), {});
}

void all_gather(const Task& task, Builder& b) {
  const uint64_t own = task.bytes() * task.rank;
  for (int k = 1; k < task.ranks(); ++k) {
    const int peer = task.rank_after(k);
    b.put(kLane, peer, b.input(), {peer, Space::output, own}, task.bytes(), tag(Phase::data));
  }
  b.copy(kLane, b.input(), b.output(own), task.bytes());
  wait_for_all(task, b);
}

void gather(const Task& task, Builder& b) {
  const Region at_root{task.root(), Space::output, task.bytes() * task.rank};
  if (!task.is_root()) {
    b.put(kLane, task.root(), b.input(), at_root, task.bytes(), tag(Phase::data));
    return;
  }
  b.copy(kLane, b.input(), at_root, task.bytes());
  wait_for_all(task, b);
}

/// Broadcast and scatter: the root's `block_of(peer)` to every peer's output.
template <typename BlockOf>
void from_root(const Task& task, Builder& b, BlockOf block_of) {
  if (!task.is_root()) {
    b.wait(kLane, task.root(), tag(Phase::data));
    return;
  }
  for (int k = 1; k < task.ranks(); ++k) {
    const int peer = task.rank_after(k);
    b.put(kLane, peer, b.input(block_of(peer)), {peer, Space::output, 0}, task.bytes(), tag(Phase::data));
  }
  b.copy(kLane, b.input(block_of(task.rank)), b.output(), task.bytes());
}

void broadcast(const Task& task, Builder& b) {
  from_root(task, b, [](int) { return uint64_t{0}; });
}

void scatter(const Task& task, Builder& b) {
  from_root(task, b, [&](int peer) { return task.bytes() * peer; });
}

/// In place, a block may arrive where one that has not left yet still lies: then it goes through scratch.
void all_to_all(const Task& task, Builder& b) {
  const bool stage = !task.request.disjoint;
  if (stage) b.reserve(task.bytes() * task.ranks());
  const auto block = [&](uint64_t rank) { return task.bytes() * rank; };
  std::vector<StepId> puts_below, puts_above;  // by where in input their blocks lie
  for (int k = 1; k < task.ranks(); ++k) {
    const int peer = task.rank_after(k);
    const Region dst{peer, stage ? Space::scratch : Space::output, block(task.rank)};
    const StepId put = b.put(kLane, peer, b.input(block(peer)), dst, task.bytes(), tag(Phase::data));
    (peer < task.rank ? puts_below : puts_above).push_back(put);
  }
  b.copy(kLane, b.input(block(task.rank)), b.output(block(task.rank)), task.bytes());
  wait_for_all(task, b);
  if (!stage) return;
  const int above = task.rank + 1;
  b.copy(kLane, b.scratch(), b.output(), block(task.rank), puts_below);
  b.copy(kLane, b.scratch(block(above)), b.output(block(above)), block(task.ranks() - above), puts_above);
}

constexpr Algorithm kTable[] = {
    {kName, Collective::all_reduce, "everyone sends its whole input to everyone and reduces on its own", fits,
     make_with<kName, all_reduce>},
    {kName, Collective::all_gather, "everyone sends its shard to everyone", fits,
     make_with<kName, all_gather>},
    {kName, Collective::reduce_scatter, "everyone sends each rank its block, and each reduces its own", fits,
     make_with<kName, reduce_scatter>},
    {kName, Collective::broadcast, "the root sends to everyone", fits, make_with<kName, broadcast>},
    {kName, Collective::reduce, "everyone sends to the root, which reduces", fits, make_with<kName, reduce>},
    {kName, Collective::all_to_all, "everyone sends to everyone", fits, make_with<kName, all_to_all>},
    {kName, Collective::gather, "everyone sends to the root", fits, make_with<kName, gather>},
    {kName, Collective::scatter, "the root sends to everyone", fits, make_with<kName, scatter>},
};

}  // namespace

std::span<const Algorithm> one_hop_algorithms() { return kTable; }

}  // namespace weft::plan
