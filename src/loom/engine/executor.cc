// Instructions one by one.
#include "engine/executor.h"

#include <algorithm>

#include "engine/weft_call.h"
#include "ops/gemm.h"
#include "ops/tables.h"
#include "program/generate.h"
#include "program/steps.h"
#include "program/verify.h"

namespace loom::engine {
namespace {

using program::Instruction;
using program::Op;

}  // namespace

template <typename T>
Executor<T>::Executor(const program::Job& job, const Groups& groups, int threads, std::string tier_folder)
    : groups_(groups),
      workers_(threads),
      tensor_{job.tensor_degree, groups.coordinates().tensor},
      share_(job.share(tensor_.rank)),
      recipes_(job.recipes(tensor_.rank)),
      runner_(job.spec, share_),
      op_(ops::operators<T>()),
      tier_folder_(std::move(tier_folder)) {
  job_ = job;
  units_ = job.held_units(tensor_.rank);
  whole_units_ = model::units_of(job.spec);
}

template <typename T>
Executor<T>::~Executor() {
  for (const weftStream_t stream : streams_)
    if (stream != nullptr) (void)weftStreamDestroy(stream);  // what failed was said before
}

template <typename T>
Status Executor<T>::prepare() {
  for_workers(workers_, ops::prepare_thread);  // or a late one would allocate in whatever step it first works
  LOOM_TRY(plan(program::Purpose::step, "a step", training_, memory_));
  LOOM_TRY(plan(program::Purpose::evaluation, "an evaluation", evaluation_, evaluation_memory_));
  LOOM_TRY(plan(program::Purpose::logits, "logits", logits_, logits_memory_));
  const int64_t planned = std::max({memory_.bytes, evaluation_memory_.bytes, logits_memory_.bytes});
  const auto told_bytes = static_cast<int64_t>(told() * sizeof(double)) * (groups_.ranks() + 1);
  Result<Arena> arena = Arena::create(planned + told_bytes, groups_);
  LOOM_TRY(arena.status());
  arena_ = std::make_unique<Arena>(arena.take());
  losses_ = reinterpret_cast<double*>(arena_->data() + planned);
  int lanes = 0;
  for (const Instruction& instruction : training_.instructions) {
    lanes = std::max(lanes, instruction.lane);
    if (program::is_offloading(instruction.op)) tier_lane_ = instruction.lane;
  }
  for (int lane = 1; lane <= lanes; ++lane) {
    weftStream_t stream = nullptr;
    if (lane != tier_lane_) LOOM_TRY_WEFT(weftStreamCreate(&stream));
    streams_.push_back(stream);
  }
  if (memory_.tier_bytes > 0) {
    Result<std::unique_ptr<Tier>> tier = Tier::create(tier_folder_, memory_.tier_bytes);
    LOOM_TRY(tier.status());
    tier_ = tier.take();
  }
  tickets_.resize(std::max(
      {training_.instructions.size(), evaluation_.instructions.size(), logits_.instructions.size()}));
  for (const model::Recipe* recipe :
       {&recipes_.embedding, &recipes_.block, &recipes_.loss, &recipes_.evaluation, &recipes_.logits})
    exchanged_.resize(std::max(exchanged_.size(), recipe->arrays.size()));
  issued_.assign(lanes + 1, 0);
  over_.assign(lanes + 1, 0);
  timeline_.resize(training_.instructions.size());
  ordered_losses_.resize(static_cast<size_t>(job_.microbatches) * job_.data_degree());
  find_state();
  find_held_by_all();
  find_norms();
  return {};
}

/// Makes and verifies the programs of all stages, and keeps this rank's.
template <typename T>
Status Executor<T>::plan(program::Purpose purpose, const char* what, program::Program& program,
                         program::MemoryPlan& memory) {
  Result<std::vector<program::Program>> programs = program::make_programs(job_, purpose);
  LOOM_TRY(programs.status());
  LOOM_TRY(program::verify_pipeline(*programs).in(fmt::format("the programs of {}", what)));
  program = std::move((*programs)[static_cast<size_t>(groups_.coordinates().stage)]);
  memory = program::plan_memory(program);
  return program::verify(job_, program, memory).in(fmt::format("the program of {}", what));
}

template <typename T>
model::Pass Executor<T>::pass_of(const Run& run, const Instruction& i) {
  model::Pass pass;
  pass.workers = &workers_;
  pass.spec = &job_.spec;
  pass.batch = job_.batch;
  pass.tokens = job_.tokens;
  pass.training = run.settings != nullptr;
  pass.only_row = run.logits_row;
  if (pass.training) {
    pass.seed = run.settings->seed;
    pass.step = run.settings->step;
  }
  // What is not declared may be on its way yet, and on a stage where nothing is declared never comes.
  if (job_.spec.padding >= 0 && i.buffer(Role::batch) >= 0) {
    lengths_.resize(static_cast<size_t>(job_.batch));
    model::find_lengths(job_.spec, tokens(i.microbatch).data(), job_.batch, job_.tokens, lengths_.data());
    pass.lengths = lengths_.data();
  }
  pass.first_sample = static_cast<uint64_t>(
      program::microbatch_number(job_, groups_.group(), groups_.member(), i.microbatch) * job_.batch);
  return pass;
}

/// Nobody else knows of a failure here, but of a loss that is no number, which all ranks learn together.
/// Before this rank lets go of what is in flight it must tell them: they would wait, and it, too, for them.
template <typename T>
Status Executor<T>::run(Run& run) {
  const Status status = run_all(run);
  if (!status.ok() && status.code() != Code::not_finite) groups_.abort(status);
  return status;
}

template <typename T>
Status Executor<T>::run_all(Run& run) {
  const auto begin = Clock::now();
  const bool traced = run.settings != nullptr;
  run.begin = begin;
  run.result.begin_us = std::chrono::duration<double, std::micro>(begin.time_since_epoch()).count();
  for (size_t i = 0; i < run.program.instructions.size(); ++i) {
    const Instruction& instruction = run.program.instructions[i];
    LOOM_TRY(wait_for(run, instruction));
    const auto issued = Clock::now();
    if (program::is_offloading(instruction.op)) move(run, i);
    else LOOM_TRY(execute(run, instruction));
    if (instruction.lane > 0) LOOM_TRY(note_issued(instruction, tickets_[i]));
    const auto done = Clock::now();
    if (instruction.lane == 0) run.busy_seconds += seconds_between(issued, done);
    if (traced) timeline_[i] = {seconds_between(begin, issued) * 1e6, seconds_between(begin, done) * 1e6};
  }
  LOOM_TRY(wait_all(run));
  workers_.level_scratch();
  run.result.seconds = seconds_between(begin, Clock::now());
  return {};
}

/// What the instruction has put on its lane is over when all up to `ticket` is.
template <typename T>
Status Executor<T>::note_issued(const Instruction& instruction, uint64_t& ticket) {
  if (instruction.lane != tier_lane_)
    LOOM_TRY_WEFT(weftStreamGetPosition(streams_[instruction.lane - 1], &ticket));
  issued_[instruction.lane] = ticket;
  return {};
}

template <typename T>
Status Executor<T>::wait_for(Run& run, const Instruction& instruction) {
  for (const int before : instruction.after)
    LOOM_TRY(synchronize(run, run.program.instructions[before].lane, tickets_[before]));
  return {};
}

/// A lane is a queue: waits for what has that ticket or one before it, while later operations go on.
template <typename T>
Status Executor<T>::synchronize(Run& run, int lane, uint64_t ticket) {
  if (ticket <= over_[lane]) return {};
  const auto begin = Clock::now();
  if (lane == tier_lane_) LOOM_TRY(tier_->wait(ticket));
  else LOOM_TRY_WEFT(weftStreamSynchronizeTo(streams_[lane - 1], ticket));
  over_[lane] = ticket;
  run.result.exposed_seconds += seconds_between(begin, Clock::now());
  return {};
}

template <typename T>
void Executor<T>::move(Run& run, size_t index) {
  const Instruction& i = run.program.instructions[index];
  const program::BufferId stored = i.buffer(Role::stored);
  const int64_t offset = run.memory.offset[stored], bytes = run.program.buffers[stored].bytes;
  std::byte* memory = at<std::byte>(run, i, Role::resident);
  tickets_[index] =
      i.op == Op::load ? tier_->load(offset, memory, bytes) : tier_->store(offset, memory, bytes);
}

template <typename T>
Status Executor<T>::wait_all(Run& run) {
  for (size_t lane = 1; lane < issued_.size(); ++lane)
    LOOM_TRY(synchronize(run, static_cast<int>(lane), issued_[lane]));
  return {};
}

template <typename T>
Status Executor<T>::execute(Run& run, const Instruction& instruction) {
  switch (instruction.op) {
    case Op::forward:
    case Op::recompute:
    case Op::loss:
    case Op::evaluate:
    case Op::logits:
    case Op::backward:
      LOOM_TRY(check_targets(instruction));
      compute(run, instruction);
      return {};
    case Op::gather:
    case Op::reduce_scatter:
    case Op::all_reduce:
    case Op::tie: return communicate(run, instruction);
    case Op::send:
    case Op::receive:
    case Op::send_back:
    case Op::receive_back: return transfer(run, instruction);
    case Op::tensor_gather:
    case Op::tensor_all_reduce:
    case Op::tensor_reduce_scatter:
    case Op::tensor_gradients: return exchange(run, instruction);
    case Op::accumulate: {
      A* sum = at<A>(run, instruction, Role::shard);
      const int64_t bytes = run.program.buffers[instruction.buffer(Role::shard)].bytes;
      op_.add(workers_, sum, at<A>(run, instruction, Role::partial), sum,
              bytes / static_cast<int64_t>(sizeof(A)));
      return {};
    }
    case Op::norm: return find_norm(run, instruction);
    case Op::step: optimize(run, instruction); return {};
    case Op::offload:
    case Op::load: break;  // by their place in the program: move()
  }
  return fail(Code::internal_error, "an instruction of kind {} is unknown", static_cast<int>(instruction.op));
}

template <typename T>
void Executor<T>::clear_gaps(int unit, A* gradient) const {
  if (gradient == nullptr) return;
  for (const Range& gap : states_[unit].gaps) std::fill(gradient + gap.begin, gradient + gap.end, A(0));
}

template <typename T>
model::Bound<T> Executor<T>::bind(Run& run, const Instruction& i) {
  using model::Given;
  model::Bound<T> bound;
  bound.parameters = at<T>(run, i, Role::parameters);
  bound.tied_parameters = at<T>(run, i, Role::tied_parameters);
  bound.gradient = at<A>(run, i, Role::gradient);
  bound.tied_gradient = at<A>(run, i, Role::tied_gradient);
  bound.saved = at<std::byte>(run, i, Role::saved);
  bound.workspace = at<std::byte>(run, i, Role::workspace);
  bound.give(Given::input, at<T>(run, i, Role::input));
  bound.give(Given::output, at<T>(run, i, Role::output));
  bound.give(Given::derivative, at<T>(run, i, Role::derivative));
  bound.give(Given::tokens, tokens(i.microbatch).data());
  bound.give(Given::targets, targets(i.microbatch).data());
  bound.give(Given::losses, token_losses_ + i.microbatch * rows());
  bound.give(Given::right, losses_ + job_.microbatches + kRight);
  bound.give(Given::logits, run.logits);
  bound.exchanged = exchanged_.data();
  for (const program::Use& use : i.uses) {
    if (use.role == Role::gradient) bound.adds = use.reads;
    if (use.array >= 0)
      exchanged_[static_cast<size_t>(use.array)] =
          arena_->data() + run.memory.offset[static_cast<size_t>(use.buffer)];
  }
  if (run.settings != nullptr) bound.scale = loss_scale(run);
  return bound;
}

template <typename T>
void Executor<T>::compute(Run& run, const Instruction& i) {
  if (stand_in_) return stand_in_(i);
  for (const program::Use& use : i.uses) {
    if (!use.writes || use.reads) continue;
    if (use.role == Role::gradient) clear_gaps(i.unit, at<A>(run, i, use.role));
    if (use.role == Role::tied_gradient) clear_gaps(0, at<A>(run, i, use.role));
  }
  const model::Recipe& recipe = program::recipe_of(recipes_, i.unit, job_.units(), i.op);
  const std::vector<model::Step>& steps = program::steps_of(recipe, i.op);
  const auto first = static_cast<size_t>(i.first), last = static_cast<size_t>(i.last);
  runner_.run(pass_of(run, i), units_[static_cast<size_t>(i.unit)], recipe,
              std::span(steps).subspan(first, last - first), bind(run, i));
  if ((i.op == Op::loss || i.op == Op::evaluate) && last == steps.size()) note_loss(i.microbatch);
}

template <typename T>
Status Executor<T>::communicate(Run& run, const Instruction& i) {
  const size_t shard = static_cast<size_t>(job_.shard(units_[i.unit]));
  const weftStream_t stream = streams_[i.lane - 1];
  switch (i.op) {
    case Op::gather:
      return from_weft(weftAllGather(at<T>(run, i, Role::shard), at<T>(run, i, Role::parameters), shard,
                                     kWeftType<T>, groups_.partition(), stream));
    case Op::reduce_scatter:
      return from_weft(weftReduceScatter(at<A>(run, i, Role::gradient), at<A>(run, i, Role::shard), shard,
                                         weftFloat32, weftSum, groups_.partition(), stream));
    default: {
      A* sum = at<A>(run, i, Role::shard);
      const weftComm_t comm = i.op == Op::tie ? groups_.ends() : groups_.replication();
      return from_weft(weftAllReduce(sum, sum, shard, weftFloat32, weftSum, comm, stream));
    }
  }
}

template <typename T>
Status Executor<T>::transfer(Run& run, const Instruction& i) {
  const weftStream_t stream = streams_[i.lane - 1];
  const size_t count = static_cast<size_t>(job_.rows() * job_.spec.width);
  const bool on = i.op == Op::send || i.op == Op::receive;  // to later stages
  T* data = at<T>(run, i, on ? Role::output : Role::derivative);
  const weftComm_t comm = on ? groups_.pipeline() : groups_.pipeline_back();
  if (i.op == Op::send || i.op == Op::send_back)
    return from_weft(weftSend(data, count, kWeftType<T>, i.peer, comm, stream));
  return from_weft(weftRecv(data, count, kWeftType<T>, i.peer, comm, stream));
}

/// What a norm needs besides the gradients, so that no step looks for it again.
template <typename T>
Result<StepResult> Executor<T>::step(const StepSettings& settings) {
  Run run{.program = training_, .memory = memory_, .settings = &settings};
  LOOM_TRY(this->run(run));
  return run.result;
}

template <typename T>
Result<double> Executor<T>::evaluate() {
  Run run{.program = evaluation_, .memory = evaluation_memory_};
  losses_[static_cast<size_t>(job_.microbatches) + kRight] = 0;
  LOOM_TRY(this->run(run));
  return mean_loss(nullptr);
}

template <typename T>
Result<std::vector<float>> Executor<T>::logits(int64_t row) {
  if (row < 0 || row >= rows())
    return fail(Code::invalid_argument, "row {} is not one of the {} of a microbatch", row, rows());
  std::vector<float> values(static_cast<size_t>(job_.spec.outputs()));
  Run run{.program = logits_, .memory = logits_memory_, .logits_row = row, .logits = values.data()};
  LOOM_TRY(this->run(run));
  const Status shared = share_logits(values);
  if (!shared.ok()) groups_.abort(shared);
  LOOM_TRY(shared);
  return values;
}

Result<std::unique_ptr<Engine>> Engine::create(const program::Job& job, const Groups& groups, int threads,
                                               const std::string& tier_folder) {
  if (to_string(job.layout()) != to_string(groups.layout()))
    return fail(Code::invalid_argument, "the job is for {}, the groups for {}", to_string(job.layout()),
                to_string(groups.layout()));
  if (threads < 1) return fail(Code::invalid_argument, "threads is {}, must be at least 1", threads);
  LOOM_TRY(ops::check_instructions());
  return program::with_type(job.precision, [&]<typename T>(T) -> Result<std::unique_ptr<Engine>> {
    auto executor = std::make_unique<Executor<T>>(job, groups, threads, tier_folder);
    LOOM_TRY(executor->prepare());
    return std::unique_ptr<Engine>(std::move(executor));
  });
}

template class Executor<float>;
template class Executor<bf16>;
template class Executor<fp16>;

}  // namespace loom::engine
