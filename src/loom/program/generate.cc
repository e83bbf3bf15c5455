// The plain step of a stage, instruction by instruction.
#include "program/generate.h"

#include <fmt/format.h>

#include <map>
#include <set>

#include "model/batch_layout.h"
#include "program/schedule.h"

namespace loom::program {
namespace {

using model::Unit;

class Generator {
 public:
  Generator(const Job& job, int stage)
      : job_(job),
        stage_(stage),
        parts_(parts_of(job)),
        units_(job.held_units()),
        last_(static_cast<int>(units_.size()) - 1),
        sizes_(sizes_of(job)) {}

  Program training() {
    begin();
    run(schedule_of(job_, stage_));
    finish();
    return std::move(program_);
  }

  Program evaluation() {
    Program program = without_gradients(Op::evaluate, job_.microbatches);
    program.instructions.push_back(mean_loss(program));
    return program;
  }

  Program logits() { return without_gradients(Op::logits, 1); }

 private:
  /// A gradient that grows by a microbatch at a time.
  struct Sum {
    BufferId shard = -1;  // where the first one is reduced to, and all are in the end
    BufferId whole = -1;  // of the microbatch that is being computed
    std::vector<std::pair<BufferId, int>> partial = {};  // sums so far, and of how many microbatches
  };
  /// What a unit has from step to step.
  struct State {
    BufferId master = -1, parameters = -1;
    std::vector<BufferId> slots = {};
    Sum gradient = {};
    bool held() const { return master >= 0; }
  };
  using Place = std::pair<int, int>;  // unit, microbatch

  Program without_gradients(Op head, int microbatches) {
    begin();
    program_.trains = false;
    head_ = head;
    std::vector<Pass> passes = schedule_of(job_, stage_);
    std::erase_if(passes, [&](const Pass& pass) { return !pass.forward || pass.microbatch >= microbatches; });
    run(passes);
    return std::move(program_);
  }

  void begin() {
    program_.units = static_cast<int>(units_.size());
    program_.microbatches = job_.microbatches;
    program_.stage = stage_;
    states_.resize(units_.size());
    whole_.resize(units_.size(), -1);
    program_.shards.resize(units_.size(), -1);
    add_persistent();
  }

  void add_persistent() {
    const int64_t rows = job_.batch * job_.tokens;
    const int64_t derived = model::BatchLayout(job_.spec, job_.recipe_sizes()).bytes();
    program_.batch =
        program_.add("batch", Category::batch, job_.microbatches * (rows * 2 * 4 + derived), true);
    program_.norms = program_.add("norms", Category::batch, norms_bytes(job_), true);
    program_.told = program_.add("told", Category::batch, told_bytes(job_), true);
    std::vector<int> held = owned_units(job_, stage_);
    if (holds_copy(job_, stage_)) held.push_back(0);
    for (const int unit : held) add_state(unit);
    if (sums_tied_here()) {
      const int64_t bytes = job_.shard(units_[0]) * 4;
      tied_.shard = program_.add("gradient of embedding by the head", Category::gradients, bytes, true);
    }
    workspace_ = program_.add("workspace", Category::workspace, workspace_bytes());
    for (const int unit : held)
      whole_[unit] = job_.degree == 1
                         ? states_[unit].parameters
                         : program_.add(fmt::format("whole {}", units_[unit].name()), Category::gathered,
                                        job_.padded(units_[unit]) * job_.element_bytes());
  }

  /// Of the units that this stage computes, the most that one needs.
  int64_t workspace_bytes() const {
    int64_t most = 0;
    for (const Part& part : parts_)
      for (int unit = part.begin; part.stage == stage_ && unit < part.end; ++unit)
        most = std::max(most, sizes_.workspace_of(units_[unit].kind));
    return most;
  }

