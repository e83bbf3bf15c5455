// Symbolic execution of steps and exchanges: each buffer holds the name of an array of a unit's recipe.
#include "program/verify_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "program/steps.h"

namespace loom::program {
namespace {

/// What a buffer holds.
struct Value {
  int unit = -1, microbatch = -1, array = -1;
  bool operator==(const Value&) const = default;
};

class StepExecution {
 public:
  StepExecution(const Job& job, const Program& program)
      : job_(job), program_(program), recipes_(job.recipes()), values_(program.buffers.size()) {}

  ResultProblem run() {
    for (size_t i = 0; i < program_.instructions.size(); ++i)
      if (std::string problem = execute(program_.instructions[i]); !problem.empty())
        return {static_cast<int>(i), std::move(problem)};
    for (const auto& [key, done] : progress_)
      if (const auto [op, unit, microbatch] = key; done != count(op, unit))
        return {-1, fmt::format("{} of unit {}, microbatch {}, has {} of {} steps", op_name(op), unit,
                                microbatch, done, count(op, unit))};
    return {};
  }

 private:
  using I = const Instruction&;

  const model::Recipe& recipe(Op op, int unit) const { return recipe_of(recipes_, unit, program_.units, op); }
  const std::vector<model::Step>& steps(Op op, int unit) const { return steps_of(recipe(op, unit), op); }
  int count(Op op, int unit) const { return static_cast<int>(steps(op, unit).size()); }

  std::string execute(I i) {
    if (i.op == Op::tensor_gather && i.buffer(Role::batch) >= 0) return gather_batch();
    if (i.op == Op::tensor_gradients) return sum_gradients(i);
    if (i.op == Op::squares || i.op == Op::step) return needs_summed(i);
    if (i.op == Op::batch) return load_batch(i);
    if (is_exchange(i.op)) return exchange(i);
    return is_compute(i.op) ? compute(i) : "";
  }

  /// Steps come one after the other.
  std::string due(I i, Op pass) {
    int& next = progress_[{pass, i.unit, i.microbatch}];
    if (i.last > count(pass, i.unit)) return fmt::format("there are {} steps", count(pass, i.unit));
    if (i.first != next) return fmt::format("comes when step {} is due", next);
    next = i.last;
    return "";
  }

  std::string compute(I i) {
    if (i.buffer(Role::batch) >= 0 && !loaded_.contains(i.microbatch))
      return "reads a microbatch that is not there";
    if (std::string problem = due(i, i.op); !problem.empty()) return problem;
    if (i.buffer(Role::workspace) >= 0) {
      const std::tuple user(i.op, i.unit, i.microbatch);
      const bool goes_on = std::any_of(i.uses.begin(), i.uses.end(), [](const Use& use) {
        return use.role == Role::workspace && use.reads;
      });
      if (goes_on && workspace_ != user) return "goes on with a workspace that another pass has used";
      workspace_ = user;
    }
    for (int k = i.first; k < i.last; ++k)
      if (std::string problem = step(i, steps(i.op, i.unit)[static_cast<size_t>(k)]); !problem.empty())
        return problem;
    return "";
  }

  std::string step(I i, const model::Step& step) {
    if (model::is_exchange(step.kernel)) return "computes what the tensor ranks exchange";
    if (model::attends(step.kernel) && job_.attention_reads_batch() && i.buffer(Role::batch) < 0)
      return "does not know where texts end";
    for (const int array : step.reads)
      if (std::string problem = reads(i, array); !problem.empty()) return problem;
    for (const int array : step.writes)
      if (const BufferId buffer = exchanged(i, array); buffer >= 0)
        values_[static_cast<size_t>(buffer)] = {i.unit, i.microbatch, array};
    return "";
  }

  const model::Array& array_of(I i, int array) const {
    const Op pass = is_exchange(i.op) ? i.pass : i.op;
    return recipe(pass, i.unit).arrays[static_cast<size_t>(array)];
  }
  /// The buffer of an array that ranks exchange; -1 of others.
  BufferId exchanged(I i, int array) const {
    if (array < 0) return -1;
    for (const Use& use : i.uses)
      if (use.array == array) return use.buffer;
    return -1;
  }
  std::string reads(I i, int array) const {
    if (array < 0 || array_of(i, array).place != model::Place::exchanged) return "";
    const BufferId buffer = exchanged(i, array);
    if (buffer >= 0 && values_[static_cast<size_t>(buffer)] == Value{i.unit, i.microbatch, array}) return "";
    return fmt::format("does not see \"{}\", its array {}", array_of(i, array).name, array);
  }

