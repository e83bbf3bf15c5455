// Recipes as instructions (model/recipe.h). With one tensor rank an instruction carries out all steps of its
// unit's pass. Where ranks share the work, the list of steps is cut at exchanges, and before a step that has
// to wait for one that is in flight, so that what stands between is computed meanwhile.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "program/generate.h"
#include "program/steps.h"

namespace loom::program {
namespace {

using model::Kernel;
using model::Place;
using model::Step;

class Splitter {
 public:
  Splitter(const Job& job, Program& program) : job_(job), program_(program), recipes_(job.recipes()) {}

  void run() {
    const std::vector<Instruction> whole = std::move(program_.instructions);
    program_.instructions.clear();
    program_.shared = job_.tensor_degree > 1;
    if (!job_.prescaled_batch && program_.shared) gather_batch(whole);
    bool summed = false;
    for (const Instruction& instruction : whole) {
      if (instruction.op == Op::squares && !std::exchange(summed, true)) sum_gradients(whole);
      if (is_compute(instruction.op)) split(instruction);
      else program_.instructions.push_back(instruction);
    }
  }

 private:
  /// Sequences that each rank was given a part of; on ranks that need any.
  void gather_batch(const std::vector<Instruction>& whole) {
    for (const Instruction& i : whole)
      if (const BufferId batch = i.buffer(Role::batch); batch >= 0) {
        program_.instructions.push_back(
            {Op::tensor_gather, -1, -1, 0, {{Role::batch, batch, true, true}}, {}});
        return;
      }
  }

  /// Of parameters that all ranks hold, and that each saw its own rows or heads of.
  void sum_gradients(const std::vector<Instruction>& steps) {
    for (const Instruction& i : steps)
      if (i.op == Op::step && job_.sums_over_tensor_ranks(i.unit))
        program_.instructions.push_back(
            {Op::tensor_gradients, i.unit, -1, 0, {{Role::shard, i.buffer(Role::shard), true, true}}, {}});
  }

  void split(const Instruction& whole) {
    recipe_ = &recipe_of(recipes_, whole.unit, program_.units, whole.op);
    const std::vector<Step>& steps = steps_of(*recipe_, whole.op);
    const int count = static_cast<int>(steps.size());
    whole_ = &whole;
    if (!program_.shared) {
      program_.instructions.push_back(whole);
      program_.instructions.back().first = 0;
      program_.instructions.back().last = count;
      return;
    }
    begin_pass();
    int begin = 0;
    for (int i = 0; i < count; ++i) {
      const Step& step = steps[static_cast<size_t>(i)];
      if (model::is_exchange(step.kernel) || waits(step)) compute(begin, i), begin = i;
      if (!model::is_exchange(step.kernel)) continue;
      exchange(step, i);
      begin = i + 1;
    }
    compute(begin, count);
    if (whole.op == Op::backward) buffers_.erase({whole.unit, whole.microbatch});
  }

  void begin_pass() {
    std::vector<BufferId>& own = buffers_[{whole_->unit, whole_->microbatch}];
    if (whole_->op != Op::backward) own.assign(recipe_->arrays.size(), -1);
    of_arrays_ = &own;
    in_flight_.clear();
    written_.clear();
  }

  /// Whether a step uses what is in flight, which its instruction then waits for.
  bool waits(const Step& step) {
    const auto found = std::remove_if(in_flight_.begin(), in_flight_.end(), [&](const Step* exchange) {
      const int from = exchange->reads[0], to = exchange->writes[0];
      return uses(step.reads, to) || uses(step.writes, to) || uses(step.writes, from);
    });
    const bool any = found != in_flight_.end();
    in_flight_.erase(found, in_flight_.end());
    return any;
  }
  template <typename Numbers>
  static bool uses(const Numbers& numbers, int array) {
    return std::find(numbers.begin(), numbers.end(), array) != numbers.end();
  }

  const model::Array& array(int number) const { return recipe_->arrays[static_cast<size_t>(number)]; }

