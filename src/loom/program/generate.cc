// The plain step, instruction by instruction.
#include "program/generate.h"

#include <fmt/format.h>

#include "model/split_compute.h"

namespace loom::program {
namespace {

using model::Unit;
using model::UnitKind;

class Generator {
 public:
  explicit Generator(const Job& job) : job_(job), units_(job.held_units()), sizes_(sizes_of(job)) {}

  Program training() {
    begin();
    for (int m = 0; m < job_.microbatches; ++m) microbatch(m);
    finish();
    return std::move(program_);
  }

  Program evaluation() {
    begin();
    program_.trains = false;
    for (int m = 0; m < job_.microbatches; ++m) {
      const std::vector<BufferId> x = forward(m);
      emit(Op::evaluate, program_.units - 1, m).uses = head_uses(x[program_.units - 2]);
    }
    return std::move(program_);
  }

 private:
  /// What a unit has from step to step.
  struct State {
    BufferId master, first, second, parameters, gradient;
    std::vector<std::pair<BufferId, int>> sums;  // partial sums of gradients, and of how many microbatches
    BufferId whole_gradient = -1;                // of the microbatch that is being computed
  };

  void begin() {
    program_.units = static_cast<int>(units_.size());
    program_.microbatches = job_.microbatches;
    add_persistent();
  }

  void add_persistent() {
    const int64_t rows = job_.batch * job_.tokens;
    batch_ = program_.add("batch", Category::batch, job_.microbatches * rows * 2 * 4, true);
    losses_ = program_.add("losses", Category::batch, job_.microbatches * rows * 8, true);
    int64_t chunks = 0;
    for (const Unit& unit : units_) chunks += job_.shard(unit) / kShardGrain;
    norms_ = program_.add("norms", Category::batch, chunks * (job_.degree + 1) * 8, true);
    for (const Unit& unit : units_) {
      const int64_t elements = job_.shard(unit);
      State state;
      const auto add = [&](const char* what, Category category, int64_t bytes) {
        return program_.add(fmt::format("{} of {}", what, unit.name()), category, bytes, true);
      };
      state.master = add("master", Category::parameters, elements * 4);
      state.parameters = state.master;
      if (job_.precision == Precision::bf16)
        state.parameters = add("parameters", Category::parameters, elements * job_.element_bytes());
      state.first = add("first moment", Category::optimizer, elements * 4);
      state.second = add("second moment", Category::optimizer, elements * 4);
      state.gradient = add("gradient", Category::gradients, elements * 4);
      program_.shards.push_back(state.parameters);
      states_.push_back(state);
    }
    workspace_ = program_.add("workspace", Category::workspace, sizes_.workspace);
    for (const Unit& unit : units_)
      whole_.push_back(job_.degree == 1
                           ? states_[unit.index].parameters
                           : program_.add(fmt::format("whole {}", unit.name()), Category::gathered,
                                          job_.padded(unit) * job_.element_bytes()));
  }

  Instruction& emit(Op op, int unit, int m) {
    program_.instructions.push_back({op, unit, m, 0, {}, {}, -1});
    return program_.instructions.back();
  }

  BufferId activation(const char* what, int unit, int m) {
    return program_.add(fmt::format("{} {}.{}", what, unit, m), Category::activations, sizes_.activation);
  }

  /// Where backward leaves a unit's gradient: the shard itself when it is whole and empty, else a buffer of
  /// its own.
  BufferId gradient_target(int unit, int m) {
    State& state = states_[unit];
    if (job_.degree == 1 && m == 0) return state.whole_gradient = state.gradient;
    return state.whole_gradient = program_.add(fmt::format("whole gradient {}.{}", unit, m),
                                               Category::unreduced, job_.padded(units_[unit]) * 4);
  }

  /// Of the embedding: backward makes again what was normalized, and needs its parameters for that only.
  std::vector<Use> embedding_uses(Use data, bool parameters) const {
    std::vector<Use> uses = {{Role::batch, batch_, true, false}, data};
    if (parameters) uses.insert(uses.begin(), {Role::parameters, whole_[0], true, false});
    if (job_.spec.embedding_norm) uses.push_back({Role::workspace, workspace_, false, true});
    return uses;
  }

