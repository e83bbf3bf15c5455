// Verifies all stages together. First it compares what is sent with what is received. Then it runs the
// stages against each other, untimed. Lanes are queues, as in the executor: an operation begins when the
// previous one has ended. Each waiter waits for one operation.
#include <algorithm>
#include <deque>
#include <set>
#include <utility>

#include "program/verify.h"

namespace loom::program {
namespace {

std::string text_of(const std::vector<Program>& programs, int stage, int index) {
  return fmt::format("stage {}, {}", stage, program::text_of(programs[stage], index));
}

/// Instructions of one kind between two stages, in their order.
std::vector<int> transfers(const Program& program, Op op, int peer) {
  std::vector<int> found;
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i)
    if (program.instructions[i].op == op && (op == Op::tie || program.instructions[i].peer == peer))
      found.push_back(i);
  return found;
}

int64_t bytes_of(const Program& program, int index) {
  return program.buffers[program.instructions[index].uses.front().buffer].bytes;
}

/// What a transfer carries.
std::pair<int, int> key_of(const Instruction& transfer) { return {transfer.unit, transfer.microbatch}; }

Status match(const std::vector<Program>& programs, Op send_op, Op receive_op, int from, int to) {
  const std::vector<int> sends = transfers(programs[from], send_op, to);
  const std::vector<int> receives = transfers(programs[to], receive_op, from);
  const auto keys = [&](int stage, const std::vector<int>& list) {
    std::set<std::pair<int, int>> all;
    for (const int i : list) all.insert(key_of(programs[stage].instructions[i]));
    return all;
  };
  const auto sent_keys = keys(from, sends), received_keys = keys(to, receives);
  for (const int receive : receives)
    if (!sent_keys.contains(key_of(programs[to].instructions[receive])))
      return fail(Code::internal_error, "{} waits for what stage {} never sends",
                  text_of(programs, to, receive), from);
  for (const int send : sends)
    if (!received_keys.contains(key_of(programs[from].instructions[send])))
      return fail(Code::internal_error, "{} is never received by stage {}", text_of(programs, from, send),
                  to);
  if (sends.size() != receives.size())
    return fail(Code::internal_error, "stage {} sends {} times to stage {}, which receives {} times", from,
                sends.size(), to, receives.size());
  for (size_t k = 0; k < sends.size(); ++k) {
    const Instruction& sent = programs[from].instructions[sends[k]];
    const Instruction& received = programs[to].instructions[receives[k]];
    if (sent.unit != received.unit || sent.microbatch != received.microbatch)
      return fail(Code::internal_error, "{} would receive what is sent as number {} between the two: {}",
                  text_of(programs, to, receives[k]), k, text_of(programs, from, sends[k]));
    if (bytes_of(programs[from], sends[k]) != bytes_of(programs[to], receives[k]))
      return fail(Code::internal_error, "{} has {} bytes, but {} has {}", text_of(programs, from, sends[k]),
                  bytes_of(programs[from], sends[k]), text_of(programs, to, receives[k]),
                  bytes_of(programs[to], receives[k]));
  }
  return {};
}

Status match_ties(const std::vector<Program>& programs) {
  const int last = static_cast<int>(programs.size()) - 1;
  for (int stage = 0; stage <= last; ++stage) {
    const std::vector<int> ties = transfers(programs[stage], Op::tie, -1);
    const size_t wanted = transfers(programs[last], Op::tie, -1).size();
    if (stage != 0 && stage != last && !ties.empty())
      return fail(Code::internal_error, "{} is not at an end of the pipeline",
                  text_of(programs, stage, ties[0]));
    if (stage == 0 && ties.size() != wanted)
      return fail(Code::internal_error,
                  "the first stage adds up the tied embedding {} times, the last stage {} times", ties.size(),
                  wanted);
  }
  return {};
}

/// The stages against each other.
class CoExecution {
 public:
  explicit CoExecution(const std::vector<Program>& programs) : programs_(programs), stages_(programs.size()) {
    for (size_t s = 0; s < programs.size(); ++s) {
      stages_[s].over.assign(programs[s].instructions.size(), false);
      for (const Instruction& instruction : programs[s].instructions)
        stages_[s].lanes.resize(std::max<size_t>(stages_[s].lanes.size(), instruction.lane + 1));
    }
  }

