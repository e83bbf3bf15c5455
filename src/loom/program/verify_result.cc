// Symbolic execution: each buffer holds the name of a value, and each instruction checks the names that it
// reads and names what it writes.
#include "program/verify_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "program/microbatch_counts.h"

namespace loom::program {
namespace {

enum class What { nothing, parameters, activation, saved, derivative, gradient, other };

/// The parts of a tied embedding's gradient.
enum Halves { kOwn = 1, kHeads = 2, kBoth = 3 };

struct Value {
  What what = What::nothing;
  int unit = -1;                 // derivative: with respect to this unit's output
  int microbatch = -1;           // of activations
  MicrobatchCounts counts = {};  // gradient: how often each of this rank's microbatches is in it
  bool in_group = false;         // gradient: summed over the partition group
  bool everywhere = false;       // gradient: summed over the replicas, too
  int halves = kBoth;            // gradient of a tied embedding: which parts are in it
};

class Execution {
 public:
  Execution(const Job& job, const Program& program)
      : job_(job), program_(program), units_(job.held_units()), values_(program.buffers.size()) {
    for (int unit = 0; unit < program.units; ++unit)
      if (program.shards[unit] >= 0) set(program.shards[unit], {What::parameters, unit});
    owned_ = owned_units(job, program.stage);
    held_ = owned_;
    if (holds_copy(job, program.stage)) held_.push_back(0);
    for (const Part& part : parts_of(job))
      if (part.stage == program.stage) {
        ends_.push_back(part.end - 1);
        before_.push_back(part.begin - 1);
      }
  }

  ResultProblem run() {
    for (size_t i = 0; i < program_.instructions.size(); ++i)
      if (std::string problem = execute(program_.instructions[i]); !problem.empty())
        return {static_cast<int>(i), std::move(problem)};
    for (const model::Unit& unit : units_) {
      const bool held = contains(held_, unit.index);
      const auto steps = std::count(stepped_.begin(), stepped_.end(), unit.index);
      if (steps != (held && program_.trains))
        return {-1, fmt::format("unit {} is stepped {} times, must be {}", unit.index, steps,
                                held && program_.trains ? 1 : 0)};
    }
    if (only_logits_) return {};
    if (std::string problem = problem_of_losses(); !problem.empty()) return {-1, std::move(problem)};
    // A stage without the head does not know of an evaluation, and verify_pipeline() finds if it leaves this
    // out.
    if (means_ > 1 || (means_ == 0 && (program_.trains || contains(owned_, program_.units - 1))))
      return {-1, fmt::format("the mean loss is found {} times", means_)};
    return {};
  }

 private:
  using I = const Instruction&;

  static bool contains(const std::vector<int>& list, int value) {
    return std::find(list.begin(), list.end(), value) != list.end();
  }

  void set(BufferId buffer, Value value) { values_[buffer] = std::move(value); }
  void set(I i, Role role, Value value) { set(i.buffer(role), std::move(value)); }
  const Value& get(I i, Role role) const {
    static const Value kNothing;
    const BufferId buffer = i.buffer(role);
    return buffer < 0 ? kNothing : values_[buffer];
  }

  bool holds(I i, Role role, What what, int unit, int microbatch = -1) const {
    const Value& value = get(i, role);
    return value.what == what && value.unit == unit && value.microbatch == microbatch;
  }

  std::string execute(I i) {
    switch (i.op) {
      case Op::batch: return "";  // see verify_steps.cc
      case Op::gather: return gather(i);
      case Op::forward:
      case Op::recompute: return forward(i);
      case Op::loss: return loss(i);
      case Op::evaluate:
      case Op::logits: return head(i);
      case Op::backward: return backward(i);
      case Op::reduce_scatter: return reduce_scatter(i);
      case Op::accumulate: return accumulate(i);
      case Op::all_reduce: return all_reduce(i);
      case Op::tie: return tie(i);
      case Op::send: return send(i, Role::output, What::activation, ends_);
      case Op::receive: return receive(i, Role::output, What::activation, before_);
      case Op::send_back: return send(i, Role::derivative, What::derivative, before_);
      case Op::receive_back: return receive(i, Role::derivative, What::derivative, ends_);
      case Op::tensor_gather:
      case Op::tensor_all_reduce:
      case Op::tensor_reduce_scatter:
      case Op::tensor_gradients: return "";  // see verify_steps.cc
      case Op::squares: return squares(i);
      case Op::norm: return norm(i);
      case Op::mean_loss: return mean_loss();
      case Op::step: return step(i);
      case Op::offload: return move(i, Role::resident, Role::stored);
      case Op::load: return move(i, Role::stored, Role::resident);
    }
    return "no such operation";
  }

  std::string gather(I i) {
    if (!holds(i, Role::shard, What::parameters, i.unit))
      return "gathers from what is not this unit's parameters";
    set(i, Role::parameters, {What::parameters, i.unit});
    return "";
  }

