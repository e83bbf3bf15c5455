// Passes that let collectives run behind computing: gathers are issued early, waits come late.
#include <algorithm>

#include "program/generate.h"

namespace loom::program {

void prefetch(int distance, Program& program) {
  std::vector<Instruction>& list = program.instructions;
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].op != Op::gather) continue;
    size_t to = i;
    // Gathers keep their order: all ranks issue them alike, and none overtakes what is needed sooner.
    for (int passed = 0; to > 0 && list[to - 1].op != Op::gather; --to)
      if (hides_communication(list[to - 1]) && ++passed > distance) break;
    std::rotate(list.begin() + static_cast<ptrdiff_t>(to), list.begin() + static_cast<ptrdiff_t>(i),
                list.begin() + static_cast<ptrdiff_t>(i) + 1);
  }
}

void postpone_waits(int distance, Program& program) {
  std::vector<Instruction>& list = program.instructions;
  // From the end, so that instructions that move keep their order.
  for (size_t i = list.size(); i-- > 0;) {
    if (list[i].op != Op::accumulate && list[i].op != Op::all_reduce) continue;
    size_t to = i;
    for (int passed = 0; to + 1 < list.size() && list[to + 1].op != Op::norm; ++to) {
      const Instruction& next = list[to + 1];
      if (next.op == Op::accumulate || next.op == Op::all_reduce || next.op == Op::tie) break;
      if (next.op == Op::reduce_scatter && next.unit == list[i].unit && next.microbatch < 0) break;
      if ((next.op == Op::backward || next.op == Op::loss) && ++passed > distance) break;
    }
    std::rotate(list.begin() + static_cast<ptrdiff_t>(i), list.begin() + static_cast<ptrdiff_t>(i) + 1,
                list.begin() + static_cast<ptrdiff_t>(to) + 1);
  }
}

namespace {

constexpr int kTransfersInFlight = 2;  // of a kind
constexpr int kOffloadsInFlight = 2;   // what a block leaves: its output and what it saves

/// A lane for each kind: what is on it begins when what was issued there before is over.
int lane_of(Op op) {
  if (op == Op::gather) return 1;
  if (op == Op::reduce_scatter || op == Op::all_reduce || op == Op::tie) return 2;
  if (is_exchange(op)) return 3;
  if (is_transfer(op)) return 4 + static_cast<int>(op) - static_cast<int>(Op::send);
  return is_offloading(op) ? 8 : 0;
}

}  // namespace

void connect(int in_flight, Program& program) {
  std::vector<int> pending;  // collectives that nothing has waited for, in order
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    Instruction& instruction = program.instructions[i];
    instruction.lane = lane_of(instruction.op);
    instruction.after.clear();
    const bool makes_gradient = instruction.op == Op::backward || instruction.op == Op::loss;
    int reductions = 0, offloads = 0, transfers = 0;
    for (const int other : pending) {
      reductions += program.instructions[other].op == Op::reduce_scatter;
      offloads += program.instructions[other].op == Op::offload;
      transfers += is_transfer(instruction.op) && program.instructions[other].op == instruction.op;
    }
    for (const int other : pending) {
      const Instruction& before = program.instructions[other];
      bool wait = false;
      for (const Use& use : instruction.uses)
        for (const Use& earlier : before.uses)
          wait |= use.buffer == earlier.buffer && (use.writes || earlier.writes);
      if (makes_gradient && before.op == Op::reduce_scatter && reductions-- > in_flight) wait = true;
      if (is_transfer(instruction.op) && before.op == instruction.op && transfers-- >= kTransfersInFlight)
        wait = true;
      if (is_compute(instruction.op) && before.op == Op::offload && offloads-- > kOffloadsInFlight)
        wait = true;
      if (wait) instruction.after.push_back(other);
    }
    for (const int other : instruction.after) std::erase(pending, other);
    if (instruction.lane != 0) pending.push_back(i);
  }
}

}  // namespace loom::program
