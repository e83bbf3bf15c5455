// Activation checkpointing as a pass: forward gives what it saves a buffer that nobody reads, and before the
// group's backward the same instructions come again, as recompute, with buffers that backward then reads.
#include <map>
#include <numeric>
#include <utility>

#include "program/generate.h"

namespace loom::program {
namespace {

/// The use of that role; every compute instruction of a block has it.
Use& use_of(Instruction& instruction, Role role) {
  for (Use& use : instruction.uses)
    if (use.role == role) return use;
  return instruction.uses.front();
}

/// What is computed again, and where.
struct Group {
  std::vector<Instruction> again;
  std::vector<std::pair<BufferId, BufferId>>
      renamed;  // what is read from there on, instead of what forward made
};

/// Recomputes the forward instructions at `group`.
Group recompute(Program& program, const std::vector<size_t>& group) {
  Group made;
  std::map<BufferId, BufferId> renamed;
  for (const size_t index : group) {
    Instruction copy = program.instructions[index];
    copy.op = Op::recompute;
    for (const Role role : {Role::output, Role::saved}) {
      Use& use = use_of(copy, role);
      const Buffer old = program.buffers[use.buffer];
      const BufferId fresh = program.add(old.name + " again", old.category, old.bytes);
      // The last output went to the next group, the head or the next stage.
      if (role == Role::saved || index != group.back()) renamed[use.buffer] = fresh;
      use.buffer = fresh;
    }
    for (Use& use : copy.uses)
      if (use.role == Role::input && renamed.contains(use.buffer)) use.buffer = renamed[use.buffer];
    made.again.push_back(std::move(copy));
  }
  made.renamed.assign(renamed.begin(), renamed.end());
  return made;
}

/// Where a stage's blocks go forward and back: [microbatch · units + unit].
struct Passes {
  std::vector<size_t> forward, backward;

  explicit Passes(const Program& program)
      : forward(static_cast<size_t>(program.microbatches * program.units)), backward(forward.size()) {
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& instruction = program.instructions[i];
      if (instruction.op != Op::forward && instruction.op != Op::backward) continue;
      const auto at = static_cast<size_t>(instruction.microbatch * program.units + instruction.unit);
      (instruction.op == Op::forward ? forward : backward)[at] = i;
    }
  }
};

void checkpoint_part(const Job& job, const Part& part, int m, const Passes& passes, Program& program,
                     std::map<size_t, Group>& groups) {
  const int end = std::min(part.end, program.units - 1), size = job.checkpoint_group;
  for (int first = std::max(part.begin, 1); first < end; first += size) {
    if (!job.recomputes(first)) continue;
    const int last = std::min(first + size, end) - 1;
    std::vector<size_t> group;
    for (int unit = first; unit <= last; ++unit)
      group.push_back(passes.forward[static_cast<size_t>(m * program.units + unit)]);
    groups[passes.backward[static_cast<size_t>(m * program.units + last)]] = recompute(program, group);
  }
}

}  // namespace

void checkpoint_activations(const Job& job, Program& program) {
  if (job.checkpoint_group == 0) return;
  const Passes passes(program);
  std::map<size_t, Group> groups;  // by the instruction that they come before
  for (const Part& part : parts_of(job)) {
    if (part.stage != program.stage) continue;
    for (int m = 0; m < job.microbatches; ++m) checkpoint_part(job, part, m, passes, program, groups);
  }
  std::vector<Instruction> result;
  std::vector<BufferId> now(program.buffers.size());
  std::iota(now.begin(), now.end(), 0);
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    if (const auto found = groups.find(i); found != groups.end()) {
      for (Instruction& again : found->second.again) result.push_back(std::move(again));
      for (const auto& [old, fresh] : found->second.renamed) now[static_cast<size_t>(old)] = fresh;
    }
    for (Use& use : program.instructions[i].uses) use.buffer = now[static_cast<size_t>(use.buffer)];
    result.push_back(std::move(program.instructions[i]));
  }
  program.instructions = std::move(result);
}

}  // namespace loom::program