  std::string move(I i, Role from, Role to) {
    const Value value = get(i, from);
    if (value.what != What::activation && value.what != What::saved)
      return "moves what is neither an activation nor saved";
    set(i, to, value);
    return "";
  }

  bool lacks_batch(I i) const {
    return job_.attention_reads_batch() && i.unit > 0 && i.buffer(Role::batch) < 0;
  }

  std::string forward(I i) {
    if (!holds(i, Role::parameters, What::parameters, i.unit))
      return "computes with another unit's parameters";
    if (i.unit > 0 && !holds(i, Role::input, What::activation, i.unit - 1, i.microbatch))
      return "its input is not the output of the unit and microbatch before it";
    if (lacks_batch(i)) return "does not know where texts end";
    set(i, Role::output, {What::activation, i.unit, i.microbatch});
    if (i.unit > 0) set(i, Role::saved, {What::saved, i.unit, i.microbatch});
    return "";
  }

  Value gradient_of(int unit, int microbatch) const {
    Value value{What::gradient, unit};
    value.counts = MicrobatchCounts(microbatch);
    value.in_group = job_.degree == 1;
    value.everywhere = job_.data_degree() == 1;
    return value;
  }

  /// What loss and evaluation need.
  std::string head(I i) {
    if (!holds(i, Role::parameters, What::parameters, i.unit))
      return "computes with another unit's parameters";
    const bool tied = units_[i.unit].borrows >= 0;
    if (tied && !holds(i, Role::tied_parameters, What::parameters, 0)) return "the embedding is not there";
    if (!holds(i, Role::input, What::activation, i.unit - 1, i.microbatch))
      return "its input is not the last block's output of its microbatch";
    ++losses_[i.microbatch];
    only_logits_ = only_logits_ || i.op == Op::logits;
    return "";
  }

  std::string loss(I i) {
    if (std::string problem = head(i); !problem.empty()) return problem;
    set(i, Role::derivative, {What::derivative, i.unit - 1, i.microbatch});
    set(i, Role::gradient, gradient_of(i.unit, i.microbatch));
    if (units_[i.unit].borrows >= 0) {
      Value half = gradient_of(0, i.microbatch);
      half.halves = kHeads;
      set(i, Role::tied_gradient, half);
    }
    return "";
  }

  /// What goes to another stage is what is left of one of this stage's parts.
  std::string send(I i, Role role, What what, const std::vector<int>& units) {
    if (!contains(units, i.unit)) return fmt::format("no part of stage {} ends there", program_.stage);
    if (!holds(i, role, what, i.unit, i.microbatch)) return "sends another value than it says";
    return "";
  }

  /// That the other stage sends this is proved for all stages together.
  std::string receive(I i, Role role, What what, const std::vector<int>& units) {
    if (!contains(units, i.unit)) return fmt::format("no part of stage {} begins there", program_.stage);
    set(i, role, {what, i.unit, i.microbatch});
    return "";
  }

  static bool adds(I i) {
    return std::any_of(i.uses.begin(), i.uses.end(),
                       [](const Use& use) { return use.role == Role::gradient && use.reads; });
  }

  std::string backward(I i) {
    if (!holds(i, Role::derivative, What::derivative, i.unit, i.microbatch))
      return "the derivative is not with respect to its output";
    if (i.unit > 0) {
      if (!holds(i, Role::parameters, What::parameters, i.unit))
        return "computes with another unit's parameters";
      if (!holds(i, Role::input, What::activation, i.unit - 1, i.microbatch)) return "its input is not there";
      if (!holds(i, Role::saved, What::saved, i.unit, i.microbatch)) return "what forward saved is not there";
      if (lacks_batch(i)) return "does not know where texts end";
    }
    Value gradient = gradient_of(i.unit, i.microbatch);
    const bool tied = i.unit == 0 && units_.back().borrows == 0;
    if (tied && job_.ties_apart()) gradient.halves = kOwn;
    const Value& before = get(i, Role::gradient);
    if (tied && !job_.ties_apart()) {
      if (before.what != What::gradient || before.halves != kHeads || before.counts.of(i.microbatch) != 1)
        return "the head's part of the shared matrix's gradient is not there";
    } else if (adds(i)) {
      if (before.what != What::gradient || before.unit != i.unit || before.halves != gradient.halves ||
          before.in_group != gradient.in_group || before.everywhere != gradient.everywhere)
        return "adds to what is not the sum of this unit's gradients so far";
      gradient.counts.add(before.counts);
    }
    set(i, Role::derivative, {What::derivative, i.unit - 1, i.microbatch});
    set(i, Role::gradient, gradient);
    return "";
  }

  std::string reduce_scatter(I i) {
    Value value = get(i, Role::gradient);
    if (value.what != What::gradient || value.unit != i.unit || value.in_group ||
        (value.halves != kBoth && !job_.ties_apart()))
      return "reduces what is not this unit's own whole gradient";
    value.in_group = true;
    value.everywhere = job_.replicas() == 1;
    set(i, Role::shard, value);
    return "";
  }

