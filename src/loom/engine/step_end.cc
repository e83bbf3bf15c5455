// What ranks tell each other, and what follows from it.
#include "engine/step_end.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/weft_call.h"
#include "program/generate.h"

namespace loom::engine {

using Clock = std::chrono::steady_clock;

template <typename T>
StepEnd<T>::StepEnd(const RankContext& context, const RankState<T>& state, HostWindow& window, int stage)
    : context_(context),
      state_(state),
      window_(window),
      stage_(stage),
      norms_(context.units.size()),
      owned_(program::owned_units(context.job, stage)),
      ordered_losses_(static_cast<size_t>(context.job.microbatches) *
                      static_cast<size_t>(context.job.data_degree())) {
  for (int of = 0; of < context.job.pipeline_degree; ++of) {
    int64_t chunks = 0;
    for (const int unit : program::owned_units(context.job, of)) {
      norms_[static_cast<size_t>(unit)] = {of, chunks};
      chunks += context.job.shard(context.units[static_cast<size_t>(unit)]) / program::kShardGrain;
    }
    if (of == stage) chunks_ = chunks;
    most_chunks_ = std::max(most_chunks_, chunks);
  }
}

template <typename T>
void StepEnd<T>::take_memory(double* squares, double* told) {
  squares_ = squares;
  told_there_ = told;
  static_assert(kTold == program::kToldBeside);
  told_ = window_.here(told);
}

template <typename T>
void StepEnd<T>::fetch_losses() {
  if (stage_ + 1 < context_.job.pipeline_degree) return;
  window_.download(told_there_, static_cast<int64_t>(of_microbatches() * sizeof(double)));
}

template <typename T>
Status StepEnd<T>::wait() {
  LOOM_TRY(window_.wait());
  return context_.device.on_gpu() ? context_.groups.failure() : Status();
}

/// What every tensor rank holds counts on the first only.
template <typename T>
void StepEnd<T>::sum_squares(int unit, A* counted) const {
  constexpr int64_t kSize = program::kShardGrain;
  const ops::Operators<T>& op = context_.table<T>();
  const UnitState<T>& s = state_.of(unit);
  double* const chunk = squares_ + norms_[static_cast<size_t>(unit)].first;
  op.sum_of_squares(context_.context(), s.gradient,
                    context_.job.shard(context_.units[static_cast<size_t>(unit)]), kSize, chunk);
  if (context_.tensor.rank == 0) return;
  int64_t done = -1;  // the last chunk that was summed again
  const auto sum_again = [&](int64_t which) {
    if (which != done) sum_counted(s, which, counted, chunk + which);
    done = which;
  };
  for (const Range& range : s.held_by_all) {
    const int64_t whole = (range.begin + kSize - 1) / kSize, end = range.end / kSize;
    if (range.begin % kSize != 0) sum_again(range.begin / kSize);
    if (end > whole)
      op.clear(context_.context(), chunk + whole, (end - whole) * static_cast<int64_t>(sizeof(double)));
    if (range.end % kSize != 0) sum_again(end);
  }
}

template <typename T>
void StepEnd<T>::sum_counted(const UnitState<T>& s, int64_t chunk, A* counted, double* sum) const {
  constexpr int64_t kSize = program::kShardGrain, kBytes = sizeof(A);
  const ops::Operators<T>& op = context_.table<T>();
  const int64_t begin = chunk * kSize, end = begin + kSize;
  op.copy(context_.context(), s.gradient + begin, counted, kSize * kBytes);
  for (const Range& range : s.held_by_all) {
    const int64_t first = std::max(begin, range.begin), last = std::min(end, range.end);
    if (first < last) op.clear(context_.context(), counted + (first - begin), (last - first) * kBytes);
  }
  op.sum_of_squares(context_.context(), counted, kSize, kSize, sum);
}

/// In strict order all chunks of one copy of the model are gathered and added one after the other, unit by
/// unit, which is the same for every degree and partition, since padding adds zeros only.
template <typename T>
Status StepEnd<T>::find_norm(StepProgress& step) {
  const program::Job& job = context_.job;
  window_.download(squares_, chunks_ * static_cast<int64_t>(sizeof(double)));
  fetch_losses();
  LOOM_TRY(wait());
  double *const own = window_.here(squares_), *const all = own + most_chunks_;
  const int64_t count = job.strict ? most_chunks_ : 1;
  if (!job.strict)
    for (int64_t chunk = 1; chunk < chunks_; ++chunk) own[0] += own[chunk];
  const auto begin = Clock::now();
  if (context_.groups.model() != nullptr)
    LOOM_TRY_WEFT(
        weftAllGather(own, all, static_cast<size_t>(count), weftFloat64, context_.groups.model(), nullptr));
  else std::copy_n(own, count, all);
  StepResult& result = step.result;
  result.met_seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  result.gradient_norm = std::sqrt(sum_of_norms(all, count)) / step.settings->loss_scale;
  step.until_norm_seconds = step.seconds();
  return {};
}

template <typename T>
Status StepEnd<T>::find_mean_loss(StepProgress& step) {
  StepResult& result = step.result;
  if (step.settings == nullptr) {  // an evaluation has no norm
    fetch_losses();
    LOOM_TRY(wait());
    return exchange_losses(step);
  }
  LOOM_TRY(exchange_losses(step));
  result.exposed_seconds += result.met_seconds;
  if (std::isfinite(result.loss) && std::isfinite(result.gradient_norm)) return {};
  result.skipped = true;
  if (context_.job.precision == program::Precision::fp16) return {};  // a smaller scale may do
  return fail(
      Code::not_finite,
      "step {}: the loss is {} and the gradient norm {}; a smaller learning rate or clip_norm may help",
      step.settings->step + 1, result.loss, result.gradient_norm);
}

/// `all` has `count` values of each rank of one copy of the model: stage by stage, tensor rank by tensor
/// rank, member by member.
template <typename T>
double StepEnd<T>::sum_of_norms(const double* all, int64_t count) const {
  const program::Job& job = context_.job;
  double squares = 0;
  const int holders = job.degree * job.tensor_degree;  // of a stage
  if (!job.strict) {
    for (int rank = 0; rank < holders * job.pipeline_degree; ++rank) squares += all[rank];
    return squares;
  }
  for (const model::Unit& unit : context_.units) {
    const auto& [stage, first] = norms_[static_cast<size_t>(unit.index)];
    const int64_t chunks = job.shard(unit) / program::kShardGrain;
    for (int holder = 0; holder < holders; ++holder)
      for (int64_t chunk = 0; chunk < chunks; ++chunk)
        squares += all[(stage * holders + holder) * count + first + chunk];
  }
  return squares;
}

/// Every rank adds the losses of all microbatches, which the last stages have, in the order of their numbers.
/// After a step, ranks also tell each other how long they were busy, and whether somebody wants the run to
/// end. They tell whether their norm is finite, too. If one rank's is not, it becomes infinite on all ranks,
/// so that all copies of the model skip the step.
template <typename T>
Status StepEnd<T>::exchange_losses(StepProgress& step) {
  const program::Job& job = context_.job;
  const Groups& groups = context_.groups;
  StepResult& result = step.result;
  const size_t own = told();
  double *all = told_ + own, *beside = told_ + of_microbatches();
  const bool trains = step.settings != nullptr;
  const bool asked = trains && step.settings->stop != nullptr && *step.settings->stop;
  beside[kOverflows] = trains && !std::isfinite(result.gradient_norm) ? 1 : 0;
  beside[kStops] = asked && (*step.settings->stop)() ? 1 : 0;
  beside[kBusy] = step.busy_seconds;
  const auto begin = Clock::now();
  if (groups.world() != nullptr)
    LOOM_TRY_WEFT(weftAllGather(told_, all, own, weftFloat64, groups.world(), nullptr));
  else std::copy_n(told_, own, all);
  if (trains) result.met_seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  double busy = 0, right = 0;
  for (int rank = 0; rank < groups.ranks(); ++rank) {
    const double *losses = all + static_cast<size_t>(rank) * own, *counts = losses + job.microbatches;
    const double* beside_losses = losses + of_microbatches();
    if (trains && beside_losses[kOverflows] != 0 && std::isfinite(result.gradient_norm))
      result.gradient_norm = std::numeric_limits<double>::infinity();
    if (beside_losses[kStops] != 0) result.stop = true;
    busy += beside_losses[kBusy];
    const program::Coordinates at = groups.layout().coordinates(groups.place_of(rank));
    if (at.stage + 1 < job.pipeline_degree || at.tensor > 0) continue;
    for (int index = 0; index < job.microbatches; ++index) {
      right += counts[index];
      ordered_losses_[static_cast<size_t>(program::microbatch_number(
          job, at.data / job.degree, at.data % job.degree, index))] = losses[index];
    }
  }
  if (trains) result.bubble = std::max(0.0, 1 - busy / groups.ranks() / step.until_norm_seconds);
  double sum = 0;
  for (const double loss : ordered_losses_) sum += loss;
  result.loss = sum / step.mean_over(job);
  step.right = static_cast<int64_t>(right);
  return {};
}

template <typename T>
void StepEnd<T>::optimize(const StepProgress& step, int unit) const {
  if (step.result.skipped) return;
  ops::AdamW settings = step.settings->optimizer;
  settings.step = static_cast<int64_t>(step.settings->step) + 1 - step.settings->uncounted;
  const double clip = step.settings->clip_norm, norm = step.result.gradient_norm;
  const double clipping = clip > 0 && norm > clip ? clip / norm : 1.0;
  settings.gradient_scale = static_cast<float>(clipping / step.settings->loss_scale);
  const float decay = settings.weight_decay;
  const UnitState<T>& s = state_.of(unit);
  for (const auto& segment : s.segments) {
    settings.weight_decay = segment.decays ? decay : 0.0f;
    const int64_t at = segment.begin;
    context_.table<T>().update(context_.context(), settings, s.gradient + at, s.master + at, s.slots.from(at),
                               s.parameters + at, segment.end - at);
  }
}

template class StepEnd<float>;
template class StepEnd<bf16>;
template class StepEnd<fp16>;

}  // namespace loom::engine
