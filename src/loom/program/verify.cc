// Structure, order, streams and memory; the result is in verify_result.cc.
#include "program/verify.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "program/order.h"
#include "program/verify_steps.h"

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
    for (const Use& use : instruction.uses)
      if (program.buffers[use.buffer].in_tier != (use.role == Role::stored))
        return fail(Code::internal_error, "{} uses {} in the wrong place", text_of(program, i),
                    program.buffers[use.buffer].name);
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

/// Vector clocks: how far each stream has come by what it has waited for. A stream comes after a clock's
/// instructions of each lane up to that one.
Status check_streams(const Program& program) {
  const std::vector<Instruction>& list = program.instructions;
  int lanes = 1;
  for (const Instruction& instruction : list) lanes = std::max(lanes, instruction.lane + 1);
  using Clock = std::vector<int>;  // by lane: the number of an instruction and 1; 0: none
  const auto join = [](Clock& clock, const Clock& other) {
    for (size_t lane = 0; lane < clock.size(); ++lane) clock[lane] = std::max(clock[lane], other[lane]);
  };
  const Clock none(static_cast<size_t>(lanes), 0);
  std::vector<Clock> clocks(static_cast<size_t>(lanes), none);  // of streams
  std::vector<Clock> ended(list.size());                        // of instructions on lanes
  Clock due = none;  // what everything that is issued from here on has to come after
  // What was computed before the program counts as its first instruction.
  clocks[0][0] = due[0] = 1;
  for (int i = 0; i < static_cast<int>(list.size()); ++i) {
    const Instruction& instruction = list[static_cast<size_t>(i)];
    const auto lane = static_cast<size_t>(instruction.lane);
    for (const int event : instruction.events) {
      if (event < 0 || event >= i || list[static_cast<size_t>(event)].lane == 0)
        return fail(Code::internal_error, "{} waits for instruction {}, which is on no lane before it",
                    text_of(program, i), event);
      join(clocks[0], ended[static_cast<size_t>(event)]);
    }
    for (const int before : instruction.after) {
      int& last = due[static_cast<size_t>(list[static_cast<size_t>(before)].lane)];
      last = std::max(last, before + 1);
    }
    Clock& clock = clocks[lane];
    if (instruction.joins) join(clock, clocks[0]);
    for (size_t other = 0; other < due.size(); ++other)
      if (other != lane && clock[other] < due[other])
        return fail(Code::internal_error, "{} may begin before the end of {}", text_of(program, i),
                    text_of(program, due[other] - 1));
    clock[lane] = i + 1;
    if (lane == 0) due[0] = i + 1;
    else ended[static_cast<size_t>(i)] = clock;
  }
  return {};
}

/// What is in use at a time, in the arena or in the tier, by where it lies.
class InUse {
 public:
  InUse(const Program& program, const MemoryPlan& memory) : program_(program), memory_(memory) {}

  /// The buffer that lies where this one is to lie; -1: none.
  BufferId in_the_way_of(BufferId buffer) const {
    const auto& there = there_[program_.buffers[buffer].in_tier];
    const int64_t begin = memory_.offset[buffer], end = begin + program_.buffers[buffer].bytes;
    const auto next = there.lower_bound(begin);
    if (next != there.end() && next->first < end) return next->second;
    if (next == there.begin()) return -1;
    const auto& [offset, before] = *std::prev(next);
    return offset + program_.buffers[before].bytes > begin ? before : -1;
  }
  void add(BufferId buffer) {
    there_[program_.buffers[buffer].in_tier].emplace(memory_.offset[buffer], buffer);
  }
  void remove(BufferId buffer) { there_[program_.buffers[buffer].in_tier].erase(memory_.offset[buffer]); }

 private:
  const Program& program_;
  const MemoryPlan& memory_;
  std::map<int64_t, BufferId> there_[2];
};

Status check_memory(const Program& program, const MemoryPlan& memory) {
  const std::vector<Lifetime> lifetimes = lifetimes_of(program);
  std::vector<std::pair<int64_t, BufferId>> begins, ends;
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    if (lifetimes[b].end == 0) continue;
    const Buffer& buffer = program.buffers[b];
    const int64_t room = buffer.in_tier ? memory.tier_bytes : memory.bytes;
    if (memory.offset[b] < 0 || memory.offset[b] + buffer.bytes > room)
      return fail(Code::internal_error, "{} lies at {}, outside the {} of {} bytes", buffer.name,
                  memory.offset[b], buffer.in_tier ? "tier" : "arena", room);
    if (buffer.bytes == 0) continue;  // is in nobody's way
    begins.emplace_back(lifetimes[b].begin, static_cast<BufferId>(b));
    ends.emplace_back(lifetimes[b].end, static_cast<BufferId>(b));
  }
  std::sort(begins.begin(), begins.end());
  std::sort(ends.begin(), ends.end());
  InUse in_use(program, memory);
  auto over = ends.begin();
  for (const auto& [begin, buffer] : begins) {
    for (; over->first <= begin; ++over) in_use.remove(over->second);
    if (const BufferId other = in_use.in_the_way_of(buffer); other >= 0)
      return fail(Code::internal_error, "{} and {} share memory and are in use together",
                  program.buffers[std::min(buffer, other)].name,
                  program.buffers[std::max(buffer, other)].name);
    in_use.add(buffer);
  }
  return {};
}

}  // namespace

Status verify(const Job& job, const Program& program, const MemoryPlan& memory) {
  LOOM_TRY(check_structure(program));
  LOOM_TRY(check_order(program));
  LOOM_TRY(check_streams(program));
  LOOM_TRY(check_memory(program, memory));
  ResultProblem problem = check_steps(job, program);
  if (problem.sentence.empty()) {
    const Folded folded = fold_steps(job, program);
    problem = check_result(job, folded.program);
    if (problem.instruction >= 0)
      problem.instruction = folded.instruction[static_cast<size_t>(problem.instruction)];
  }
  if (problem.instruction < 0) {
    if (problem.sentence.empty()) return {};
    return fail(Code::internal_error, "{}", problem.sentence);
  }
  return fail(Code::internal_error, "{}: {}", text_of(program, problem.instruction), problem.sentence);
}

}  // namespace loom::program