  std::string accumulate(I i) {
    Value sum = get(i, Role::shard);
    const Value& more = get(i, Role::partial);
    if (sum.what != What::gradient || more.what != What::gradient || sum.unit != i.unit ||
        more.unit != i.unit)
      return "adds what is not this unit's gradients";
    if (sum.in_group != more.in_group || (!job_.sums_whole() && !sum.in_group))
      return "adds a gradient that is not reduced over the group";
    if (job_.replicas() > 1 && (sum.everywhere || more.everywhere) && sum.halves == more.halves)
      return "adds to a gradient that was reduced over the replicas already";
    if (sum.halves != more.halves) {
      if ((sum.halves & more.halves) != 0 || sum.counts != more.counts || !sum.everywhere || !more.everywhere)
        return "adds parts of a shared matrix's gradient that are not two whole halves";
      sum.halves = kBoth;
    } else {
      sum.counts.add(more.counts);
    }
    set(i, Role::shard, sum);
    return "";
  }

  /// Both ends add the same two halves: each must be the sum of everything but the other.
  std::string tie(I i) {
    Value value = get(i, Role::shard);
    const int half = program_.stage == 0 ? kOwn : kHeads;
    if (i.unit != 0 || value.what != What::gradient || value.unit != 0 || value.halves != half)
      return "adds what is not this end's half of the shared matrix's gradient";
    value.halves = kBoth;
    if (std::string problem = problem_of(value, 0); !problem.empty()) return problem;
    set(i, Role::shard, value);
    return "";
  }

  std::string all_reduce(I i) {
    Value value = get(i, Role::shard);
    if (value.what != What::gradient || value.unit != i.unit || !value.in_group)
      return "reduces what is not this unit's gradient shard";
    if (value.everywhere) return "reduces over the replicas for the second time";
    value.everywhere = true;
    set(i, Role::shard, value);
    return "";
  }

  /// Whether a gradient is that of the whole global batch.
  std::string problem_of(const Value& value, int unit) const {
    if (value.what != What::gradient || value.unit != unit)
      return fmt::format("the gradient of unit {} is not there", unit);
    if (value.halves != kBoth) return fmt::format("the gradient of unit {} is only one half of it", unit);
    if (const int m = value.counts.first_that_is_not_once(job_.microbatches); m >= 0)
      return fmt::format("the gradient of unit {} has microbatch {} {} times", unit, m, value.counts.of(m));
    if (!value.in_group) return fmt::format("the gradient of unit {} is not reduced over the group", unit);
    if (!value.everywhere)
      return fmt::format("the gradient of unit {} is not reduced over the replicas", unit);
    return "";
  }

  std::string norm(I i) {
    if (get(i, Role::norms).what != What::other || squared_.size() != owned_.size())
      return "does not see the squares of every unit's gradient";
    norm_known_ = true;
    return "";
  }

  std::string squares(I i) {
    if (!contains(owned_, i.unit) || contains(squared_, i.unit))
      return "sums squares of a gradient that another stage counts, or that are counted already";
    if (std::string problem = problem_of(get(i, Role::shard), i.unit); !problem.empty()) return problem;
    squared_.push_back(i.unit);
    set(i, Role::norms, {What::other});
    return "";
  }

  std::string problem_of_losses() const {
    const int each = contains(owned_, program_.units - 1) ? 1 : 0;
    for (int m = 0; m < job_.microbatches; ++m)
      if (const int losses = losses_.contains(m) ? losses_.at(m) : 0; losses != each)
        return fmt::format("microbatch {} has {} losses, must have {}", m, losses, each);
    return "";
  }

  /// A step's comes after the norm: ranks also tell whether theirs is finite.
  std::string mean_loss() {
    if (program_.trains && !norm_known_) return "the norm is not known";
    ++means_;
    return problem_of_losses();
  }

  std::string step(I i) {
    if (!norm_known_ || means_ == 0) return "norm and loss are not known";
    if (std::string problem = problem_of(get(i, Role::shard), i.unit); !problem.empty()) return problem;
    stepped_.push_back(i.unit);
    return "";
  }

  const Job& job_;
  const Program& program_;
  std::vector<model::Unit> units_;
  std::vector<Value> values_;
  std::vector<int> owned_, held_;   // units of the stage; with its copy
  std::vector<int> ends_, before_;  // last units of the stage's parts, and those before its parts
  std::vector<int> squared_, stepped_;
  std::map<int, int> losses_;  // of each microbatch
  bool only_logits_ = false;   // of microbatch 0
  bool norm_known_ = false;
  int means_ = 0;  // of losses
};

}  // namespace

ResultProblem check_result(const Job& job, const Program& program) { return Execution(job, program).run(); }

}  // namespace loom::program
