// direct: one node, medium and large messages. Ranks expose their buffers and read each other's: one copy, or
// one reduction straight from everybody's input, and nothing in between.
//
//   AllGather      expose input ──→ all    each copies every peer's input         done ──→ all
//   ReduceScatter  expose input ──→ all    each reduces its block of all inputs   done ──→ all
//   AllReduce      expose input ──→ all    each reduces its block, slice by slice, and announces
//                                          every slice; the others copy it        done ──→ all
//   Reduce         as AllReduce, but only the root copies, and the others reduce into scratch
//   Broadcast      expose the root's input ──→ all, who copy it, but for a part that the root writes to each
//                  meanwhile, so that it does its share                           done ──→ root
//
// In place: block b of anybody's memory is read as input by rank b alone, and is overwritten only with what
// rank b announced after that. The closing `done` keeps every buffer untouched by others once its owner's
// plan has ended. Gather, scatter and AlltoAll are in exchange.h.
#include "plan/exchange.h"
#include "plan/schedule.h"
#include "plan/transfer.h"

namespace weft::plan {
namespace {

constexpr char kName[] = "direct";

Status fits(const Request& request, const topology::Layout& layout, const Limits&) {
  WEFT_TRY(fits_any(request, layout));
  if (layout.nodes() <= 1) return {};
  return fail(Code::unsupported, "direct reads the memory of peers, which {} cannot", layout.to_string());
}

void signal_all(const Task& task, Builder& b, int lane, Phase phase, Space exposes = Space::none) {
  for (int k = 1; k < task.ranks(); ++k) b.signal(lane, task.rank_after(k), tag(phase), exposes);
}

StepId wait_for_all(const Task& task, Builder& b, int lane, Phase phase, Space learns = Space::none) {
  StepId last = kNoStep;
  for (int k = 1; k < task.ranks(); ++k) last = b.wait(lane, task.rank_before(k), tag(phase), learns);
  return last;
}

/// The inputs of all ranks at `offset`, in rank order.
std::vector<Source> all_inputs(const Task& task, uint64_t offset) {
  std::vector<Source> inputs;
  for (int r = 0; r < task.ranks(); ++r) inputs.push_back({{r, Space::input, offset}});
  return inputs;
}

void all_gather(const Task& task, Builder& b) {
  signal_all(task, b, 0, Phase::open, Space::input);
  b.copy(0, b.input(), b.output(task.bytes() * task.rank), task.bytes());
  for (int k = 1; k < task.ranks(); ++k) {
    const int peer = task.rank_after(k), lane = b.new_lane();
    b.wait(lane, peer, tag(Phase::open), Space::input);
    b.copy(lane, {peer, Space::input, 0}, b.output(task.bytes() * peer), task.bytes());
    b.signal(lane, peer, tag(Phase::done));
    b.wait(lane, peer, tag(Phase::done));
  }
}

void reduce_scatter(const Task& task, Builder& b) {
  signal_all(task, b, 0, Phase::open, Space::input);
  wait_for_all(task, b, 0, Phase::open, Space::input);
  b.reduce(0, all_inputs(task, task.bytes() * task.rank), b.output(), task.bytes());
  signal_all(task, b, 0, Phase::done);
  wait_for_all(task, b, 0, Phase::done);
}

/// Slices of blocks so long that no cache keeps one until it is copied: longer ones then, which can be
/// written around the cache, and read with their owner's help.
Slices slices_of(const Task& task, const Blocks& blocks) {
  constexpr uint64_t kLong = 16 << 20;
  const uint64_t pieces = blocks.largest() / kLong;
  return Slices(blocks.largest(), task,
                pieces < 2 ? Slices::kMost : static_cast<int>(std::min<uint64_t>(pieces, Slices::kMost)));
}

/// The first half of AllReduce and Reduce: reduces the own block of everybody's input into `result`, in lane
/// 0, and tells `readers` of every slice.
void reduce_own_block(const Task& task, Builder& b, uint64_t block_begin, Slices slices, Region result,
                      std::span<const int> readers) {
  signal_all(task, b, 0, Phase::open, Space::input);
  wait_for_all(task, b, 0, Phase::open, Space::input);
  for (int s = 0; s < slices.count(); ++s) {
    b.reduce(0, all_inputs(task, block_begin + slices.begin(s)), result + slices.begin(s), slices.bytes(s));
    for (int reader : readers) b.signal(0, reader, tag(Phase::ready, s), s == 0 ? result.space : Space::none);
  }
}

/// The second half: copies a peer's block, slice by slice, from `source` there, in a lane of its own.
void copy_block(Builder& b, int peer, uint64_t block_begin, Slices slices, Region source) {
  const int lane = b.new_lane();
  for (int s = 0; s < slices.count(); ++s) {
    b.wait(lane, peer, tag(Phase::ready, s), s == 0 ? source.space : Space::none);
    b.copy(lane, source + slices.begin(s), b.output(block_begin + slices.begin(s)), slices.bytes(s));
  }
  if (slices.count() > 0) b.signal(lane, peer, tag(Phase::done));
}

void all_reduce(const Task& task, Builder& b) {
  const Blocks blocks = Blocks::divide(task.bytes(), task.request.element_bytes, task.ranks());
  const Slices slices = slices_of(task, blocks);
  const uint64_t own = blocks.begin(task.rank);
  std::vector<int> peers;
  for (int k = 1; k < task.ranks(); ++k) peers.push_back(task.rank_before(k));
  reduce_own_block(task, b, own, slices.of(blocks.bytes(task.rank)), b.output(own), peers);
  for (int k = 1; k < task.ranks(); ++k) {
    const int peer = task.rank_after(k);
    const uint64_t begin = blocks.begin(peer);
    copy_block(b, peer, begin, slices.of(blocks.bytes(peer)), {peer, Space::output, begin});
  }
  // A peer that announced its last slice has read this input for the last time; an empty block is never read.
  if (blocks.bytes(task.rank) > 0) wait_for_all(task, b, b.new_lane(), Phase::done);
}

void reduce(const Task& task, Builder& b) {
  const Blocks blocks = Blocks::divide(task.bytes(), task.request.element_bytes, task.ranks());
  const Slices slices = slices_of(task, blocks);
  const uint64_t begin = blocks.begin(task.rank), bytes = blocks.bytes(task.rank);
  const int root = task.root();
  if (task.is_root()) {
    reduce_own_block(task, b, begin, slices.of(bytes), b.output(begin), {});
    signal_all(task, b, 0, Phase::done_input);
    for (int k = 1; k < task.ranks(); ++k) {
      const int peer = task.rank_after(k);
      copy_block(b, peer, blocks.begin(peer), slices.of(blocks.bytes(peer)), {peer, Space::scratch, 0});
    }
  } else {
    // The root needs no `done_input`: it has all blocks only when all have read its input.
    reduce_own_block(task, b, begin, slices.of(bytes), b.scratch(b.reserve(bytes)), {&root, 1});
    for (int k = 1; k < task.ranks(); ++k) {
      if (task.rank_after(k) != root) b.signal(0, task.rank_after(k), tag(Phase::done_input));
    }
    const int lane = b.new_lane();
    if (bytes > 0) b.wait(lane, root, tag(Phase::done));
    wait_for_all(task, b, lane, Phase::done_input);
  }
}

/// The last of n parts the root writes to each peer, while that copies the others from the root: so none of
/// the n ranks is idle.
void broadcast(const Task& task, Builder& b) {
  const Blocks parts = Blocks::divide(task.bytes(), task.request.element_bytes, task.ranks());
  const int last = task.ranks() - 1;
  const bool helps = !task.eager(task.root(), parts.bytes(last));
  const uint64_t at = helps ? parts.begin(last) : task.bytes();
  const Slices slices(task.bytes() - at, task);
  if (task.is_root()) {
    signal_all(task, b, 0, Phase::open, Space::input);
    b.copy(0, b.input(), b.output(), task.bytes());
    for (int k = 1; helps && k < task.ranks(); ++k) {
      const int peer = task.rank_after(k), lane = b.new_lane();
      accept(task, b, lane, peer, slices.total(), Space::output);
      put_slices(b, lane, peer, b.input(at), {peer, Space::output, at}, slices);
    }
    wait_for_all(task, b, helps ? b.new_lane() : 0, Phase::done);
  } else {
    if (helps) offer(task, b, 0, task.root(), slices.total(), Space::output);
    b.wait(0, task.root(), tag(Phase::open), Space::input);
    b.copy(0, {task.root(), Space::input, 0}, b.output(), at);
    if (helps) receive_slices(b, 0, task.root(), slices);
    b.signal(0, task.root(), tag(Phase::done));
  }
}

constexpr Algorithm kTable[] = {
    {kName, Collective::all_reduce,
     "each rank reduces its block straight from all inputs, the others copy it as it grows", fits,
     make_with<kName, all_reduce>},
    {kName, Collective::all_gather, "each rank copies every shard straight from its owner", fits,
     make_with<kName, all_gather>},
    {kName, Collective::reduce_scatter, "each rank reduces its block straight from all inputs", fits,
     make_with<kName, reduce_scatter>},
    {kName, Collective::broadcast, "each rank copies straight from the root, which writes a part to each",
     fits, make_with<kName, broadcast>},
    {kName, Collective::reduce,
     "each rank reduces a block straight from all inputs, the root copies the blocks", fits,
     make_with<kName, reduce>},
    {kName, Collective::all_to_all, "each rank copies its block straight from every peer", fits,
     make_with<kName, exchange::all_to_all>},
    {kName, Collective::gather, "each rank writes straight into the root's output", fits,
     make_with<kName, exchange::gather>},
    {kName, Collective::scatter, "each rank copies its block straight from the root", fits,
     make_with<kName, exchange::scatter>},
};

}  // namespace

std::span<const Algorithm> direct_algorithms() { return kTable; }

}  // namespace weft::plan
