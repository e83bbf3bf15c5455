// How a step ends: the norm of the gradients, the loss that all ranks learn, and the optimizer.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/executor.h"
#include "engine/weft_call.h"
#include "program/generate.h"

namespace loom::engine {

using program::Instruction;

/// The sum of a microbatch's losses.
template <typename T>
void Executor<T>::note_loss(int microbatch) {
  const double* const losses = token_losses_ + microbatch * rows();
  double sum = 0;
  for (int64_t row = 0; row < rows(); ++row) sum += losses[row];
  losses_[microbatch] = sum;
}

template <typename T>
void Executor<T>::find_norms() {
  owned_ = program::owned_units(job_, training_.stage);
  norms_.resize(units_.size());
  for (int stage = 0; stage < job_.pipeline_degree; ++stage) {
    int64_t chunks = 0;
    for (const int unit : program::owned_units(job_, stage)) {
      norms_[unit] = {stage, chunks};
      chunks += job_.shard(units_[unit]) / program::kShardGrain;
    }
    most_chunks_ = std::max(most_chunks_, chunks);
  }
}

/// Squares are summed in chunks of kShardGrain elements, each rank those of its shards. In strict order all
/// chunks of one copy of the model are gathered and added one after the other, unit by unit, which is the
/// same for every degree and partition, since padding adds zeros only.
template <typename T>
Status Executor<T>::find_norm(Run& run, const Instruction& i) {
  double* own = at<double>(run, i, Role::norms);
  int64_t chunks = 0;
  for (const int unit : owned_) {
    sum_squares(units_[unit], own + chunks);
    chunks += job_.shard(units_[unit]) / program::kShardGrain;
  }
  double* all = own + most_chunks_;
  const int64_t count = job_.strict ? most_chunks_ : 1;
  if (!job_.strict) {
    for (int64_t chunk = 1; chunk < chunks; ++chunk) own[0] += own[chunk];
  }
  const auto begin = Clock::now();
  if (groups_.model() != nullptr)
    LOOM_TRY_WEFT(weftAllGather(own, all, static_cast<size_t>(count), weftFloat64, groups_.model(), nullptr));
  else std::copy_n(own, count, all);
  run.result.met_seconds += seconds_between(begin, Clock::now());
  run.result.gradient_norm = std::sqrt(sum_of_norms(all, count)) / run.settings->loss_scale;
  const Result<double> loss = mean_loss(&run);
  LOOM_TRY(loss.status());
  run.result.loss = *loss;
  run.result.exposed_seconds += run.result.met_seconds;
  if (std::isfinite(run.result.loss) && std::isfinite(run.result.gradient_norm)) return {};
  run.result.skipped = true;
  if (job_.precision == program::Precision::fp16) return {};  // a smaller scale may do
  return fail(
      Code::not_finite,
      "step {}: the loss is {} and the gradient norm {}; a smaller learning rate or clip_norm may help",
      run.settings->step, run.result.loss, run.result.gradient_norm);
}

/// `all` has `count` values of each rank of one copy of the model: stage by stage, tensor rank by tensor
/// rank, member by member.
template <typename T>
double Executor<T>::sum_of_norms(const double* all, int64_t count) const {
  double squares = 0;
  const int holders = job_.degree * job_.tensor_degree;  // of a stage
  if (!job_.strict) {
    for (int rank = 0; rank < holders * job_.pipeline_degree; ++rank) squares += all[rank];
    return squares;
  }
  for (const model::Unit& unit : units_) {
    const auto& [stage, first] = norms_[unit.index];
    const int64_t chunks = job_.shard(unit) / program::kShardGrain;
    for (int holder = 0; holder < holders; ++holder)
      for (int64_t chunk = 0; chunk < chunks; ++chunk)
        squares += all[(stage * holders + holder) * count + first + chunk];
  }
  return squares;
}

/// Every rank adds the sums of all microbatches, which the last stages have, in the order of their numbers.
/// Of a step ranks also tell each other how long they were busy, whether somebody wants them to end the run,
/// and whether their norm is finite: if one's is not, it becomes infinite on all, so that all skip the step,
/// whatever each copy of the model has found. Of a classification's evaluation they tell how many were right.
template <typename T>
Result<double> Executor<T>::mean_loss(Run* run) {
  const size_t own = told();
  double *all = losses_ + own, *beside = losses_ + job_.microbatches;
  const bool asked = run != nullptr && run->settings->stop != nullptr && *run->settings->stop;
  beside[kOverflows] = run != nullptr && !std::isfinite(run->result.gradient_norm) ? 1 : 0;
  beside[kStops] = asked && (*run->settings->stop)() ? 1 : 0;
  beside[kBusy] = run != nullptr ? run->busy_seconds : 0;
  const auto begin = Clock::now();
  if (groups_.world() != nullptr) {
    LOOM_TRY_WEFT(weftAllGather(losses_, all, own, weftFloat64, groups_.world(), nullptr));
  } else {
    std::copy_n(losses_, own, all);
  }
  if (run != nullptr) run->result.met_seconds += seconds_between(begin, Clock::now());
  double busy = 0, right = 0;
  for (int rank = 0; rank < groups_.ranks(); ++rank) {
    const double* of_rank = all + static_cast<size_t>(rank) * own;
    const double* beside_losses = of_rank + job_.microbatches;
    if (run != nullptr && beside_losses[kOverflows] != 0 && std::isfinite(run->result.gradient_norm))
      run->result.gradient_norm = std::numeric_limits<double>::infinity();
    if (run != nullptr && beside_losses[kStops] != 0) run->result.stop = true;
    busy += beside_losses[kBusy];
    const program::Coordinates at = groups_.layout().coordinates(groups_.place_of(rank));
    if (at.stage + 1 < job_.pipeline_degree || at.tensor > 0) continue;
    right += beside_losses[kRight];
    for (int index = 0; index < job_.microbatches; ++index)
      ordered_losses_[program::microbatch_number(job_, at.data / job_.degree, at.data % job_.degree, index)] =
          of_rank[index];
  }
  if (run == nullptr) right_ = static_cast<int64_t>(right);
  if (run != nullptr)
    run->result.bubble =
        std::max(0.0, 1 - busy / groups_.ranks() / seconds_between(run->begin, Clock::now()));
  double sum = 0;
  for (const double loss : ordered_losses_) sum += loss;
  return sum / job_.targets_per_step();
}

template <typename T>
void Executor<T>::optimize(Run& run, const Instruction& i) {
  if (run.result.skipped) return;
  ops::AdamW settings = run.settings->optimizer;
  settings.step = static_cast<int64_t>(run.settings->step) + 1 - run.settings->uncounted;
  const double clip = run.settings->clip_norm;
  const double clipping = clip > 0 && run.result.gradient_norm > clip ? clip / run.result.gradient_norm : 1.0;
  settings.gradient_scale = static_cast<float>(clipping / run.settings->loss_scale);
  const float decay = settings.weight_decay;
  const State& s = states_[i.unit];
  for (const Segment& segment : s.segments) {
    settings.weight_decay = segment.decays ? decay : 0.0f;
    const int64_t at = segment.begin;
    op_.adamw(workers_, settings, s.gradient + at, s.master + at, s.first + at, s.second + at,
              s.parameters + at, segment.end - at);
  }
}

#define LOOM_INSTANTIATE(T)                                                  \
  template void Executor<T>::note_loss(int);                                 \
  template void Executor<T>::find_norms();                                   \
  template Status Executor<T>::find_norm(Run&, const program::Instruction&); \
  template double Executor<T>::sum_of_norms(const double*, int64_t) const;   \
  template Result<double> Executor<T>::mean_loss(Run*);                      \
  template void Executor<T>::optimize(Run&, const program::Instruction&);
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(bf16)
LOOM_INSTANTIATE(fp16)

}  // namespace loom::engine
