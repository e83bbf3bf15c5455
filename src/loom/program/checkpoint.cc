// Activation checkpointing as a pass: forward gives what it saves a buffer that nobody reads, and before the
// group's backward the same instructions come again, as recompute, with buffers that backward then reads.
#include <map>

#include "program/generate.h"

namespace loom::program {
namespace {

/// The use of that role; every compute instruction of a block has it.
Use& use_of(Instruction& instruction, Role role) {
  for (Use& use : instruction.uses)
    if (use.role == role) return use;
  return instruction.uses.front();
}

/// Recomputes the forward instructions at `group` and redirects what comes after position `at` in the program
/// to what they make. Returns them.
std::vector<Instruction> recompute(Program& program, const std::vector<size_t>& group, size_t at) {
  std::vector<Instruction> again;
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
    again.push_back(std::move(copy));
  }
  for (size_t i = at; i < program.instructions.size(); ++i)
    for (Use& use : program.instructions[i].uses)
      if (const auto found = renamed.find(use.buffer); found != renamed.end()) use.buffer = found->second;
  return again;
}

void checkpoint_part(const Job& job, const Part& part, int m, Program& program) {
  const int end = std::min(part.end, program.units - 1), size = job.checkpoint_group;
  for (int first = std::max(part.begin, 1); first < end; first += size) {
    if (!job.recomputes(first)) continue;
    const int last = std::min(first + size, end) - 1;
    std::vector<size_t> group;
    size_t at = 0;
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& instruction = program.instructions[i];
      if (instruction.microbatch != m) continue;
      if (instruction.op == Op::forward && instruction.unit >= first && instruction.unit <= last)
        group.push_back(i);
      if (instruction.op == Op::backward && instruction.unit == last) at = i;
    }
    std::vector<Instruction> again = recompute(program, group, at);
    program.instructions.insert(program.instructions.begin() + static_cast<ptrdiff_t>(at), again.begin(),
                                again.end());
  }
}

}  // namespace

void checkpoint_activations(const Job& job, Program& program) {
  if (job.checkpoint_group == 0) return;
  for (const Part& part : parts_of(job)) {
    if (part.stage != program.stage) continue;
    for (int m = 0; m < job.microbatches; ++m) checkpoint_part(job, part, m, program);
  }
}

}  // namespace loom::program