  void add_state(int index) {
    const Unit& unit = units_[index];
    const int64_t elements = job_.shard(unit);
    const auto add = [&](const char* what, Category category, int64_t bytes) {
      return program_.add(fmt::format("{} of {}", what, unit.name()), category, bytes, true);
    };
    State& state = states_[index];
    state.master = add("master", Category::parameters, elements * 4);
    state.parameters = state.master;
    if (job_.has_masters())
      state.parameters = add("parameters", Category::parameters, elements * job_.element_bytes());
    for (const ops::Slot& slot : job_.optimizer->slots)
      state.slots.push_back(add(slot.name, Category::optimizer, elements * 4));
    state.gradient.shard = add("gradient", Category::gradients, elements * 4);
    program_.shards[index] = state.parameters;
  }

  /// Whether this stage has embedding and head, and yet sums their parts of the shared gradient apart.
  bool sums_tied_here() const { return job_.ties_apart() && job_.pipeline_degree == 1; }
  /// Where the head's part of the shared matrix's gradient is summed.
  Sum& tied_sum() { return sums_tied_here() ? tied_ : states_[0].gradient; }

  Instruction& emit(Op op, int unit, int m, std::vector<Use> uses) {
    program_.instructions.push_back({op, unit, m, 0, std::move(uses), {}});
    return program_.instructions.back();
  }

  BufferId activation(const char* what, int unit, int m) {
    return program_.add(fmt::format("{} {}.{}", what, unit, m), Category::activations, sizes_.activation);
  }

  /// What a pass needs from another stage is asked for one pass earlier, so that it can come meanwhile.
  void run(const std::vector<Pass>& passes) {
    const size_t ahead = job_.prefetch > 0 ? 1 : 0;
    for (size_t i = 0; i < passes.size(); ++i) {
      if (i == 0) receive(passes[0]);
      if (ahead == 1 && i + 1 < passes.size()) receive(passes[i + 1]);
      if (ahead == 0 && i > 0) receive(passes[i]);
      load_batch(passes[i].microbatch);
      if (passes[i].forward) forward(parts_[passes[i].part], passes[i].microbatch);
      else backward(parts_[passes[i].part], passes[i].microbatch);
    }
  }

  /// Once, before the stage's first pass of the microbatch.
  void load_batch(int m) {
    const std::vector<int> owned = owned_units(job_, stage_);
    const bool reads = owned.front() == 0 || owned.back() == last_ || job_.attention_reads_batch();
    if (reads && loaded_.insert(m).second)
      emit(Op::batch, -1, m, {{Role::batch, program_.batch, false, true}});
  }

  void receive(const Pass& pass) {
    const Part& part = parts_[pass.part];
    const int m = pass.microbatch;
    if (pass.forward && part.begin > 0) {
      const int unit = part.begin - 1;
      x_[{unit, m}] = activation("x", unit, m);
      emit(Op::receive, unit, m, {{Role::output, x_[{unit, m}], false, true}}).peer =
          parts_[part.number - 1].stage;
    }
    if (!pass.forward && part.end <= last_) {
      const int unit = part.end - 1;
      d_[{part.number, m}] = activation("d", unit, m);
      emit(Op::receive_back, unit, m, {{Role::derivative, d_[{part.number, m}], false, true}}).peer =
          parts_[part.number + 1].stage;
    }
  }

  /// Of the embedding: backward makes again what was normalized, and needs its parameters for that only.
  std::vector<Use> embedding_uses(Use data, bool parameters) const {
    std::vector<Use> uses = {{Role::batch, program_.batch, true, false}, data};
    if (parameters) uses.insert(uses.begin(), {Role::parameters, whole_[0], true, false});
    if (job_.spec.embedding_norm) uses.push_back({Role::workspace, workspace_, false, true});
    return uses;
  }

  std::vector<Use> block_uses(std::vector<Use> uses) const {
    if (job_.attention_reads_batch()) uses.push_back({Role::batch, program_.batch, true, false});
    return uses;
  }