  /// Outputs of all units but the head; saved_ gets what blocks save.
  std::vector<BufferId> forward(int m) {
    const int last = program_.units - 1;
    std::vector<BufferId> x(program_.units);
    saved_.assign(program_.units, -1);
    x[0] = activation("x", 0, m);
    emit(Op::forward, 0, m).uses = embedding_uses({Role::output, x[0], false, true}, true);
    for (int u = 1; u < last; ++u) {
      x[u] = activation("x", u, m);
      saved_[u] = program_.add(fmt::format("saved {}.{}", u, m), Category::activations, sizes_.saved);
      emit(Op::forward, u, m).uses = {{Role::parameters, whole_[u], true, false},
                                      {Role::input, x[u - 1], true, false},
                                      {Role::output, x[u], false, true},
                                      {Role::saved, saved_[u], false, true},
                                      {Role::workspace, workspace_, false, true}};
    }
    return x;
  }

  void microbatch(int m) {
    const int last = program_.units - 1;
    const std::vector<BufferId> x = forward(m);
    const BufferId d = activation("d", 0, m);
    loss(m, x[last - 1], d);
    for (int u = last - 1; u > 0; --u) {
      const BufferId gradient = gradient_target(u, m);
      emit(Op::backward, u, m).uses = {
          {Role::parameters, whole_[u], true, false}, {Role::input, x[u - 1], true, false},
          {Role::saved, saved_[u], true, false},      {Role::derivative, d, true, true},
          {Role::gradient, gradient, false, true},    {Role::workspace, workspace_, false, true}};
      reduce(u, m);
    }
    const bool tied = units_[last].borrows == 0;
    const BufferId gradient = tied ? states_[0].whole_gradient : gradient_target(0, m);
    emit(Op::backward, 0, m).uses =
        embedding_uses({Role::derivative, d, true, true}, job_.spec.embedding_norm);
    program_.instructions.back().uses.push_back({Role::gradient, gradient, tied, true});
    reduce(0, m);
  }

  std::vector<Use> head_uses(BufferId x) const {
    const int last = program_.units - 1;
    std::vector<Use> uses = {{Role::parameters, whole_[last], true, false},
                             {Role::input, x, true, false},
                             {Role::batch, batch_, true, false},
                             {Role::losses, losses_, false, true},
                             {Role::workspace, workspace_, false, true}};
    if (units_[last].borrows == 0) uses.push_back({Role::tied_parameters, whole_[0], true, false});
    return uses;
  }

  void loss(int m, BufferId x, BufferId d) {
    const int last = program_.units - 1;
    std::vector<Use> uses = head_uses(x);
    uses.push_back({Role::derivative, d, false, true});
    uses.push_back({Role::gradient, gradient_target(last, m), false, true});
    if (units_[last].borrows == 0) uses.push_back({Role::tied_gradient, gradient_target(0, m), false, true});
    emit(Op::loss, last, m).uses = std::move(uses);
    reduce(last, m);
  }

  /// The gradient of one microbatch joins the sums before it: always in default order, equals with equals in
  /// strict order, which makes a balanced tree.
  void reduce(int unit, int m) {
    State& state = states_[unit];
    BufferId sum = state.whole_gradient;
    if (job_.degree > 1) {
      sum = m == 0 ? state.gradient
                   : program_.add(fmt::format("partial gradient {}.{}", unit, m), Category::unreduced,
                                  job_.shard(units_[unit]) * 4);
      emit(Op::reduce_scatter, unit, m).uses = {{Role::gradient, state.whole_gradient, true, false},
                                                {Role::shard, sum, false, true}};
    }
    int size = 1;
    const bool last = m + 1 == job_.microbatches;
    while (!state.sums.empty() && (!job_.strict || state.sums.back().second == size || last)) {
      emit(Op::accumulate, unit, m).uses = {{Role::shard, state.sums.back().first, true, true},
                                            {Role::partial, sum, true, false}};
      sum = state.sums.back().first;
      size += state.sums.back().second;
      state.sums.pop_back();
    }
    state.sums.emplace_back(sum, size);
    if (last && job_.replicas() > 1)
      emit(Op::all_reduce, unit, -1).uses = {{Role::shard, state.gradient, true, true}};
  }

