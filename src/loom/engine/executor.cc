// Instructions one by one.
#include "engine/executor.h"

#include <algorithm>
#include <cmath>

#include "engine/weft_call.h"
#include "program/generate.h"
#include "program/verify.h"

namespace loom::engine {
namespace {

using program::Instruction;
using program::Op;

template <typename T>
constexpr weftDataType_t kWeftType = std::is_same_v<T, bf16> ? weftBfloat16 : weftFloat32;

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
      share_(job.share(tensor_.rank)),
      compute_(job.spec, model::Share::whole(job.spec)),
      split_(job.spec, share_),
      op_(ops::operators<T>()) {
  job_ = job;
  units_ = job.held_units(tensor_.rank);
  whole_units_ = model::units_of(job.spec);
}

template <typename T>
Executor<T>::~Executor() {
  for (const weftStream_t stream : streams_) (void)weftStreamDestroy(stream);  // what failed was said before
}

template <typename T>
Status Executor<T>::prepare() {
  Result<program::Program> training = program::make_program(job_),
                           evaluation = program::make_evaluation(job_);
  LOOM_TRY(training.status());
  LOOM_TRY(evaluation.status());
  training_ = training.take();
  evaluation_ = evaluation.take();
  memory_ = program::plan_memory(training_);
  evaluation_memory_ = program::plan_memory(evaluation_);
  LOOM_TRY(program::verify(job_, training_, memory_).in("the program of a step"));
  LOOM_TRY(program::verify(job_, evaluation_, evaluation_memory_).in("the program of an evaluation"));

  Result<Arena> arena = Arena::create(std::max(memory_.bytes, evaluation_memory_.bytes), groups_);
  LOOM_TRY(arena.status());
  arena_ = std::make_unique<Arena>(arena.take());
  int lanes = 0;
  for (const Instruction& instruction : training_.instructions) lanes = std::max(lanes, instruction.lane);
  for (int lane = 0; lane < lanes; ++lane) {
    weftStream_t stream = nullptr;
    LOOM_TRY_WEFT(weftStreamCreate(&stream));
    streams_.push_back(stream);
  }
  pending_.assign(lanes + 1, false);
  timeline_.resize(training_.instructions.size());
  losses_.resize(static_cast<size_t>(job_.microbatches) * (groups_.ranks() + 1));
  ordered_losses_.resize(static_cast<size_t>(job_.microbatches) * groups_.ranks());
  find_state();
  find_held_by_all();
  return {};
}

template <typename T>
model::Pass Executor<T>::pass_of(const Run& run, int microbatch) {
  model::Pass pass;
  pass.workers = &workers_;
  pass.spec = &job_.spec;
  pass.batch = job_.batch;
  pass.tokens = job_.tokens;
  pass.training = run.settings != nullptr;
  if (pass.training) {
    pass.seed = run.settings->seed;
    pass.step = run.settings->step;
  }
  if (job_.spec.padding >= 0) {
    lengths_.resize(static_cast<size_t>(job_.batch));
    model::find_lengths(job_.spec, tokens(microbatch).data(), job_.batch, job_.tokens, lengths_.data());
    pass.lengths = lengths_.data();
  }
  pass.first_sample = static_cast<uint64_t>(
      program::microbatch_number(job_, groups_.group(), groups_.member(), microbatch) * job_.batch);
  return pass;
}

template <typename T>
Status Executor<T>::run(Run& run) {
  const auto begin = Clock::now();
  const bool traced = run.settings != nullptr;
  for (size_t i = 0; i < run.program.instructions.size(); ++i) {
    const Instruction& instruction = run.program.instructions[i];
    LOOM_TRY(wait_for(run, instruction));
    const auto issued = Clock::now();
    LOOM_TRY(execute(run, instruction));
    if (traced)
      timeline_[i] = {seconds_between(begin, issued) * 1e6, seconds_between(begin, Clock::now()) * 1e6};
  }
  LOOM_TRY(wait_all(run));
  run.result.seconds = seconds_between(begin, Clock::now());
  return {};
}

/// A lane is a queue, so waiting for one of its operations waits for those that were issued later, too.
template <typename T>
Status Executor<T>::wait_for(Run& run, const Instruction& instruction) {
  for (const int before : instruction.after) {
    const int lane = run.program.instructions[before].lane;
    if (!pending_[lane]) continue;
    const auto begin = Clock::now();
    LOOM_TRY_WEFT(weftStreamSynchronize(streams_[lane - 1]));
    run.result.exposed_seconds += seconds_between(begin, Clock::now());
    pending_[lane] = false;
  }
  return {};
}

template <typename T>
Status Executor<T>::wait_all(Run& run) {
  for (size_t lane = 1; lane < pending_.size(); ++lane) {
    if (!pending_[lane]) continue;
    const auto begin = Clock::now();
    LOOM_TRY_WEFT(weftStreamSynchronize(streams_[lane - 1]));
    run.result.exposed_seconds += seconds_between(begin, Clock::now());
    pending_[lane] = false;
  }
  return {};
}

template <typename T>
Status Executor<T>::execute(Run& run, const Instruction& instruction) {
  switch (instruction.op) {
    case Op::forward:
    case Op::recompute:
    case Op::loss:
    case Op::evaluate:
    case Op::backward: compute(run, instruction); return {};
    case Op::gather:
    case Op::reduce_scatter:
    case Op::all_reduce: return communicate(run, instruction);
    case Op::tensor_gather:
    case Op::tensor_all_reduce:
    case Op::tensor_reduce_scatter:
    case Op::tensor_gradients: return exchange(run, instruction);
    case Op::accumulate: {
      A* sum = at<A>(run, instruction, Role::shard);
      op_.add(workers_, sum, at<A>(run, instruction, Role::partial), sum,
              job_.shard(units_[instruction.unit]));
      return {};
    }
    case Op::norm: return find_norm(run, instruction);
    case Op::step: optimize(run, instruction); return {};
  }
  return fail(Code::internal_error, "an instruction of kind {} is unknown", static_cast<int>(instruction.op));
}

template <typename T>
void Executor<T>::clear_gaps(int unit, A* gradient) const {
  if (gradient == nullptr) return;
  for (const Range& gap : states_[unit].gaps) std::fill(gradient + gap.begin, gradient + gap.end, A(0));
}

template <typename T>
void Executor<T>::compute(Run& run, const Instruction& i) {
  const model::Unit& unit = units_[i.unit];
  const model::Pass pass = pass_of(run, i.microbatch);
  const int32_t* token = tokens(i.microbatch).data();
  const T* parameters = at<T>(run, i, Role::parameters);
  std::byte* workspace = at<std::byte>(run, i, Role::workspace);
  T* d = at<T>(run, i, Role::derivative);
  A* gradient = at<A>(run, i, Role::gradient);
  clear_gaps(i.unit, gradient);
  clear_gaps(0, at<A>(run, i, Role::tied_gradient));
  if (i.piece >= 0) return piece(run, i);
  if (unit.kind == model::UnitKind::head) return head(run, i, pass);
  if (unit.kind == model::UnitKind::embedding) {
    if (i.op == Op::backward)
      compute_.embedding_backward(pass, parameters, token, d, gradient, job_.spec.tied, workspace);
    else compute_.embedding_forward(pass, parameters, token, at<T>(run, i, Role::output), workspace);
    return;
  }
  const T* x = at<T>(run, i, Role::input);
  std::byte* saved = at<std::byte>(run, i, Role::saved);
  if (i.op == Op::backward) compute_.block_backward(pass, unit, parameters, x, saved, d, gradient, workspace);
  else compute_.block_forward(pass, unit, parameters, x, saved, at<T>(run, i, Role::output), workspace);
}

template <typename T>
void Executor<T>::head(Run& run, const Instruction& i, const model::Pass& pass) {
  const model::Unit& unit = units_[i.unit];
  const T *parameters = at<T>(run, i, Role::parameters), *embedding = at<T>(run, i, Role::tied_parameters);
  const T* x = at<T>(run, i, Role::input);
  std::byte* workspace = at<std::byte>(run, i, Role::workspace);
  double* losses = token_losses_ + i.microbatch * rows();
  const int32_t* target = targets(i.microbatch).data();
  if (i.op == Op::loss) {
    const A scale = static_cast<A>(1.0 / job_.targets_per_step());
    compute_.head_loss(pass, unit, parameters, embedding, x, target, scale, losses,
                       at<T>(run, i, Role::derivative), at<A>(run, i, Role::gradient),
                       at<A>(run, i, Role::tied_gradient), workspace);
  } else if (run.logits != nullptr) {
    if (i.microbatch == 0)
      compute_.head_logits(pass, unit, parameters, embedding, x, run.logits_row, run.logits->data(),
                           workspace);
    return;
  } else {
    compute_.head_evaluate(pass, unit, parameters, embedding, x, target, losses, workspace);
  }
  double sum = 0;
  for (int64_t row = 0; row < rows(); ++row) sum += losses[row];
  losses_[i.microbatch] = sum;
}

template <typename T>
Status Executor<T>::communicate(Run& run, const Instruction& i) {
  const size_t shard = static_cast<size_t>(job_.shard(units_[i.unit]));
  const weftStream_t stream = streams_[i.lane - 1];
  pending_[i.lane] = true;
  switch (i.op) {
    case Op::gather:
      return from_weft(weftAllGather(at<T>(run, i, Role::shard), at<T>(run, i, Role::parameters), shard,
                                     kWeftType<T>, groups_.partition(), stream));
    case Op::reduce_scatter:
      return from_weft(weftReduceScatter(at<A>(run, i, Role::gradient), at<A>(run, i, Role::shard), shard,
                                         weftFloat32, weftSum, groups_.partition(), stream));
    default: {
      A* sum = at<A>(run, i, Role::shard);
      return from_weft(weftAllReduce(sum, sum, shard, weftFloat32, weftSum, groups_.replication(), stream));
    }
  }
}

/// Squares are summed in chunks of kShardGrain elements. In strict order all chunks of all ranks are gathered
/// and added one after the other, unit by unit, which is the same for every degree, since padding adds zeros
/// only.
template <typename T>
Status Executor<T>::find_norm(Run& run, const Instruction& i) {
  double* own = at<double>(run, i, Role::norms);
  int64_t chunks = 0;
  for (const model::Unit& unit : units_) {
    const int64_t shard = job_.shard(unit);
    sum_squares(unit, own + chunks);
    chunks += shard / program::kShardGrain;
  }
  double* all = own + chunks;
  int64_t count = chunks;
  if (!job_.strict) {
    for (int64_t chunk = 1; chunk < chunks; ++chunk) own[0] += own[chunk];
    count = 1;
  }
  if (groups_.partition() != nullptr)
    LOOM_TRY_WEFT(
        weftAllGather(own, all, static_cast<size_t>(count), weftFloat64, groups_.partition(), nullptr));
  else std::copy_n(own, count, all);
  double squares = 0;
  if (!job_.strict) {
    for (int member = 0; member < job_.degree; ++member) squares += all[member];
  } else {
    int64_t first = 0;
    for (const model::Unit& unit : units_) {
      const int64_t of_unit = job_.shard(unit) / program::kShardGrain;
      for (int member = 0; member < job_.degree; ++member)
        for (int64_t chunk = 0; chunk < of_unit; ++chunk) squares += all[member * chunks + first + chunk];
      first += of_unit;
    }
  }
  const Result<double> sum = over_tensor_ranks(squares);
  LOOM_TRY(sum.status());
  run.result.gradient_norm = std::sqrt(*sum);
  const Result<double> loss = mean_loss();
  LOOM_TRY(loss.status());
  run.result.loss = *loss;
  if (!std::isfinite(run.result.loss) || !std::isfinite(run.result.gradient_norm))
    return fail(
        Code::not_finite,
        "step {}: the loss is {} and the gradient norm {}; a smaller learning rate or clip_norm may help",
        run.settings->step, run.result.loss, run.result.gradient_norm);
  return {};
}

/// Every rank adds the sums of all microbatches in the order of their numbers.
template <typename T>
Result<double> Executor<T>::mean_loss() {
  const size_t own = static_cast<size_t>(job_.microbatches);
  double* all = losses_.data() + own;
  if (groups_.world() != nullptr) {
    LOOM_TRY_WEFT(weftAllGather(losses_.data(), all, own, weftFloat64, groups_.world(), nullptr));
  } else {
    std::copy_n(losses_.data(), own, all);
  }
  for (int rank = 0; rank < groups_.ranks(); ++rank) {
    const program::Coordinates at = job_.layout().coordinates(groups_.place_of(rank));
    for (int index = 0; index < job_.microbatches; ++index)
      ordered_losses_[program::microbatch_number(job_, at.data / job_.degree, at.data % job_.degree, index)] =
          all[static_cast<size_t>(rank) * own + index];
  }
  double sum = 0;
  for (const double loss : ordered_losses_) sum += loss;
  return sum / job_.targets_per_step();
}

template <typename T>
void Executor<T>::optimize(Run& run, const Instruction& i) {
  ops::AdamW settings = run.settings->optimizer;
  settings.step = run.settings->step + 1;
  const double clip = run.settings->clip_norm;
  settings.gradient_scale = clip > 0 && run.result.gradient_norm > clip
                                ? static_cast<float>(clip / run.result.gradient_norm)
                                : 1.0f;
  const float decay = settings.weight_decay;
  const State& s = states_[i.unit];
  for (const Segment& segment : s.segments) {
    settings.weight_decay = segment.decays ? decay : 0.0f;
    const int64_t at = segment.begin;
    op_.adamw(workers_, settings, s.gradient + at, s.master + at, s.first + at, s.second + at,
              s.parameters + at, segment.end - at);
  }
}

template <typename T>
Result<StepResult> Executor<T>::step(const StepSettings& settings) {
  Run run{training_, memory_, &settings, -1, nullptr, {}};
  LOOM_TRY(this->run(run));
  return run.result;
}

template <typename T>
Result<double> Executor<T>::evaluate() {
  Run run{evaluation_, evaluation_memory_, nullptr, -1, nullptr, {}};
  LOOM_TRY(this->run(run));
  return mean_loss();
}

template <typename T>
Result<std::vector<float>> Executor<T>::logits(int64_t row) {
  if (row < 0 || row >= rows())
    return fail(Code::invalid_argument, "row {} is not one of the {} of a microbatch", row, rows());
  std::vector<float> values(job_.spec.outputs());
  Run run{evaluation_, evaluation_memory_, nullptr, row, &values, {}};
  LOOM_TRY(this->run(run));
  LOOM_TRY(gather_logits(values));
  return values;
}

Result<std::unique_ptr<Engine>> Engine::create(const program::Job& job, const Groups& groups, int threads) {
  if (to_string(job.layout()) != to_string(groups.layout()))
    return fail(Code::invalid_argument, "the job is for {}, the groups for {}", to_string(job.layout()),
                to_string(groups.layout()));
  if (threads < 1) return fail(Code::invalid_argument, "threads is {}, must be at least 1", threads);
  const auto make = [&]<typename T>(T) -> Result<std::unique_ptr<Engine>> {
    auto executor = std::make_unique<Executor<T>>(job, groups, threads);
    LOOM_TRY(executor->prepare());
    return std::unique_ptr<Engine>(std::move(executor));
  };
  return job.precision == program::Precision::bf16 ? make(bf16{}) : make(0.0f);
}

template class Executor<float>;
template class Executor<bf16>;

}  // namespace loom::engine