  /// All units of the part but the head, whose forward pass is done with its backward pass, or is an
  /// evaluation.
  void forward(const Part& part, int m) {
    for (int u = part.begin; u < part.end; ++u) {
      if (u == last_) {
        if (head_ == Op::logits)
          program_.logits = program_.add("logits of a row", Category::workspace, job_.spec.outputs() * 4);
        if (!program_.trains) emit(head_, u, m, head_uses(x_.at({u - 1, m}), m));
        continue;
      }
      const BufferId x = x_[{u, m}] = activation("x", u, m);
      if (u == 0) {
        emit(Op::forward, 0, m, embedding_uses({Role::output, x, false, true}, true));
        continue;
      }
      const BufferId saved = saved_[{u, m}] =
          program_.add(fmt::format("saved {}.{}", u, m), Category::activations, sizes_.saved);
      emit(Op::forward, u, m,
           block_uses({{Role::parameters, whole_[u], true, false},
                       {Role::input, x_.at({u - 1, m}), true, false},
                       {Role::output, x, false, true},
                       {Role::saved, saved, false, true},
                       {Role::workspace, workspace_, false, true}}));
    }
    if (part.end <= last_)
      emit(Op::send, part.end - 1, m, {{Role::output, x_.at({part.end - 1, m}), true, false}}).peer =
          parts_[part.number + 1].stage;
  }

  void backward(const Part& part, int m) {
    BufferId d;
    if (part.end > last_) {
      d = activation("d", last_, m);
      loss(m, x_.at({last_ - 1, m}), d);
    } else {
      d = d_.at({part.number, m});
    }
    for (int u = std::min(part.end, last_) - 1; u >= std::max(part.begin, 1); --u) {
      const BufferId gradient = gradient_target(states_[u].gradient, u, m);
      emit(Op::backward, u, m,
           block_uses({{Role::parameters, whole_[u], true, false},
                       {Role::input, x_.at({u - 1, m}), true, false},
                       {Role::saved, saved_.at({u, m}), true, false},
                       {Role::derivative, d, true, true},
                       {Role::gradient, gradient, false, true},
                       {Role::workspace, workspace_, false, true}}));
      reduce(states_[u].gradient, u, m);
    }
    if (part.begin > 0) {
      emit(Op::send_back, part.begin - 1, m, {{Role::derivative, d, true, false}}).peer =
          parts_[part.number - 1].stage;
      return;
    }
    Sum& sum = states_[0].gradient;
    const bool shared = job_.spec.tied && !job_.ties_apart(), grows = !shared && embeds_into_sum(m);
    const BufferId gradient = shared  ? sum.whole  // what the head left there
                              : grows ? sum.partial.back().first
                                      : gradient_target(sum, 0, m);
    std::vector<Use> uses = embedding_uses({Role::derivative, d, true, true}, job_.spec.embedding_norm);
    uses.push_back({Role::gradient, gradient, shared || grows, true});
    emit(Op::backward, 0, m, std::move(uses));
    if (!grows) return reduce(sum, 0, m);
    ++sum.partial.back().second;
    finish_sum(sum, 0, m);
  }

  /// Whether a microbatch's gradient of the embedding is added to the sum as it is made: it has few rows of
  /// the matrix, which else is cleared and added up whole each time. Strict order wants each by itself, and
  /// the gradient of a norm does not add.
  bool embeds_into_sum(int m) const {
    return m > 0 && !job_.strict && job_.sums_whole() && !job_.spec.embedding_norm;
  }

  std::vector<Use> head_uses(BufferId x, int m) {
    std::vector<Use> uses = {{Role::parameters, whole_[last_], true, false},
                             {Role::input, x, true, false},
                             {Role::batch, program_.batch, true, false},
                             {Role::workspace, workspace_, false, true}};
    if (head_ == Op::logits) {
      uses.push_back({Role::logits, program_.logits, false, true});
    } else {
      const BufferId losses =
          program_.add(fmt::format("losses {}", m), Category::batch, job_.batch * job_.tokens * 8);
      uses.push_back({Role::losses, losses, false, true});
      uses.push_back({Role::told, program_.told, false, true});
    }
    if (job_.spec.tied) uses.push_back({Role::tied_parameters, whole_[0], true, false});
    return uses;
  }

