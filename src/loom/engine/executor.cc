// Instructions one by one.
#include "engine/executor.h"

#include <algorithm>

#include "engine/model_collector.h"
#include "engine/weft_call.h"
#include "ops/gemm.h"
#include "ops/tables.h"
#include "program/steps.h"
#include "program/verify.h"

namespace loom::engine {
namespace {

using program::Instruction;
using program::Op;

double seconds_between(std::chrono::steady_clock::time_point begin,
                       std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

template <typename T>
Executor<T>::Executor(const program::Job& job, const Groups& groups, int threads)
    : groups_(groups),
      workers_(threads),
      tensor_{job.tensor_degree, groups.coordinates().tensor},
      context_{job_, groups_, units_, whole_units_, workers_, tensor_},
      sizes_(job.recipe_sizes(tensor_.rank)),
      recipes_(job.spec, sizes_),
      runner_(job.spec, job.share(tensor_.rank)),
      layout_(job.spec, sizes_),
      arrays_(static_cast<size_t>(job.microbatches)),
      state_(context_) {
  job_ = job;
  units_ = job.held_units(tensor_.rank);
  whole_units_ = model::units_of(job.spec);
}

template <typename T>
Status Executor<T>::prepare(const std::string& tier_folder) {
  for_workers(workers_, ops::prepare_thread);  // or a late one would allocate in whatever step it first works
  LOOM_TRY(plan(program::Purpose::step, "a step", training_, memory_));
  LOOM_TRY(plan(program::Purpose::evaluation, "an evaluation", evaluation_, evaluation_memory_));
  LOOM_TRY(plan(program::Purpose::logits, "logits", logits_, logits_memory_));
  const int64_t planned = std::max({memory_.bytes, evaluation_memory_.bytes, logits_memory_.bytes});
  end_ = std::make_unique<StepEnd<T>>(context_, state_, training_.stage);
  Result<Arena> arena = Arena::create(planned + end_->bytes(), groups_);
  LOOM_TRY(arena.status());
  arena_ = std::make_unique<Arena>(arena.take());
  end_->take_memory(arena_->data() + planned);
  LOOM_TRY(lanes_.create(training_, tier_folder, memory_.tier_bytes));
  for (const model::Recipe* recipe :
       {&recipes_.embedding, &recipes_.block, &recipes_.loss, &recipes_.evaluation, &recipes_.logits})
    exchanged_.resize(std::max(exchanged_.size(), recipe->arrays.size()));
  timeline_.resize(training_.instructions.size());
  state_.find(training_, memory_, arena_->data());
  const auto persistent = [&](program::BufferId buffer) {
    return arena_->data() + memory_.offset[static_cast<size_t>(buffer)];
  };
  batch_ = reinterpret_cast<int32_t*>(persistent(training_.batch));
  token_losses_ = reinterpret_cast<double*>(persistent(training_.losses));
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
  pass.context = workers_;
  pass.spec = &job_.spec;
  pass.batch = job_.batch;
  pass.tokens = job_.tokens;
  pass.training = run.progress.settings != nullptr;
  if (pass.training) {
    pass.seed = run.progress.settings->seed;
    pass.step = run.progress.settings->step;
  }
  // What is not declared may be on its way yet, and on a stage where nothing is declared never comes.
  if (i.buffer(Role::batch) >= 0) pass.arrays = arrays_of(run, i.microbatch);
  pass.first_sample = static_cast<uint64_t>(
      program::microbatch_number(job_, groups_.group(), groups_.member(), i.microbatch) * job_.batch);
  return pass;
}

/// Made once a run, as soon as tokens and targets are here.
template <typename T>
const model::BatchArrays& Executor<T>::arrays_of(const Run& run, int microbatch) {
  std::optional<model::BatchArrays>& arrays = arrays_[static_cast<size_t>(microbatch)];
  if (!arrays) {
    std::byte* const memory =
        reinterpret_cast<std::byte*>(batch_ + 2 * job_.microbatches * rows()) + microbatch * layout_.bytes();
    arrays =
        layout_.fill(tokens(microbatch).data(), targets(microbatch).data(), run.logits_row, memory, memory);
  }
  return *arrays;
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
  using Clock = std::chrono::steady_clock;
  StepProgress& progress = run.progress;
  const auto begin = progress.begin = Clock::now();
  const bool traced = progress.settings != nullptr;
  progress.result.begin_us = std::chrono::duration<double, std::micro>(begin.time_since_epoch()).count();
  lanes_.take_waited_seconds();
  std::ranges::fill(arrays_, std::nullopt);
  for (size_t i = 0; i < run.program.instructions.size(); ++i) {
    const Instruction& instruction = run.program.instructions[i];
    LOOM_TRY(lanes_.wait_before(run.program, instruction));
    const auto issued = Clock::now();
    if (program::is_offloading(instruction.op)) {
      const program::BufferId stored = instruction.buffer(Role::stored);
      lanes_.move(i, instruction, run.memory.offset[static_cast<size_t>(stored)],
                  at(run, instruction.buffer(Role::resident)),
                  run.program.buffers[static_cast<size_t>(stored)].bytes);
    } else {
      LOOM_TRY(execute(run, instruction));
    }
    if (instruction.lane > 0) LOOM_TRY(lanes_.note_issued(i, instruction));
    const auto done = Clock::now();
    if (instruction.lane == 0) progress.busy_seconds += seconds_between(issued, done);
    if (traced) timeline_[i] = {seconds_between(begin, issued) * 1e6, seconds_between(begin, done) * 1e6};
  }
  LOOM_TRY(lanes_.wait_all());
  workers_.level_scratch();
  progress.result.exposed_seconds += lanes_.take_waited_seconds();
  progress.result.seconds = progress.seconds();
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
    case Op::tensor_reduce_scatter: return exchange(run, instruction);
    case Op::tensor_gradients: return sum_gradients(run, instruction);
    case Op::accumulate: {
      A* sum = at<A>(run, instruction, Role::shard);
      const int64_t bytes = run.program.buffers[static_cast<size_t>(instruction.buffer(Role::shard))].bytes;
      ops::operators<T>().add(workers_, sum, at<A>(run, instruction, Role::partial), sum,
                              bytes / static_cast<int64_t>(sizeof(A)));
      return {};
    }
    case Op::norm: return end_->find_norm(run.progress, at<double>(run, instruction, Role::norms));
    case Op::step: end_->optimize(run.progress, instruction.unit); return {};
    case Op::offload:
    case Op::load: break;  // by their place in the program: run_all()
  }
  return fail(Code::internal_error, "an instruction of kind {} is unknown", static_cast<int>(instruction.op));
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
  bound.give(Given::right, end_->right());
  bound.give(Given::logits, run.logits);
  bound.exchanged = exchanged_.data();
  for (const program::Use& use : i.uses) {
    if (use.role == Role::gradient) bound.adds = use.reads;
    if (use.array >= 0) exchanged_[static_cast<size_t>(use.array)] = at(run, use.buffer);
  }
  if (const StepSettings* settings = run.progress.settings)  // the loss is a mean, and scaled
    bound.scale = static_cast<A>(settings->loss_scale / job_.targets_per_step());
  return bound;
}

template <typename T>
void Executor<T>::compute(Run& run, const Instruction& i) {
  if (stand_in_) return stand_in_(i);
  for (const program::Use& use : i.uses) {
    if (!use.writes || use.reads) continue;
    if (use.role == Role::gradient) state_.clear_gaps(i.unit, at<A>(run, i, use.role));
    if (use.role == Role::tied_gradient) state_.clear_gaps(0, at<A>(run, i, use.role));
  }
  const model::Recipe& recipe = program::recipe_of(recipes_, i.unit, job_.units(), i.op);
  const std::vector<model::Step>& steps = program::steps_of(recipe, i.op);
  const auto first = static_cast<size_t>(i.first), last = static_cast<size_t>(i.last);
  runner_.run(pass_of(run, i), units_[static_cast<size_t>(i.unit)], recipe,
              std::span(steps).subspan(first, last - first), bind(run, i));
  if ((i.op == Op::loss || i.op == Op::evaluate) && last == steps.size())
    end_->note_loss(i.microbatch, token_losses_ + i.microbatch * rows(), rows());
}

/// The head picks as many rows as the job says; more than that would be left out without a word.
template <typename T>
Status Executor<T>::check_targets(const Instruction& i) {
  if (job_.spec.task != model::Task::masked || job_.targets == 0 || i.first != 0 ||
      (i.op != Op::loss && i.op != Op::evaluate))
    return {};
  const std::span<int32_t> all = targets(i.microbatch);
  const int64_t count = std::count_if(all.begin(), all.end(), [](int32_t target) { return target >= 0; });
  if (count <= job_.batch * job_.targets) return {};
  return fail(Code::invalid_argument,
              "microbatch {} has {} targets, but the job has {} of each of {} sequences", i.microbatch, count,
              job_.targets, job_.batch);
}

template <typename T>
Status Executor<T>::communicate(Run& run, const Instruction& i) {
  const size_t shard = static_cast<size_t>(job_.shard(units_[i.unit]));
  const weftStream_t stream = lanes_.stream(i);
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
  const weftStream_t stream = lanes_.stream(i);
  const size_t count = static_cast<size_t>(job_.rows() * job_.spec.width);
  const bool on = i.op == Op::send || i.op == Op::receive;  // to later stages
  T* data = at<T>(run, i, on ? Role::output : Role::derivative);
  const weftComm_t comm = on ? groups_.pipeline() : groups_.pipeline_back();
  if (i.op == Op::send || i.op == Op::send_back)
    return from_weft(weftSend(data, count, kWeftType<T>, i.peer, comm, stream));
  return from_weft(weftRecv(data, count, kWeftType<T>, i.peer, comm, stream));
}

template <typename T>
Status Executor<T>::exchange(Run& run, const Instruction& i) {
  constexpr weftDataType_t kType = kWeftType<T>;
  const weftComm_t tensor = groups_.tensor();
  const weftStream_t stream = lanes_.stream(i);
  const auto bytes = [&](Role role) {
    return static_cast<size_t>(run.program.buffers[static_cast<size_t>(i.buffer(role))].bytes);
  };
  T *from = at<T>(run, i, Role::input), *to = at<T>(run, i, Role::output);
  if (i.buffer(Role::batch) >= 0) return gather_batch(stream);
  switch (i.op) {
    case Op::tensor_gather:  // rows or numbers: bytes, whatever they are
      return from_weft(weftAllGather(from, to, bytes(Role::output) / static_cast<size_t>(job_.tensor_degree),
                                     weftUint8, tensor, stream));
    case Op::tensor_all_reduce:
      return from_weft(
          weftAllReduce(to, to, bytes(Role::output) / sizeof(T), kType, weftSum, tensor, stream));
    case Op::tensor_reduce_scatter:
      return from_weft(
          weftReduceScatter(from, to, bytes(Role::output) / sizeof(T), kType, weftSum, tensor, stream));
    default: break;
  }
  return fail(Code::internal_error, "{} is no exchange", program::op_name(i.op));
}

/// Of what every tensor rank holds whole, and has the gradient of its own rows of.
template <typename T>
Status Executor<T>::sum_gradients(Run& run, const Instruction& i) {
  A* const gradient = at<A>(run, i, Role::shard);
  for (const Range& range : state_.of(i.unit).of_rows)
    LOOM_TRY_WEFT(weftAllReduce(gradient + range.begin, gradient + range.begin,
                                static_cast<size_t>(range.end - range.begin), weftFloat32, weftSum,
                                groups_.tensor(), lanes_.stream(i)));
  return {};
}

/// Tokens and targets of each microbatch, in place.
template <typename T>
Status Executor<T>::gather_batch(weftStream_t stream) {
  const int64_t part = rows() / job_.tensor_degree;
  for (int m = 0; m < job_.microbatches; ++m)
    for (const std::span<int32_t> all : {tokens(m), targets(m)})
      LOOM_TRY_WEFT(weftAllGather(all.data() + tensor_.rank * part, all.data(), static_cast<size_t>(part),
                                  weftInt32, groups_.tensor(), stream));
  return {};
}

/// Of a row's logits every tensor rank of the last stage has its own tokens', or of a classification's all;
/// then all ranks have all.
template <typename T>
Status Executor<T>::share_logits(std::vector<float>& logits) const {
  const std::array<weftComm_t, 2> comms = {groups_.tensor(), groups_.pipeline()};
  if (comms[0] == nullptr && comms[1] == nullptr) return {};
  const auto most = static_cast<size_t>(model::vocabulary_of(job_.spec, {job_.tensor_degree, 0}).count),
             gathered = most * static_cast<size_t>(job_.tensor_degree);
  const Result<Arena> arena =
      Arena::create(static_cast<int64_t>((most + std::max(gathered, logits.size())) * sizeof(float)), comms);
  LOOM_TRY(arena.status());
  float *const own = arena->as<float>(), *const all = own + most;
  if (comms[0] != nullptr && job_.spec.task != model::Task::classification) {
    std::copy_n(logits.begin(), std::min(logits.size(), most), own);
    LOOM_TRY_WEFT(weftAllGather(own, all, most, weftFloat32, comms[0], nullptr));
  } else {
    std::copy(logits.begin(), logits.end(), all);
  }
  if (comms[1] != nullptr)
    LOOM_TRY_WEFT(
        weftBroadcast(all, all, logits.size(), weftFloat32, job_.pipeline_degree - 1, comms[1], nullptr));
  std::copy_n(all, logits.size(), logits.begin());  // behind the last rank's tokens there is nothing
  return {};
}

template <typename T>
Result<StepResult> Executor<T>::step(const StepSettings& settings) {
  Run run{.program = training_, .memory = memory_};
  run.progress.settings = &settings;
  LOOM_TRY(this->run(run));
  return run.progress.result;
}

template <typename T>
Result<double> Executor<T>::evaluate() {
  Run run{.program = evaluation_, .memory = evaluation_memory_};
  *end_->right() = 0;
  LOOM_TRY(this->run(run));
  return end_->mean_loss(right_);
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

template <typename T>
Status Executor<T>::save_state(const std::string& folder, bool optimizer) const {
  if (groups_.group() != 0) return {};
  const Result<format::FlatLayout> layout = state_layout(training_.stage, tensor_.rank, optimizer);
  LOOM_TRY(layout.status());
  return state_.save(folder, *layout, end_->owned(), optimizer);
}

template <typename T>
Status Executor<T>::save_model(const std::string& folder) {
  return engine::save_model(folder, context_, [&](int unit) {
    return HeldMaster{end_->stage_of(unit), state_.of(unit).master};
  });
}

Result<format::FlatLayout> Engine::state_layout(int stage, int tensor, bool optimizer) const {
  std::vector<format::FlatBuffer> buffers;
  for (const int unit : program::owned_units(job_, stage))
    for (int part = 0; part < (optimizer ? kStateParts : 1); ++part) {
      const model::Unit& held = units_[static_cast<size_t>(unit)];
      buffers.push_back({state_part_name(held, part), static_cast<uint64_t>(held.elements),
                         static_cast<uint64_t>(job_.shard(held))});
    }
  return format::FlatLayout::make(state_name(stage, tensor), job_.degree, std::move(buffers));
}

Result<std::unique_ptr<Engine>> Engine::create(const program::Job& job, const Groups& groups,
                                               const Where& where, const std::string& tier_folder) {
  if (to_string(job.layout()) != to_string(groups.layout()))
    return fail(Code::invalid_argument, "the job is for {}, the groups for {}", to_string(job.layout()),
                to_string(groups.layout()));
  if (where.threads < 1)
    return fail(Code::invalid_argument, "threads is {}, must be at least 1", where.threads);
  if (where.gpu != groups.gpu())
    return fail(Code::invalid_argument, "the engine is for GPU {}, the groups for GPU {} (-1: none)",
                where.gpu, groups.gpu());
  if (where.gpu >= 0)
    return fail(Code::unsupported, "the engine trains on CPUs only, not on GPU {}", where.gpu);
  LOOM_TRY(ops::check_instructions());
  return program::with_type(job.precision, [&]<typename T>(T) -> Result<std::unique_ptr<Engine>> {
    auto executor = std::make_unique<Executor<T>>(job, groups, where.threads);
    LOOM_TRY(executor->prepare(tier_folder));
    return std::unique_ptr<Engine>(std::move(executor));
  });
}

template class Executor<float>;
template class Executor<bf16>;
template class Executor<fp16>;

}  // namespace loom::engine
