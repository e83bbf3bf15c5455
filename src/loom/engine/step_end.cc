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
    most_chunks_ = std::max(most_chunks_, chunks);
  }
}

template <typename T>
void StepEnd<T>::take_memory(double* told, const double* losses) {
  static_assert(kTold == program::kToldBesideLosses);
  told_ = window_.here(told);
  right_ = told + context_.job.microbatches + kRight;
  losses_ = losses;
}

template <typename T>
void StepEnd<T>::clear_right() const {
  context_.table<T>().clear(context_.context(), right_, sizeof(double));
}

template <typename T>
Status StepEnd<T>::fetch() {
  const program::Job& job = context_.job;
  const bool has_losses = stage_ + 1 == job.pipeline_degree;
  const int64_t rows = job.batch * job.tokens, bytes = job.microbatches * rows;
  if (has_losses) {
    window_.download(losses_, bytes * static_cast<int64_t>(sizeof(double)));
    window_.download(right_, sizeof(double));
  }
  LOOM_TRY(window_.wait());
  if (context_.device.on_gpu()) LOOM_TRY(context_.groups.failure());
  if (!has_losses) return {};
  const double* losses = window_.here(losses_);
  for (int microbatch = 0; microbatch < job.microbatches; ++microbatch, losses += rows) {
    double sum = 0;
    for (int64_t row = 0; row < rows; ++row) sum += losses[row];
    told_[microbatch] = sum;
  }
  return {};
}

/// Squares of a unit's gradient shard, in chunks. What every tensor rank holds counts on the first only.
template <typename T>
void StepEnd<T>::sum_squares(const model::Unit& unit, double* chunk, A* counted) const {
  constexpr int64_t kSize = program::kShardGrain;
  const ops::Operators<T>& op = context_.table<T>();
  const UnitState<T>& s = state_.of(unit.index);
  op.sum_of_squares(context_.context(), s.gradient, context_.job.shard(unit), kSize, chunk);
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

template <typename T>
int64_t StepEnd<T>::queue_squares(double* squares, A* counted) const {
  int64_t chunks = 0;
  for (const int unit : owned_) {
    const model::Unit& held = context_.units[static_cast<size_t>(unit)];
    sum_squares(held, squares + chunks, counted);
    chunks += context_.job.shard(held) / program::kShardGrain;
  }
  return chunks;
}

/// Squares are summed in chunks of kShardGrain elements, each rank those of its shards. In strict order all
/// chunks of one copy of the model are gathered and added one after the other, unit by unit, which is the
/// same for every degree and partition, since padding adds zeros only.
template <typename T>
Status StepEnd<T>::find_norm(StepProgress& step, double* squares, A* counted) {
  const program::Job& job = context_.job;
  const int64_t chunks = queue_squares(squares, counted);
  window_.download(squares, chunks * static_cast<int64_t>(sizeof(double)));
  LOOM_TRY(fetch());
  double *const own = window_.here(squares), *const all = own + most_chunks_;
  const int64_t count = job.strict ? most_chunks_ : 1;
  if (!job.strict)
    for (int64_t chunk = 1; chunk < chunks; ++chunk) own[0] += own[chunk];
  const auto begin = Clock::now();
  if (context_.groups.model() != nullptr)
    LOOM_TRY_WEFT(
        weftAllGather(own, all, static_cast<size_t>(count), weftFloat64, context_.groups.model(), nullptr));
  else std::copy_n(own, count, all);
  StepResult& result = step.result;
  result.met_seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  result.gradient_norm = std::sqrt(sum_of_norms(all, count)) / step.settings->loss_scale;
  double right = 0;
  const Result<double> loss = exchange_losses(&step, right);
  LOOM_TRY(loss.status());
  result.loss = *loss;
  result.exposed_seconds += result.met_seconds;
  if (std::isfinite(result.loss) && std::isfinite(result.gradient_norm)) return {};
  result.skipped = true;
  if (job.precision == program::Precision::fp16) return {};  // a smaller scale may do
  return fail(
      Code::not_finite,
      "step {}: the loss is {} and the gradient norm {}; a smaller learning rate or clip_norm may help",
      step.settings->step, result.loss, result.gradient_norm);
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

/// Every rank adds the sums of all microbatches, which the last stages have, in the order of their numbers.
/// After a step, ranks also tell each other how long they were busy, and whether somebody wants the run to
/// end. They tell whether their norm is finite, too. If one rank's is not, it becomes infinite on all ranks,
/// so that all copies of the model skip the step.
template <typename T>
Result<double> StepEnd<T>::exchange_losses(StepProgress* step, double& right) {
  const program::Job& job = context_.job;
  const Groups& groups = context_.groups;
  const size_t own = told();
  double *all = told_ + own, *beside = told_ + job.microbatches;
  const bool asked = step != nullptr && step->settings->stop != nullptr && *step->settings->stop;
  beside[kOverflows] = step != nullptr && !std::isfinite(step->result.gradient_norm) ? 1 : 0;
  beside[kStops] = asked && (*step->settings->stop)() ? 1 : 0;
  beside[kBusy] = step != nullptr ? step->busy_seconds : 0;
  const auto begin = Clock::now();
  if (groups.world() != nullptr)
    LOOM_TRY_WEFT(weftAllGather(told_, all, own, weftFloat64, groups.world(), nullptr));
  else std::copy_n(told_, own, all);
  if (step != nullptr)
    step->result.met_seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  double busy = 0;
  for (int rank = 0; rank < groups.ranks(); ++rank) {
    const double* of_rank = all + static_cast<size_t>(rank) * own;
    const double* beside_losses = of_rank + job.microbatches;
    if (step != nullptr && beside_losses[kOverflows] != 0 && std::isfinite(step->result.gradient_norm))
      step->result.gradient_norm = std::numeric_limits<double>::infinity();
    if (step != nullptr && beside_losses[kStops] != 0) step->result.stop = true;
    busy += beside_losses[kBusy];
    const program::Coordinates at = groups.layout().coordinates(groups.place_of(rank));
    if (at.stage + 1 < job.pipeline_degree || at.tensor > 0) continue;
    right += beside_losses[kRight];
    for (int index = 0; index < job.microbatches; ++index)
      ordered_losses_[static_cast<size_t>(program::microbatch_number(
          job, at.data / job.degree, at.data % job.degree, index))] = of_rank[index];
  }
  if (step != nullptr) step->result.bubble = std::max(0.0, 1 - busy / groups.ranks() / step->seconds());
  double sum = 0;
  for (const double loss : ordered_losses_) sum += loss;
  return sum / job.targets_per_step();
}

template <typename T>
Result<double> StepEnd<T>::mean_loss(int64_t& right) {
  double counted = 0;
  LOOM_TRY(fetch());
  const Result<double> loss = exchange_losses(nullptr, counted);
  right = static_cast<int64_t>(counted);
  return loss;
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