  void loss(int m, BufferId x, BufferId d) {
    std::vector<Use> uses = head_uses(x, m);
    uses.push_back({Role::derivative, d, false, true});
    uses.push_back({Role::gradient, gradient_target(states_[last_].gradient, last_, m), false, true});
    if (job_.spec.tied) uses.push_back({Role::tied_gradient, gradient_target(tied_sum(), 0, m), false, true});
    emit(Op::loss, last_, m, std::move(uses));
    reduce(states_[last_].gradient, last_, m);
    if (job_.ties_apart()) reduce(tied_sum(), 0, m);
  }

  /// Where backward leaves a unit's gradient: the shard itself when it is whole and empty, else a buffer of
  /// its own.
  BufferId gradient_target(Sum& sum, int unit, int m) {
    if (job_.degree == 1 && m == 0) return sum.whole = sum.shard;
    return sum.whole = program_.add(fmt::format("whole gradient {}.{}", unit, m), Category::unreduced,
                                    job_.padded(units_[unit]) * 4);
  }

  /// The gradient of one microbatch joins the sums before it: always in default order, equals with equals in
  /// strict order, which makes a balanced tree.
  void reduce(Sum& gradient, int unit, int m) {
    BufferId sum = gradient.whole;
    if (!job_.sums_whole()) {
      sum = m == 0 ? gradient.shard
                   : program_.add(fmt::format("partial gradient {}.{}", unit, m), Category::unreduced,
                                  job_.shard(units_[unit]) * 4);
      reduce_scatter(gradient.whole, sum, unit, m);
    }
    int size = 1;
    const bool last = m + 1 == job_.microbatches;
    auto& partial = gradient.partial;
    while (!partial.empty() && (!job_.strict || partial.back().second == size || last)) {
      add_to(partial.back().first, sum, unit, m);
      sum = partial.back().first;
      size += partial.back().second;
      partial.pop_back();
    }
    partial.emplace_back(sum, size);
    finish_sum(gradient, unit, m);
  }

  /// After the last microbatch, a sum that is whole is reduced, and what is sharded over the replicas, too.
  void finish_sum(const Sum& gradient, int unit, int m) {
    if (m + 1 < job_.microbatches) return;
    if (job_.sums_whole() && job_.degree > 1)
      reduce_scatter(gradient.partial.back().first, gradient.shard, unit, -1);
    if (job_.replicas() > 1) emit(Op::all_reduce, unit, -1, {{Role::shard, gradient.shard, true, true}});
  }

  void reduce_scatter(BufferId whole, BufferId shard, int unit, int m) {
    emit(Op::reduce_scatter, unit, m,
         {{Role::gradient, whole, true, false}, {Role::shard, shard, false, true}});
  }

  void add_to(BufferId sum, BufferId more, int unit, int m) {
    emit(Op::accumulate, unit, m, {{Role::shard, sum, true, true}, {Role::partial, more, true, false}});
  }

  static Instruction mean_loss(const Program& program) {
    return {Op::mean_loss, -1, -1, 0, {{Role::told, program.told, true, true}}, {}};
  }

  void finish() {
    if (sums_tied_here()) add_to(states_[0].gradient.shard, tied_.shard, 0, -1);
    else if (job_.ties_apart() && states_[0].held())
      emit(Op::tie, 0, -1, {{Role::shard, states_[0].gradient.shard, true, true}});
    const BufferId counted =
        job_.tensor_degree > 1 ? program_.add("counted gradients", Category::workspace, kShardGrain * 4) : -1;
    // In the order in which reductions end.
    const std::vector<int> owned = owned_units(job_, stage_);
    for (auto unit = owned.rbegin(); unit != owned.rend(); ++unit) {
      Instruction& squares = emit(Op::squares, *unit, -1,
                                  {{Role::norms, program_.norms, false, true},
                                   {Role::shard, states_[*unit].gradient.shard, true, false}});
      if (counted >= 0) squares.uses.push_back({Role::workspace, counted, false, true});
    }
    // It fetches losses, too, so that the host waits for its device once.
    emit(Op::norm, -1, -1,
         {{Role::norms, program_.norms, true, true}, {Role::told, program_.told, true, false}});
    program_.instructions.push_back(mean_loss(program_));
    for (int u = 0; u < program_.units; ++u) {
      const State& state = states_[u];
      if (!state.held()) continue;
      Instruction& step = emit(Op::step, u, -1,
                               {{Role::norms, program_.norms, true, false},
                                {Role::shard, state.gradient.shard, true, false},
                                {Role::master, state.master, true, true}});
      for (const BufferId slot : state.slots) step.uses.push_back({Role::slot, slot, true, true});
      if (state.parameters != state.master)
        step.uses.push_back({Role::parameters, state.parameters, false, true});
    }
  }