  BufferId buffer_of(int number) {
    const model::Array& of = array(number);
    switch (of.place) {
      case Place::given: return whole_->buffer(role_of(of.given));
      case Place::saved: return whole_->buffer(Role::saved);
      case Place::workspace: return whole_->buffer(Role::workspace);
      case Place::exchanged: break;
    }
    BufferId& own = (*of_arrays_)[static_cast<size_t>(number)];
    if (own < 0)
      own = program_.add(fmt::format("{} {}.{} #{}", of.name, whole_->unit, whole_->microbatch, ++added_),
                         Category::activations, of.bytes);
    return own;
  }
  Role role(int number) const {
    const model::Array& of = array(number);
    return of.place == Place::given       ? role_of(of.given)
           : of.place == Place::saved     ? Role::saved
           : of.place == Place::workspace ? Role::workspace
                                          : Role::exchanged;
  }

  void exchange(const Step& step, int number) {
    const int from = step.reads[0], to = step.writes[0];
    std::vector<Use> uses;
    if (from != to) uses.push_back({Role::input, buffer_of(from), true, false, from});
    uses.push_back({Role::output, buffer_of(to), from == to, true, to});
    emit(exchange_of(step.kernel), number, number + 1, std::move(uses));
    note_written(buffer_of(to));
    in_flight_.push_back(&step);
  }

  void emit(Op op, int first, int last, std::vector<Use> uses) {
    program_.instructions.push_back(
        {op, whole_->unit, whole_->microbatch, 0, std::move(uses), {}, -1, first, last, whole_->op});
  }

  void compute(int first, int last) {
    if (first == last) return;
    std::vector<Use> uses;
    for (int i = first; i < last; ++i) add_uses(steps_of(*recipe_, whole_->op)[static_cast<size_t>(i)], uses);
    for (const Use& use : uses)
      if (use.writes) note_written(use.buffer);
    for (const Role role : {Role::parameters, Role::tied_parameters})
      if (whole_->buffer(role) >= 0) uses.push_back({role, whole_->buffer(role), true, false});
    emit(whole_->op, first, last, std::move(uses));
  }

  void add_uses(const Step& step, std::vector<Use>& uses) {
    const auto add = [&](int number, bool writes) {
      if (number < 0 || buffer_of(number) < 0) return;
      const Role of = role(number);
      join(uses, {of, buffer_of(number), !writes, writes, of == Role::exchanged ? number : -1});
    };
    for (const int number : step.reads) add(number, false);
    for (const int number : step.writes) add(number, true);
    if (model::attends(step.kernel) && whole_->buffer(Role::batch) >= 0)
      join(uses, {Role::batch, whole_->buffer(Role::batch), true, false});
    if (!model::makes_gradient(step.kernel)) return;
    for (const Use& use : whole_->uses)
      if (use.role == Role::gradient ||
          (use.role == Role::tied_gradient &&
           (step.kernel == Kernel::clear || step.kernel == Kernel::logits_gradient)))
        join(uses, use);
  }

  /// What an earlier instruction of the pass has written stays, and counts as read.
  void join(std::vector<Use>& uses, Use use) {
    const auto found = std::find_if(uses.begin(), uses.end(), [&](const Use& other) {
      return other.role == use.role && other.buffer == use.buffer;
    });
    if (found != uses.end()) {
      found->writes |= use.writes;
      return;
    }
    if (use.writes && uses_written(use.buffer)) use.reads = true;
    uses.push_back(use);
  }
  bool uses_written(BufferId buffer) const { return uses(written_, buffer); }
  void note_written(BufferId buffer) {
    if (!uses_written(buffer)) written_.push_back(buffer);
  }

  const Job& job_;
  Program& program_;
  const model::Recipes recipes_;
  const Instruction* whole_ = nullptr;
  const model::Recipe* recipe_ = nullptr;
  /// Of a unit and microbatch, by array: buffers of what is exchanged, from forward to backward.
  std::map<std::pair<int, int>, std::vector<BufferId>> buffers_;
  std::vector<BufferId>* of_arrays_ = nullptr;
  std::vector<const Step*> in_flight_;
  std::vector<BufferId> written_;  // in this pass
  int added_ = 0;
};

}  // namespace

void split_units(const Job& job, Program& program) { Splitter(job, program).run(); }

}  // namespace loom::program
