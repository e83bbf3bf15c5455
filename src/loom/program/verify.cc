// Structure, order and memory; the result is in verify_result.cc.
#include "program/verify.h"

#include "program/order.h"
#include "program/verify_result.h"

namespace loom::program {
namespace {

Status check_structure(const Program& program) {
  const int buffers = static_cast<int>(program.buffers.size());
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (is_communication(instruction.op) != (instruction.lane > 0))
      return fail(Code::internal_error,
                  "{} is on lane {}; communication is on lanes above 0, and nothing else is",
                  text_of(program, i), instruction.lane);
    if (is_transfer(instruction.op) != (instruction.peer >= 0))
      return fail(Code::internal_error, "{} names stage {}; transfers name their peer, and nothing else does",
                  text_of(program, i), instruction.peer);
    for (const Use& use : instruction.uses)
      if (use.buffer < 0 || use.buffer >= buffers)
        return fail(Code::internal_error, "{} uses buffer {}, there are {}", text_of(program, i), use.buffer,
                    buffers);
    for (const int before : instruction.after)
      if (before < 0 || before >= i)
        return fail(Code::internal_error, "{} comes after instruction {}, which is not before it",
                    text_of(program, i), before);
  }
  return {};
}

Status check_order(const Program& program) {
  const std::vector<int64_t> ends = ends_of(program);
  struct History {
    int writer = -1;
    std::vector<int> readers;  // since
  };
  std::vector<History> histories(program.buffers.size());
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i)
    for (const Use& use : program.instructions[i].uses) {
      History& history = histories[use.buffer];
      const Buffer& buffer = program.buffers[use.buffer];
      const auto over = [&](int other) { return other < 0 || other == i || ends[other] <= 2 * i; };
      if (use.reads && history.writer < 0 && !buffer.persistent)
        return fail(Code::internal_error, "{} reads {}, which nobody has written", text_of(program, i),
                    buffer.name);
      if (!over(history.writer))
        return fail(Code::internal_error, "{} uses {} while {} may still write it", text_of(program, i),
                    buffer.name, text_of(program, history.writer));
      if (!use.writes) {
        history.readers.push_back(i);
        continue;
      }
      for (const int reader : history.readers)
        if (!over(reader))
          return fail(Code::internal_error, "{} writes {} while {} may still read it", text_of(program, i),
                      buffer.name, text_of(program, reader));
      history = {i, {}};
    }
  return {};
}

Status check_memory(const Program& program, const MemoryPlan& memory) {
  const std::vector<Lifetime> lifetimes = lifetimes_of(program);
  std::vector<BufferId> used;
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    if (lifetimes[b].end == 0) continue;
    const Buffer& buffer = program.buffers[b];
    if (memory.offset[b] < 0 || memory.offset[b] + buffer.bytes > memory.bytes)
      return fail(Code::internal_error, "{} lies at {}, outside the arena of {} bytes", buffer.name,
                  memory.offset[b], memory.bytes);
    used.push_back(static_cast<BufferId>(b));
  }
  for (size_t i = 0; i < used.size(); ++i)
    for (size_t j = i + 1; j < used.size(); ++j) {
      const BufferId a = used[i], b = used[j];
      if (!lifetimes[a].overlaps(lifetimes[b])) continue;
      if (memory.offset[a] < memory.offset[b] + program.buffers[b].bytes &&
          memory.offset[b] < memory.offset[a] + program.buffers[a].bytes)
        return fail(Code::internal_error, "{} and {} share memory and are in use together",
                    program.buffers[a].name, program.buffers[b].name);
    }
  return {};
}

}  // namespace

Status verify(const Job& job, const Program& program, const MemoryPlan& memory) {
  LOOM_TRY(check_structure(program));
  LOOM_TRY(check_order(program));
  LOOM_TRY(check_memory(program, memory));
  const ResultProblem problem = check_result(job, program);
  if (problem.instruction < 0) {
    if (problem.sentence.empty()) return {};
    return fail(Code::internal_error, "{}", problem.sentence);
  }
  return fail(Code::internal_error, "{}: {}", text_of(program, problem.instruction), problem.sentence);
}

}  // namespace loom::program