  Status run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t s = 0; s < stages_.size(); ++s) moved |= issue(static_cast<int>(s));
      for (size_t s = 0; s < stages_.size(); ++s) moved |= complete(static_cast<int>(s));
      moved |= meet();
    }
    for (size_t s = 0; s < stages_.size(); ++s)
      if (stages_[s].next < programs_[s].instructions.size())
        return fail(Code::internal_error, "no stage can go on: {} waits for ever, and so do the others",
                    text_of(programs_, static_cast<int>(s), static_cast<int>(stages_[s].next)));
    return {};
  }

 private:
  struct Stage {
    size_t next = 0;                     // instruction to be issued
    size_t passed = 0;                   // of what that comes after: so many, from the first on, are over
    std::vector<bool> over;              // of each instruction
    std::vector<std::deque<int>> lanes;  // what is issued and not over
  };

  /// An instruction may come after many others, which end one by one: those that are over stay so.
  bool waits(int s) {
    Stage& stage = stages_[s];
    const std::vector<int>& after = programs_[s].instructions[stage.next].after;
    while (stage.passed < after.size() && stage.over[after[stage.passed]]) ++stage.passed;
    return stage.passed < after.size();
  }
  static void go_on(Stage& stage) {
    ++stage.next;
    stage.passed = 0;
  }

  /// Issues until something must be waited for; all stages meet at the norm and the mean loss.
  bool issue(int s) {
    Stage& stage = stages_[s];
    const std::vector<Instruction>& list = programs_[s].instructions;
    const size_t begin = stage.next;
    for (; stage.next < list.size() && !waits(s); go_on(stage)) {
      const Instruction& instruction = list[stage.next];
      if (is_meeting(instruction.op)) break;
      if (instruction.lane > 0) stage.lanes[instruction.lane].push_back(static_cast<int>(stage.next));
      else stage.over[stage.next] = true;
    }
    return stage.next > begin;
  }

  /// Whether the partner of a transfer or tie at the head of its lane is at the head of its own; ends both.
  bool complete(int s) {
    bool moved = false;
    for (auto& lane : stages_[s].lanes) {
      if (lane.empty()) continue;
      const int index = lane.front();
      const Instruction& own = programs_[s].instructions[index];
      if (is_transfer(own.op) || own.op == Op::tie) {
        const bool tie = own.op == Op::tie;
        const int other = tie ? (s == 0 ? static_cast<int>(stages_.size()) - 1 : 0) : own.peer;
        const Op partner = tie                       ? Op::tie
                           : own.op == Op::send      ? Op::receive
                           : own.op == Op::receive   ? Op::send
                           : own.op == Op::send_back ? Op::receive_back
                                                     : Op::send_back;
        if (!finish(other, partner, own)) continue;
      }
      stages_[s].over[index] = true;
      lane.pop_front();
      moved = true;
    }
    return moved;
  }

  bool finish(int s, Op op, const Instruction& wanted) {
    for (auto& lane : stages_[s].lanes) {
      if (lane.empty()) continue;
      const Instruction& head = programs_[s].instructions[lane.front()];
      if (head.op != op || head.unit != wanted.unit || head.microbatch != wanted.microbatch) continue;
      stages_[s].over[lane.front()] = true;
      lane.pop_front();
      return true;
    }
    return false;
  }

  bool meet() {
    for (size_t s = 0; s < stages_.size(); ++s) {
      const Stage& stage = stages_[s];
      if (stage.next == programs_[s].instructions.size()) return false;
      const Op op = programs_[s].instructions[stage.next].op;
      if (!is_meeting(op) || op != programs_[0].instructions[stages_[0].next].op ||
          waits(static_cast<int>(s)))
        return false;
    }
    for (Stage& stage : stages_) {
      stage.over[stage.next] = true;
      go_on(stage);
    }
    return true;
  }

  const std::vector<Program>& programs_;
  std::vector<Stage> stages_;
};

}  // namespace

Status verify_pipeline(const std::vector<Program>& programs) {
  const int stages = static_cast<int>(programs.size());
  for (int s = 0; s < stages; ++s)
    for (int i = 0; i < static_cast<int>(programs[s].instructions.size()); ++i)
      if (const int peer = programs[s].instructions[i].peer; peer >= stages || peer == s)
        return fail(Code::internal_error, "{} names stage {} of {}", text_of(programs, s, i), peer, stages);
  for (int from = 0; from < stages; ++from)
    for (int to = 0; to < stages; ++to) {
      LOOM_TRY(match(programs, Op::send, Op::receive, from, to));
      LOOM_TRY(match(programs, Op::send_back, Op::receive_back, from, to));
    }
  LOOM_TRY(match_ties(programs));
  return CoExecution(programs).run();
}

}  // namespace loom::program
