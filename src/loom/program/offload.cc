// Activation offloading as a pass: what forward leaves for a backward that is far away goes to the tier
// meanwhile. It comes back into memory of its own, `horizon` compute instructions before it is needed, on a
// lane that runs beside computing. SMP calls that distance activation_loading_horizon. Arrays that tensor
// ranks exchange and forward leaves for backward (Recipe::kept_bytes) stay in memory.
#include <algorithm>
#include <limits>

#include "program/generate.h"

namespace loom::program {
namespace {

/// The two ends of a gap in a buffer's use: its last use going forward and its first one going back.
struct Gap {
  BufferId buffer;
  size_t last, first;
};

bool goes_back(Op op) { return op == Op::recompute || op == Op::backward || op == Op::loss; }

std::vector<Gap> gaps_of(const Program& program) {
  constexpr size_t kNone = std::numeric_limits<size_t>::max();
  std::vector<Gap> gaps;
  for (size_t b = 0; b < program.buffers.size(); ++b)
    gaps.push_back({static_cast<BufferId>(b), kNone, kNone});
  for (size_t i = 0; i < program.instructions.size(); ++i)
    for (const Use& use : program.instructions[i].uses) {
      Gap& gap = gaps[use.buffer];
      if (program.instructions[i].op == Op::forward) gap.last = i;
      else if (goes_back(program.instructions[i].op) && gap.first == kNone) gap.first = i;
    }
  std::erase_if(gaps, [&](const Gap& gap) {
    const Buffer& buffer = program.buffers[gap.buffer];
    return buffer.category != Category::activations || buffer.persistent || gap.last == kNone ||
           gap.first == kNone || gap.first < gap.last;
  });
  // In the order in which they come back: the lane is a queue.
  std::stable_sort(gaps.begin(), gaps.end(), [](const Gap& a, const Gap& b) { return a.first < b.first; });
  return gaps;
}

/// Where a load for instruction `use` is issued: before the `horizon`-th compute instruction ahead of it.
/// 0 when that is not behind `from` with a compute instruction between, so that nothing would be gained.
size_t place_of_load(const Program& program, size_t from, size_t use, int horizon) {
  size_t place = use;
  for (int passed = 0; passed < horizon; ++passed) {
    do {
      if (--place <= from) return 0;
    } while (!is_compute(program.instructions[place].op));
  }
  for (size_t i = from + 1; i < place; ++i)
    if (is_compute(program.instructions[i].op)) return place;
  return 0;
}

Instruction moving(Op op, const Instruction& beside, std::vector<Use> uses) {
  Instruction instruction{};
  instruction.op = op;
  instruction.unit = beside.unit;
  instruction.microbatch = beside.microbatch;
  instruction.uses = std::move(uses);
  return instruction;
}

}  // namespace

void offload_activations(const Job& job, Program& program) {
  if (!job.offload) return;
  const size_t count = program.instructions.size();
  std::vector<std::vector<Instruction>> before(count + 1);  // what is issued before each instruction
  struct Moved {
    size_t from = std::numeric_limits<size_t>::max();  // instruction
    BufferId to = -1;
  };
  std::vector<Moved> moved(program.buffers.size());
  for (const Gap& gap : gaps_of(program)) {
    const size_t place = place_of_load(program, gap.last, gap.first, job.loading_horizon);
    if (place == 0) continue;
    const Buffer buffer = program.buffers[gap.buffer];
    const BufferId stored = program.add(buffer.name + " stored", buffer.category, buffer.bytes);
    const BufferId loaded = program.add(buffer.name + " loaded", buffer.category, buffer.bytes);
    program.buffers[stored].in_tier = true;
    before[gap.last + 1].push_back(
        moving(Op::offload, program.instructions[gap.last],
               {{Role::resident, gap.buffer, true, false}, {Role::stored, stored, false, true}}));
    before[place].push_back(
        moving(Op::load, program.instructions[gap.first],
               {{Role::stored, stored, true, false}, {Role::resident, loaded, false, true}}));
    moved[static_cast<size_t>(gap.buffer)] = {gap.first, loaded};
  }
  for (size_t i = 0; i < count; ++i)
    for (Use& use : program.instructions[i].uses)
      if (const Moved& there = moved[static_cast<size_t>(use.buffer)]; i >= there.from) use.buffer = there.to;
  std::vector<Instruction> result;
  for (size_t i = 0; i <= count; ++i) {
    for (Instruction& instruction : before[i]) result.push_back(std::move(instruction));
    if (i < count) result.push_back(std::move(program.instructions[i]));
  }
  program.instructions = std::move(result);
}

}  // namespace loom::program
