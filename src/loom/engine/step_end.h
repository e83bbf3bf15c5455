// StepEnd: how a step ends: the norm of the gradients, the losses that all ranks learn, and the optimizer.
//
// What ranks tell each other after a step or an evaluation lies in the arena. First come the losses of this
// rank's microbatches, and some numbers behind them. Then come those of all ranks.
//
// Thread safety: as Workers.
#pragma once

#include <chrono>
#include <vector>

#include "engine/rank_state.h"

namespace loom::engine {

/// Of the step or the evaluation that is under way.
struct StepProgress {
  const StepSettings* settings = nullptr;  // of a step
  StepResult result = {};
  std::chrono::steady_clock::time_point begin = {};
  double busy_seconds = 0;  // on lane 0, without waiting

  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
};

template <typename T>
class StepEnd {
 public:
  using A = acc_t<T>;

  StepEnd(const RankContext& context, const RankState<T>& state, int stage);

  /// Bytes that ranks tell each other.
  int64_t bytes() const;
  void take_memory(std::byte* memory) { told_ = reinterpret_cast<double*>(memory); }

  /// Units of this stage.
  std::span<const int> owned() const { return owned_; }
  int stage_of(int unit) const { return norms_[static_cast<size_t>(unit)].stage; }

  /// The sum of a microbatch's losses; `rows` of them.
  void note_loss(int microbatch, const double* losses, int64_t rows);
  /// Where a classification's evaluation counts sequences whose likeliest class is the target.
  double* right() const { return told_ + context_.job.microbatches + kRight; }

  /// Finds norm and loss of a step, of which `own` has this rank's sums of squares and then those of all
  /// ranks. Errors: not_finite, communication_error.
  Status find_norm(StepProgress& step, double* own);
  /// The mean loss of an evaluation, and of a classification how many sequences were right.
  Result<double> mean_loss(int64_t& right);
  /// One unit's update; nothing where the step is skipped.
  void optimize(const StepProgress& step, int unit) const;

 private:
  /// Behind the losses of a rank's microbatches.
  enum Told : size_t { kRight, kOverflows, kStops, kBusy, kTold };
  size_t told() const { return static_cast<size_t>(context_.job.microbatches) + kTold; }

  void sum_squares(const model::Unit& unit, double* chunk) const;
  double sum_of_norms(const double* all, int64_t count) const;
  Result<double> exchange_losses(StepProgress* step, double& right);

  /// Where a unit's sums of squares are among those of its stage's ranks.
  struct Norms {
    int stage = 0;
    int64_t first = 0;  // chunk
  };

  const RankContext context_;
  const RankState<T>& state_;
  std::vector<Norms> norms_;
  std::vector<int> owned_;
  int64_t most_chunks_ = 0;             // of any stage
  double* told_ = nullptr;              // what this rank tells, then what all ranks told
  std::vector<double> ordered_losses_;  // by number of the microbatch
};

extern template class StepEnd<float>;
extern template class StepEnd<bf16>;
extern template class StepEnd<fp16>;

}  // namespace loom::engine