  std::string exchange(I i) {
    if (std::string problem = due(i, i.pass); !problem.empty()) return problem;
    const model::Step& step = steps(i.pass, i.unit)[static_cast<size_t>(i.first)];
    if (!model::is_exchange(step.kernel) || exchange_of(step.kernel) != i.op || i.last != i.first + 1)
      return fmt::format("stands where the recipe has no {}", op_name(i.op));
    if (std::string problem = reads(i, step.reads[0]); !problem.empty()) return problem;
    if (const BufferId buffer = exchanged(i, step.writes[0]); buffer >= 0)
      values_[static_cast<size_t>(buffer)] = {i.unit, i.microbatch, step.writes[0]};
    return "";
  }

  std::string gather_batch() {
    if (job_.prescaled_batch || batch_gathered_) return "gathers sequences that every tensor rank has";
    batch_gathered_ = true;
    return "";
  }

  std::string load_batch(I i) {
    if (program_.shared && !job_.prescaled_batch && !batch_gathered_)
      return "reads the sequences that one tensor rank was given, not those of all";
    return loaded_.insert(i.microbatch).second ? "" : "copies a microbatch that is there already";
  }

  std::string sum_gradients(I i) {
    if (!job_.sums_over_tensor_ranks(i.unit)) return "sums gradients that are whole already";
    if (++summed_[i.buffer(Role::shard)] > 1) return "sums a gradient over the tensor ranks twice";
    return "";
  }
  std::string needs_summed(I i) {
    for (const Use& use : i.uses)
      if (use.role == Role::shard && job_.sums_over_tensor_ranks(i.unit) && !summed_.contains(use.buffer))
        return fmt::format("{} was not summed over the tensor ranks",
                           program_.buffers[static_cast<size_t>(use.buffer)].name);
    return "";
  }

  const Job& job_;
  const Program& program_;
  const model::Recipes recipes_;
  std::vector<Value> values_;
  std::map<std::tuple<Op, int, int>, int> progress_;         // steps of a pass that have come
  std::tuple<Op, int, int> workspace_ = {Op::step, -1, -1};  // the pass that used it last
  std::map<BufferId, int> summed_;                           // gradients
  bool batch_gathered_ = false;
  std::set<int> loaded_;  // microbatches
};

/// Adds what `more` uses and `into` does not.
void join_uses(std::vector<Use>& into, const std::vector<Use>& more) {
  for (const Use& use : more) {
    if (use.role == Role::exchanged) continue;
    const auto found =
        std::find_if(into.begin(), into.end(), [&](const Use& other) { return other.role == use.role; });
    if (found == into.end()) into.push_back(use);
    else found->writes |= use.writes;
  }
}

/// What an exchange takes from what its pass is given.
std::vector<Use> given_to(const model::Recipes& recipes, int units, const Instruction& exchange) {
  const model::Recipe& recipe = recipe_of(recipes, exchange.unit, units, exchange.pass);
  std::vector<Use> uses;
  for (const Use& use : exchange.uses)
    if (const model::Array& array = recipe.arrays[static_cast<size_t>(use.array)];
        array.place == model::Place::given)
      uses.push_back({role_of(array.given), use.buffer, use.reads, use.writes});
  return uses;
}

bool same_pass(const Instruction& a, const Instruction& b) {
  return a.op == b.op && a.unit == b.unit && a.microbatch == b.microbatch;
}

}  // namespace

ResultProblem check_steps(const Job& job, const Program& program) {
  return StepExecution(job, program).run();
}

Folded fold_steps(const Job& job, const Program& program) {
  Folded folded;
  folded.program = program;
  if (!program.shared) {
    folded.instruction.resize(program.instructions.size());
    for (size_t i = 0; i < folded.instruction.size(); ++i) folded.instruction[i] = static_cast<int>(i);
    return folded;
  }
  folded.program.instructions.clear();
  const model::Recipes recipes = job.recipes();
  std::vector<Use> uses;
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    Instruction instruction = program.instructions[static_cast<size_t>(i)];
    if (is_exchange(instruction.op)) {
      if (instruction.first >= 0) join_uses(uses, given_to(recipes, program.units, instruction));
      continue;
    }
    if (is_compute(instruction.op)) {
      join_uses(uses, instruction.uses);
      const auto next = std::find_if(program.instructions.begin() + i + 1, program.instructions.end(),
                                     [](const Instruction& other) { return is_compute(other.op); });
      if (next != program.instructions.end() && same_pass(*next, instruction)) continue;
      instruction.uses = std::exchange(uses, {});
    }
    folded.program.instructions.push_back(std::move(instruction));
    folded.instruction.push_back(i);
  }
  return folded;
}

}  // namespace loom::program
