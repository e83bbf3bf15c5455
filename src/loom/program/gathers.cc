// Where units are gathered. A cache of gathered units whose future is known: what is needed is gathered when
// it is not there, and when room is short the unit whose next use is farthest is given up.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "program/generate.h"

namespace loom::program {
namespace {

/// A use of a unit's whole parameters.
struct Need {
  int unit;
  size_t use;  // of the instruction
};

std::vector<Need> needs_of(const Instruction& instruction) {
  std::vector<Need> needs;
  if (!is_compute(instruction.op)) return needs;
  for (size_t i = 0; i < instruction.uses.size(); ++i) {
    if (instruction.uses[i].role == Role::parameters) needs.push_back({instruction.unit, i});
    if (instruction.uses[i].role == Role::tied_parameters) needs.push_back({0, i});
  }
  return needs;
}

class Cache {
 public:
  Cache(const Job& job, Program& program)
      : job_(job), program_(program), units_(job.held_units()), uses_(units_.size()) {
    for (size_t i = 0; i < program.instructions.size(); ++i)
      for (const Need& need : needs_of(program.instructions[i])) uses_[need.unit].push_back(i);
  }

  void run() {
    std::vector<Instruction> result;
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      Instruction instruction = program_.instructions[i];
      const std::vector<Need> needs = needs_of(instruction);
      for (const Need& need : needs)
        if (!there_.contains(need.unit)) {
          make_room(i, needs, job_.padded(units_[need.unit]));
          result.push_back(gather(need.unit));
        }
      for (const Need& need : needs) instruction.uses[need.use].buffer = there_.at(need.unit);
      result.push_back(std::move(instruction));
    }
    program_.instructions = std::move(result);
  }

 private:
  Instruction gather(int unit) {
    const BufferId whole = program_.add(fmt::format("gathered {} #{}", units_[unit].name(), ++gathered_),
                                        Category::gathered, job_.padded(units_[unit]) * job_.element_bytes());
    there_[unit] = whole;
    return {Op::gather,
            unit,
            -1,
            0,
            {{Role::shard, program_.shards[unit], true, false}, {Role::parameters, whole, false, true}},
            {}};
  }

  size_t next_use(int unit, size_t from) const {
    const auto next = std::lower_bound(uses_[unit].begin(), uses_[unit].end(), from);
    return next == uses_[unit].end() ? std::numeric_limits<size_t>::max() : *next;
  }

  void make_room(size_t now, const std::vector<Need>& needs, int64_t elements) {
    const auto needed = [&](int unit) {
      for (const Need& need : needs)
        if (need.unit == unit) return true;
      return false;
    };
    while (true) {
      int64_t live = elements;
      int farthest = -1;
      for (const auto& [unit, buffer] : there_) {
        live += job_.padded(units_[unit]);
        if (!needed(unit) && (farthest < 0 || next_use(unit, now) > next_use(farthest, now))) farthest = unit;
      }
      if (job_.shard_optimizer_only || live <= job_.live_elements || farthest < 0) return;
      there_.erase(farthest);
    }
  }

  const Job& job_;
  Program& program_;
  std::vector<model::Unit> units_;
  std::vector<std::vector<size_t>> uses_;  // of each unit: the instructions that need it, ascending
  std::map<int, BufferId> there_;
  int gathered_ = 0;
};

}  // namespace

void insert_gathers(const Job& job, Program& program) {
  if (job.degree > 1) Cache(job, program).run();
}

}  // namespace loom::program
