// Passes that let collectives run behind computing: gathers are issued early, waits come late.
#include <algorithm>
#include <array>
#include <deque>

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
    for (int passed = 0; to + 1 < list.size() && list[to + 1].op != Op::squares; ++to) {
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

/// Communication that nothing has waited for. It is found by its buffers, or by its kind from the oldest on.
/// So no instruction looks at all that is in flight.
class Pending {
 public:
  explicit Pending(const Program& program)
      : program_(program), waited_(program.instructions.size()), users_(program.buffers.size()) {}

  void add(int i) {
    const Instruction& instruction = program_.instructions[static_cast<size_t>(i)];
    for (const Use& use : instruction.uses)
      users_[static_cast<size_t>(use.buffer)].push_back({i, use.writes});
    Kind& kind = kinds_[static_cast<size_t>(instruction.op)];
    kind.order.push_back(i);
    ++kind.count;
  }

  /// Finds what uses a buffer of this instruction, of which one of the two writes.
  void find_conflicts(const Instruction& instruction, std::vector<int>& found) {
    for (const Use& use : instruction.uses) {
      std::vector<User>& users = users_[static_cast<size_t>(use.buffer)];
      std::erase_if(users, [&](const User& user) { return waited_[static_cast<size_t>(user.instruction)]; });
      for (const User& user : users)
        if (use.writes || user.writes) found.push_back(user.instruction);
    }
  }
  /// Finds the oldest of a kind, all but `left`.
  void find_oldest(Op op, int left, std::vector<int>& found) {
    Kind& kind = kinds_[static_cast<size_t>(op)];
    for (int more = kind.count - left; more > 0; kind.order.pop_front()) {
      if (waited_[static_cast<size_t>(kind.order.front())]) continue;
      found.push_back(kind.order.front());
      --more;
    }
  }
  void wait_for(int i) {
    waited_[static_cast<size_t>(i)] = true;
    --kinds_[static_cast<size_t>(program_.instructions[static_cast<size_t>(i)].op)].count;
  }

 private:
  struct User {
    int instruction;
    bool writes;
  };
  struct Kind {
    std::deque<int> order;  // some may be waited for
    int count = 0;          // those that are not
  };

  const Program& program_;
  std::vector<bool> waited_;
  std::vector<std::vector<User>> users_;  // of each buffer
  std::array<Kind, kOps> kinds_;
};

}  // namespace

void connect(int in_flight, Program& program) {
  Pending pending(program);
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    Instruction& instruction = program.instructions[static_cast<size_t>(i)];
    instruction.lane = lane_of(instruction.op);
    std::vector<int>& after = instruction.after;
    after.clear();
    pending.find_conflicts(instruction, after);
    if (instruction.op == Op::backward || instruction.op == Op::loss)
      pending.find_oldest(Op::reduce_scatter, in_flight, after);
    if (is_transfer(instruction.op)) pending.find_oldest(instruction.op, kTransfersInFlight - 1, after);
    if (is_compute(instruction.op)) pending.find_oldest(Op::offload, kOffloadsInFlight, after);
    std::sort(after.begin(), after.end());
    after.erase(std::unique(after.begin(), after.end()), after.end());
    for (const int other : after) pending.wait_for(other);
    if (instruction.lane != 0) pending.add(i);
  }
  find_stream_waits(program);
}

}  // namespace loom::program
