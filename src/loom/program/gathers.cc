// Where units are gathered: a cache of gathered units whose future is known. A unit is gathered when it is
// needed and not in memory. When room is short, the unit with the farthest next use is given up. The
// exception is a unit whose next gather would start at once, because then there is room for it all the same.
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
    hiding_before_.reserve(program.instructions.size());
    int hiding = 0;
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      for (const Need& need : needs_of(program.instructions[i])) uses_[need.unit].push_back(i);
      hiding_before_.push_back(hiding);
      hiding += hides_communication(program.instructions[i]);
    }
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
    live_ += job_.padded(units_[unit]);
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

  /// Whether prefetch() would issue its next gather right behind its last use before `now`.
  bool is_needed_at_once(int unit, size_t now) const {
    const auto next = std::lower_bound(uses_[unit].begin(), uses_[unit].end(), now);
    if (next == uses_[unit].begin() || next == uses_[unit].end()) return false;
    const size_t last = *std::prev(next);
    const int between =
        hiding_before_[*next] - hiding_before_[last] - hides_communication(program_.instructions[last]);
    return between <= job_.prefetch;
  }

  void make_room(size_t now, const std::vector<Need>& needs, int64_t elements) {
    const auto needed = [&](int unit) {
      for (const Need& need : needs)
        if (need.unit == unit) return true;
      return false;
    };
    if (job_.shard_optimizer_only) return;
    while (live_ + elements > job_.live_elements) {
      int farthest = -1;
      for (const auto& [unit, buffer] : there_) {
        if (needed(unit) || is_needed_at_once(unit, now)) continue;
        if (farthest < 0 || next_use(unit, now) > next_use(farthest, now)) farthest = unit;
      }
      if (farthest < 0) return;
      there_.erase(farthest);
      live_ -= job_.padded(units_[farthest]);
    }
  }

  const Job& job_;
  Program& program_;
  std::vector<model::Unit> units_;
  std::vector<std::vector<size_t>> uses_;  // of each unit: the instructions that need it, ascending
  std::vector<int> hiding_before_;         // of each instruction: those before it that hide communication
  std::map<int, BufferId> there_;
  int64_t live_ = 0;  // elements of what is there
  int gathered_ = 0;
};

}  // namespace

void insert_gathers(const Job& job, Program& program) {
  if (job.degree > 1) Cache(job, program).run();
}

}  // namespace loom::program