  void finish() {
    Instruction& norm = emit(Op::norm, -1, -1);
    norm.uses.push_back({Role::norms, norms_, false, true});
    for (const State& state : states_) norm.uses.push_back({Role::shard, state.gradient, true, false});
    for (int u = 0; u < program_.units; ++u) {
      const State& state = states_[u];
      Instruction& step = emit(Op::step, u, -1);
      step.uses = {{Role::norms, norms_, true, false},
                   {Role::shard, state.gradient, true, false},
                   {Role::master, state.master, true, true},
                   {Role::first_moment, state.first, true, true},
                   {Role::second_moment, state.second, true, true}};
      if (state.parameters != state.master)
        step.uses.push_back({Role::parameters, state.parameters, false, true});
    }
  }

  const Job& job_;
  std::vector<Unit> units_;
  model::BufferSizes sizes_;
  Program program_;
  std::vector<State> states_;
  std::vector<BufferId> whole_;
  std::vector<BufferId> saved_;
  BufferId batch_ = -1, losses_ = -1, norms_ = -1, workspace_ = -1;
};

}  // namespace

Status Job::check() const {
  LOOM_TRY(spec.check());
  const auto positive = [](const char* name, int64_t value) -> Status {
    if (value > 0) return {};
    return fail(Code::invalid_argument, "{} is {}, must be at least 1", name, value);
  };
  LOOM_TRY(positive("microbatch size", batch));
  LOOM_TRY(positive("sequence length", tokens));
  LOOM_TRY(positive("microbatches", microbatches));
  LOOM_TRY(positive("ranks", world));
  LOOM_TRY(positive("sharded_data_parallel_degree", degree));
  LOOM_TRY(positive("reductions in flight", in_flight));
  LOOM_TRY(positive("pipeline_degree", pipeline_degree));
  LOOM_TRY(positive("tensor_degree", tensor_degree));
  if (world % (pipeline_degree * tensor_degree) != 0)
    return fail(Code::invalid_argument,
                "pipeline_degree · tensor_degree is {} · {}, must divide the {} ranks", pipeline_degree,
                tensor_degree, world);
  LOOM_TRY(layout().check());
  if (pipeline_degree > 1)
    return fail(Code::unsupported, "pipeline_degree is {}; only 1 can be executed yet", pipeline_degree);
  LOOM_TRY(model::check_split(spec, tensor_degree));
  if (!prescaled_batch && batch % tensor_degree != 0)
    return fail(
        Code::invalid_argument,
        "a microbatch has {} sequences, must be a multiple of tensor_degree, {}, for each tensor rank "
        "to read a part of them; with prescaled_batch: true each reads all",
        batch, tensor_degree);
  if (divides_rows && batch * tokens % tensor_degree != 0)
    return fail(
        Code::invalid_argument,
        "a microbatch has {} · {} tokens, must be a multiple of tensor_degree, {}, to divide its rows "
        "(optimize: memory); optimize: speed does not need that",
        batch, tokens, tensor_degree);
  if (tokens > spec.context)
    return fail(Code::invalid_argument, "the sequence length is {}, must be at most the model's context, {}",
                tokens, spec.context);
  if (checkpoint_group < 0 || prefetch < 0)
    return fail(Code::invalid_argument, "activation_checkpointing and prefetch must not be negative");
  return {};
}

model::BufferSizes sizes_of(const Job& job) {
  const model::Share share = job.share();
  const auto sizes = [&]<typename T>(T) -> model::BufferSizes {
    if (job.tensor_degree == 1) return model::buffer_sizes<T>(job.spec, share, job.batch, job.tokens);
    const model::SplitSizes split = model::split_sizes<T>(job.spec, share, job.batch, job.tokens);
    return {split.own, split.block_saved, split.workspace};
  };
  return job.precision == Precision::bf16 ? sizes(bf16{}) : sizes(0.0f);
}

Program generate(const Job& job) { return Generator(job).training(); }

Result<Program> make_program(const Job& job) {
  LOOM_TRY(job.check());
  Program program = generate(job);
  checkpoint_activations(job, program);
  insert_gathers(job, program);
  prefetch(job.prefetch, program);
  // Unsharded gradients are added where they are; there is nothing to wait for.
  if (job.degree > 1) postpone_waits(job.in_flight, program);
  split_units(job, program);
  connect(job.in_flight, program);
  return program;
}

Result<Program> make_evaluation(const Job& job) {
  LOOM_TRY(job.check());
  Program program = Generator(job).evaluation();
  insert_gathers(job, program);
  prefetch(job.prefetch, program);
  split_units(job, program);
  connect(job.in_flight, program);
  return program;
}

}  // namespace loom::program