  const Job& job_;
  const int stage_;
  std::vector<Part> parts_;
  std::vector<Unit> units_;
  const int last_;  // the head
  Op head_ = Op::loss;
  model::BufferSizes sizes_;
  Program program_;
  std::vector<State> states_;            // of all units; empty for those of other stages
  Sum tied_;                             // where sums_tied_here()
  std::vector<BufferId> whole_;          // of all units
  std::map<Place, BufferId> x_, saved_;  // of a unit
  std::map<Place, BufferId> d_;          // of a part
  std::set<int> loaded_;                 // microbatches of the batch
  BufferId workspace_ = -1;
};

}  // namespace

model::BufferSizes sizes_of(const Job& job) {
  return model::buffer_sizes(job.spec, job.recipe_sizes(), job.recipes());
}

int64_t norms_bytes(const Job& job) {
  const std::vector<Unit> units = job.held_units();
  int64_t most = 0;
  for (int stage = 0; stage < job.pipeline_degree; ++stage) {
    int64_t chunks = 0;
    for (const int unit : owned_units(job, stage)) chunks += job.shard(units[unit]) / kShardGrain;
    most = std::max(most, chunks);
  }
  return most * (job.degree * job.pipeline_degree * job.tensor_degree + 1) * 8;
}

int64_t told_bytes(const Job& job) {
  return int64_t{8} * (kToldOfMicrobatch * job.microbatches + kToldBeside) * (job.world + 1);
}

Program generate(const Job& job, int stage) { return Generator(job, stage).training(); }

namespace {

Status check_stage(const Job& job, int stage) {
  LOOM_TRY(job.check());
  if (stage >= 0 && stage < job.pipeline_degree) return {};
  return fail(Code::invalid_argument, "there is no stage {} of {}", stage, job.pipeline_degree);
}

}  // namespace

Result<Program> make_program(const Job& job, int stage) {
  LOOM_TRY(check_stage(job, stage));
  Program program = generate(job, stage);
  checkpoint_activations(job, program);
  offload_activations(job, program);
  insert_gathers(job, program);
  prefetch(job.prefetch, program);
  // Unsharded gradients are added where they are; there is nothing to wait for.
  if (job.degree > 1) postpone_waits(job.in_flight, program);
  split_units(job, program);
  connect(job.in_flight, program);
  return program;
}

namespace {

Program finished(const Job& job, Program program) {
  insert_gathers(job, program);
  prefetch(job.prefetch, program);
  split_units(job, program);
  connect(job.in_flight, program);
  return program;
}

}  // namespace

Result<Program> make_evaluation(const Job& job, int stage) {
  LOOM_TRY(check_stage(job, stage));
  return finished(job, Generator(job, stage).evaluation());
}

Result<Program> make_logits(const Job& job, int stage) {
  LOOM_TRY(check_stage(job, stage));
  return finished(job, Generator(job, stage).logits());
}

Result<std::vector<Program>> make_programs(const Job& job, Purpose purpose) {
  std::vector<Program> programs;
  for (int stage = 0; stage < job.pipeline_degree; ++stage) {
    Result<Program> program = purpose == Purpose::step         ? make_program(job, stage)
                              : purpose == Purpose::evaluation ? make_evaluation(job, stage)
                                                               : make_logits(job, stage);
    LOOM_TRY(program.status());
    programs.push_back(program.take());
  }
  return programs;
}

}  // namespace loom::program
