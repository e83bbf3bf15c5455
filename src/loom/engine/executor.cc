// Instructions one by one.
#include "engine/executor.h"

#include <algorithm>

#include "engine/gpu_lanes.h"
#include "engine/memory_claims.h"
#include "engine/model_collector.h"
#include "engine/weft_call.h"
#include "ops/gemm.h"
#include "program/steps.h"
#include "program/verify.h"

namespace loom::engine {
namespace {

using program::Instruction;
using program::Op;
using Kind = program::GroupKind;

double seconds_between(std::chrono::steady_clock::time_point begin,
                       std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

template <typename T>
Executor<T>::Executor(const program::Job& job, const Groups& groups, std::unique_ptr<RankDevice> device)
    : groups_(groups),
      device_(std::move(device)),
      tensor_{job.tensor_degree, groups.coordinates().tensor},
      context_{job_, groups_, units_, whole_units_, *device_, tensor_},
      sizes_(job.recipe_sizes(tensor_.rank)),
      recipes_(job.spec, sizes_),
      runner_(job.spec, job.share(tensor_.rank), device_->table<T>(), device_->fused<T>()),
      batches_(job_, model::BatchLayout(job.spec, sizes_, device_->on_gpu()), window_),
      state_(context_) {
  job_ = job;
  units_ = job.held_units(tensor_.rank);
  whole_units_ = model::units_of(job.spec);
}

template <typename T>
Status Executor<T>::prepare(const std::string& tier_folder) {
  // Or a late one would allocate in whatever step it first works.
  for_workers(device_->workers(), ops::prepare_thread);
  LOOM_TRY(plan(program::Purpose::step, "a step", training_, memory_));
  LOOM_TRY(plan(program::Purpose::evaluation, "an evaluation", evaluation_, evaluation_memory_));
  LOOM_TRY(plan(program::Purpose::logits, "logits", logits_, logits_memory_));
  for (const model::Recipe* recipe :
       {&recipes_.embedding, &recipes_.block, &recipes_.loss, &recipes_.evaluation, &recipes_.logits})
    exchanged_.resize(std::max(exchanged_.size(), recipe->arrays.size()));
  timeline_.resize(training_.instructions.size());
  const Status made = make_memory(tier_folder);
  if (!device_->on_gpu()) return made;
  LOOM_TRY(groups_.agree(made));
  return prepare_gpu();
}

template <typename T>
Status Executor<T>::make_memory(const std::string& tier_folder) {
  const bool on_gpu = device_->on_gpu();
  end_ = std::make_unique<StepEnd<T>>(context_, state_, window_, training_.stage);
  const auto bytes_of = [](const program::Program& program, program::BufferId buffer) {
    return buffer < 0 ? 0 : program.buffers[static_cast<size_t>(buffer)].bytes;
  };
  const std::array seen = {training_.batch, training_.norms, training_.told};
  if (on_gpu) {  // before anything that one rank alone may fail in
    int64_t pinned = memory_.tier_bytes + bytes_of(logits_, logits_.logits);
    for (const program::BufferId buffer : seen) pinned += bytes_of(training_, buffer);
    LOOM_TRY(check_memory(pinned, groups_, kForPinned));
  }
  Result<Arena> arena = Arena::create(
      std::max({memory_.bytes, evaluation_memory_.bytes, logits_memory_.bytes}), groups_, *device_);
  LOOM_TRY(arena.status());
  arena_ = std::make_unique<Arena>(arena.take());
  const Run training{.program = training_, .memory = memory_};
  std::vector<HostWindow::Part> parts = {{at({.program = logits_, .memory = logits_memory_}, logits_.logits),
                                          bytes_of(logits_, logits_.logits)}};
  for (const program::BufferId buffer : seen)
    parts.push_back({at(training, buffer), bytes_of(training_, buffer)});
  LOOM_TRY(window_.open(*device_, parts));
  batches_.take_memory(at(training, training_.batch));
  end_->take_memory(reinterpret_cast<double*>(at(training, training_.norms)),
                    reinterpret_cast<double*>(at(training, training_.told)));
  state_.find(training_, memory_, arena_->data());
  if (on_gpu) {
    auto lanes = std::make_unique<GpuLanes>(*device_);
    LOOM_TRY(lanes->create(training_, memory_.tier_bytes));
    lanes_ = std::move(lanes);
  } else {
    auto lanes = std::make_unique<HostLanes>();
    LOOM_TRY(lanes->create(training_, tier_folder, memory_.tier_bytes));
    lanes_ = std::move(lanes);
  }
  return {};
}

/// Ranks take over choices of products from rank 0, and tensor ranks from the first of their group. Tensor
/// ranks must compute the gradients of what all of them hold with the same bits, or their copies would part.
/// Others may differ, but then the same job would give other bits in another run. In strict order the choice
/// is the library's first, on each rank.
template <typename T>
Status Executor<T>::prepare_gpu() {
  const StepSettings settings;
  bool done = false;
  const auto compute_once = [&](bool now) -> Status {
    if (!now || std::exchange(done, true)) return {};
    LOOM_TRY(compute_all({.program = training_, .memory = memory_, .progress = {.settings = &settings}}));
    LOOM_TRY(compute_all({.program = evaluation_, .memory = evaluation_memory_}));
    LOOM_TRY(compute_all({.program = logits_, .memory = logits_memory_, .logits_row = 0}));
    return state_.after_load(true);
  };
  if (!job_.strict) {
    LOOM_TRY(groups_.agree(compute_once(groups_.rank() == 0)));
    for (const auto& [comm, next] :
         {std::pair(groups_.world(), tensor_.rank == 0), {groups_.tensor(), true}}) {
      const Result<std::string> choices = groups_.of_first(device_->choices(), comm);
      LOOM_TRY(choices.status());
      const Status adopted = done ? Status() : device_->adopt(*choices);
      LOOM_TRY(groups_.agree(adopted.ok() ? compute_once(next) : adopted));
    }
  }
  LOOM_TRY(groups_.agree(compute_once(true)));
  device_->queue().fill(arena_->data(), std::byte(0), arena_->bytes());
  return device_->end_preparing();
}

template <typename T>
Status Executor<T>::compute_all(Run run) {
  batches_.begin(run.logits_row);
  for (const Instruction& i : run.program.instructions) {
    if (program::is_compute(i.op)) compute(run, i);
    else if (i.op == Op::batch) batches_.load(i.microbatch);
    else if (i.op == Op::accumulate || i.op == Op::squares || i.op == Op::step) LOOM_TRY(execute(run, i));
  }
  return device_->queue().drain();
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
  pass.context = device_->context();
  pass.spec = &job_.spec;
  pass.batch = job_.batch;
  pass.tokens = job_.tokens;
  pass.training = run.progress.settings != nullptr;
  if (pass.training) {
    pass.seed = run.progress.settings->seed;
    pass.step = run.progress.settings->step;
  }
  // On a stage that reads nothing of it, none is loaded.
  if (i.buffer(Role::batch) >= 0) pass.arrays = batches_.arrays(i.microbatch);
  pass.first_sample = static_cast<uint64_t>(
      program::microbatch_number(job_, groups_.group(), groups_.member(), i.microbatch) * job_.batch);
  return pass;
}

/// Nobody else knows of a failure here, but of a loss that is no number, which all ranks learn together.
/// Before this rank lets go of what is in flight it must tell them: they would wait, and it, too, for them.
/// Then the caller may fill the batch again: nothing that was queued reads it.
template <typename T>
Status Executor<T>::run(Run& run) {
  const Status status = run_all(run);
  if (status.ok()) return status;
  if (status.code() != Code::not_finite) groups_.abort(status);
  (void)lanes_->wait_all();  // the failure that came first is the one to tell
  (void)device_->queue().drain();
  return status;
}

template <typename T>
Status Executor<T>::run_all(Run& run) {
  using Clock = std::chrono::steady_clock;
  StepProgress& progress = run.progress;
  const auto begin = progress.begin = Clock::now();
  const bool traced = progress.settings != nullptr;
  progress.result.begin_us = std::chrono::duration<double, std::micro>(begin.time_since_epoch()).count();
  lanes_->take_waited_seconds();
  batches_.begin(run.logits_row);
  for (size_t i = 0; i < run.program.instructions.size(); ++i) {
    const Instruction& instruction = run.program.instructions[i];
    LOOM_TRY(lanes_->wait_before(run.program, instruction));
    const auto issued = Clock::now();
    if (program::is_offloading(instruction.op)) {
      const program::BufferId stored = instruction.buffer(Role::stored);
      lanes_->move(i, instruction, run.memory.offset[static_cast<size_t>(stored)],
                   at(run, instruction.buffer(Role::resident)),
                   run.program.buffers[static_cast<size_t>(stored)].bytes);
    } else {
      LOOM_TRY(execute(run, instruction));
    }
    if (instruction.lane > 0) LOOM_TRY(lanes_->note_issued(i, instruction));
    const auto done = Clock::now();
    if (instruction.lane == 0 && !program::is_meeting(instruction.op))
      progress.busy_seconds += seconds_between(issued, done);
    if (traced) timeline_[i] = {seconds_between(begin, issued) * 1e6, seconds_between(begin, done) * 1e6};
  }
  LOOM_TRY(lanes_->wait_all());
  device_->workers().level_scratch();
  progress.result.exposed_seconds += lanes_->take_waited_seconds();
  progress.result.seconds = progress.seconds();
  return {};
}

template <typename T>
Status Executor<T>::execute(Run& run, const Instruction& instruction) {
  device_->enter(program::op_name(instruction.op));
  switch (instruction.op) {
    case Op::batch: return load_batch(run, instruction.microbatch);
    case Op::forward:
    case Op::recompute:
    case Op::loss:
    case Op::evaluate:
    case Op::logits:
    case Op::backward: compute(run, instruction); return {};
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
      device_->table<T>().add(device_->context(), sum, at<A>(run, instruction, Role::partial), sum,
                              bytes / static_cast<int64_t>(sizeof(A)));
      return {};
    }
    case Op::squares:
      end_->sum_squares(instruction.unit, at<A>(run, instruction, Role::workspace));
      return {};
    case Op::norm: return end_->find_norm(run.progress);
    case Op::mean_loss: return end_->find_mean_loss(run.progress);
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
  bound.give(Given::tokens, batches_.tokens_there(i.microbatch));
  bound.give(Given::targets, batches_.targets_there(i.microbatch));
  bound.give(Given::losses, at<double>(run, i, Role::losses));
  bound.give(Given::loss, end_->loss(i.microbatch));
  bound.give(Given::right, end_->right(i.microbatch));
  bound.give(Given::logits, at<A>(run, i, Role::logits));
  bound.exchanged = exchanged_.data();
  const auto elements = [&](Role role) {
    const program::BufferId buffer = i.buffer(role);
    return buffer < 0
               ? 0
               : run.program.buffers[static_cast<size_t>(buffer)].bytes / static_cast<int64_t>(sizeof(A));
  };
  bound.gradient_elements = elements(Role::gradient);
  bound.tied_gradient_elements = elements(Role::tied_gradient);
  for (const program::Use& use : i.uses) {
    if (use.role == Role::gradient) bound.adds = use.reads;
    if (use.array >= 0) exchanged_[static_cast<size_t>(use.array)] = at(run, use.buffer);
  }
  if (const StepSettings* settings = run.progress.settings)  // the loss is a mean, and scaled
    bound.scale = static_cast<A>(settings->loss_scale / run.progress.mean_over(job_));
  return bound;
}

template <typename T>
void Executor<T>::compute(Run& run, const Instruction& i) {
  if (stand_in_) return stand_in_(i);
  const model::Recipe& recipe = program::recipe_of(recipes_, i.unit, job_.units(), i.op);
  const std::vector<model::Step>& steps = program::steps_of(recipe, i.op);
  const auto first = static_cast<size_t>(i.first), last = static_cast<size_t>(i.last);
  runner_.run(pass_of(run, i), units_[static_cast<size_t>(i.unit)], recipe,
              std::span(steps).subspan(first, last - first), bind(run, i));
}

/// Targets are the business of the stage that has the head.
template <typename T>
Status Executor<T>::load_batch(const Run& run, int microbatch) {
  const bool has_head = run.program.stage + 1 == job_.pipeline_degree;
  if (has_head && run.logits_row < 0) LOOM_TRY(batches_.check_targets(microbatch));
  batches_.load(microbatch);
  return {};
}

template <typename T>
Status Executor<T>::communicate(Run& run, const Instruction& i) {
  const size_t shard = static_cast<size_t>(job_.shard(units_[i.unit]));
  const weftStream_t stream = lanes_->stream(i);
  switch (i.op) {
    case Op::gather:
      return from_weft(weftAllGather(at<T>(run, i, Role::shard), at<T>(run, i, Role::parameters), shard,
                                     kWeftType<T>, groups_.moving(Kind::partition), stream));
    case Op::reduce_scatter:
      return from_weft(weftReduceScatter(at<A>(run, i, Role::gradient), at<A>(run, i, Role::shard), shard,
                                         weftFloat32, weftSum, groups_.moving(Kind::partition), stream));
    default: {
      A* sum = at<A>(run, i, Role::shard);
      const weftComm_t comm = groups_.moving(i.op == Op::tie ? Kind::ends : Kind::replication);
      return from_weft(weftAllReduce(sum, sum, shard, weftFloat32, weftSum, comm, stream));
    }
  }
}

template <typename T>
Status Executor<T>::transfer(Run& run, const Instruction& i) {
  const weftStream_t stream = lanes_->stream(i);
  const size_t count = static_cast<size_t>(job_.rows() * job_.spec.width);
  const bool on = i.op == Op::send || i.op == Op::receive;  // to later stages
  T* data = at<T>(run, i, on ? Role::output : Role::derivative);
  const weftComm_t comm = on ? groups_.moving(Kind::pipeline) : groups_.pipeline_back();
  if (i.op == Op::send || i.op == Op::send_back)
    return from_weft(weftSend(data, count, kWeftType<T>, i.peer, comm, stream));
  return from_weft(weftRecv(data, count, kWeftType<T>, i.peer, comm, stream));
}

template <typename T>
Status Executor<T>::exchange(Run& run, const Instruction& i) {
  constexpr weftDataType_t kType = kWeftType<T>;
  const weftComm_t tensor = groups_.moving(Kind::tensor);
  const weftStream_t stream = lanes_->stream(i);
  const auto bytes = [&](Role role) {
    return static_cast<size_t>(run.program.buffers[static_cast<size_t>(i.buffer(role))].bytes);
  };
  T *from = at<T>(run, i, Role::input), *to = at<T>(run, i, Role::output);
  if (i.buffer(Role::batch) >= 0)  // the host derives arrays from all of it
    return batches_.gather(tensor_.rank, groups_.tensor(), device_->on_gpu() ? nullptr : stream);
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

/// Of what every tensor rank holds whole, and has a summand of the gradient of.
template <typename T>
Status Executor<T>::sum_gradients(Run& run, const Instruction& i) {
  A* const gradient = at<A>(run, i, Role::shard);
  for (const Range& range : state_.of(i.unit).summed)
    LOOM_TRY_WEFT(weftAllReduce(gradient + range.begin, gradient + range.begin,
                                static_cast<size_t>(range.end - range.begin), weftFloat32, weftSum,
                                groups_.moving(Kind::tensor), lanes_->stream(i)));
  return {};
}

/// Of the stage that has the head. On a GPU work goes on after a communicator's failure, with whatever the
/// memory has.
template <typename T>
Status Executor<T>::fetch_logits(const Run& run, std::vector<float>& logits) {
  const auto* const there = reinterpret_cast<const float*>(at(run, run.program.logits));
  if (there != nullptr) window_.download(there, static_cast<int64_t>(logits.size() * sizeof(float)));
  LOOM_TRY(window_.wait());
  if (device_->on_gpu()) LOOM_TRY(groups_.failure());
  if (there != nullptr) std::copy_n(window_.here(there), logits.size(), logits.begin());
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
  if (comms[0] != nullptr && !job_.spec.objective().predicts_classes) {
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
  if (stand_in_ && device_->on_gpu())
    return fail(Code::unsupported, "what stands in for computing runs on CPUs, not on {}",
                device_->device().describe());
  Run run{.program = training_, .memory = memory_};
  run.progress.settings = &settings;
  run.progress.targets = settings.targets;
  LOOM_TRY(this->run(run));
  return run.progress.result;
}

template <typename T>
Result<std::vector<cuda::KernelTime>> Executor<T>::timed_step(const StepSettings& settings) {
  if (!device_->on_gpu())
    return fail(Code::unsupported, "kernels are timed on a GPU; a step on CPUs has a timeline");
  device_->time_kernels(true);
  const Status made = step(settings).status();
  Result<std::vector<cuda::KernelTime>> times =
      made.ok() ? device_->take_times() : Result<std::vector<cuda::KernelTime>>(made);
  device_->time_kernels(false);
  return times;
}

template <typename T>
Result<double> Executor<T>::evaluate(double targets) {
  Run run{.program = evaluation_, .memory = evaluation_memory_};
  run.progress.targets = targets;
  LOOM_TRY(this->run(run));
  right_ = run.progress.right;
  return run.progress.result.loss;
}

template <typename T>
Result<std::vector<float>> Executor<T>::logits(int64_t row) {
  if (const int64_t rows = job_.batch * job_.tokens; row < 0 || row >= rows)
    return fail(Code::invalid_argument, "row {} is not one of the {} of a microbatch", row, rows);
  std::vector<float> values(static_cast<size_t>(job_.spec.outputs()));
  Run run{.program = logits_, .memory = logits_memory_, .logits_row = row};
  LOOM_TRY(this->run(run));
  Status status = fetch_logits(run, values);
  if (status.ok()) status = share_logits(values);
  if (!status.ok()) groups_.abort(status);  // other ranks wait in share_logits()
  LOOM_TRY(status);
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
Status Executor<T>::save_model(const std::string& folder, format::DType dtype) {
  return engine::save_model(folder, dtype, context_, [&](int unit) {
    return HeldMaster{end_->stage_of(unit), state_.of(unit).master};
  });
}

template class Executor<float>;
template class Executor<bf16>;
template class Executor<fp16>;

}  // namespace loom::engine
