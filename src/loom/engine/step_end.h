// StepEnd: how a step ends: the norm of the gradients, the losses that all ranks learn, and the optimizer.
//
// What ranks tell each other after a step or an evaluation is a buffer of the program, in the host's window.
// First come the losses of this rank's microbatches, and some numbers behind them. Then come those of all
// ranks.
//
// Thread safety: one thread.
#pragma once

#include <chrono>
#include <vector>

#include "engine/host_window.h"
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

  StepEnd(const RankContext& context, const RankState<T>& state, HostWindow& window, int stage);

  /// Both are in the window: what ranks tell each other, and the losses of all microbatches' tokens.
  void take_memory(double* told, const double* losses);

  /// Units of this stage.
  std::span<const int> owned() const { return owned_; }
  int stage_of(int unit) const { return norms_[static_cast<size_t>(unit)].stage; }

  /// Where a classification's evaluation counts sequences whose likeliest class is the target.
  double* right() const { return right_; }
  void clear_right() const;

  /// This rank's sums of squares of its gradients: a double for each chunk of each unit. Of several tensor
  /// ranks `counted` gets a chunk with zeros in place of what is not counted.
  int64_t queue_squares(double* squares, A* counted) const;
  /// Finds norm and loss of a step, of which `squares` has this rank's sums of squares and then those of all
  /// ranks. This is where the host waits for the device. Errors: not_finite, communication_error.
  Status find_norm(StepProgress& step, double* squares, A* counted);
  /// The mean loss of an evaluation, and of a classification how many sequences were right.
  Result<double> mean_loss(int64_t& right);
  /// One unit's update; nothing where the step is skipped.
  void optimize(const StepProgress& step, int unit) const;

 private:
  /// Behind the losses of a rank's microbatches.
  enum Told : size_t { kRight, kOverflows, kStops, kBusy, kTold };
  size_t told() const { return static_cast<size_t>(context_.job.microbatches) + kTold; }

  void sum_squares(const model::Unit& unit, double* chunk, A* counted) const;
  void sum_counted(const UnitState<T>& s, int64_t chunk, A* counted, double* sum) const;
  /// Fetches losses, and whatever was queued to be fetched before, and adds up the losses of each microbatch.
  Status fetch();
  double sum_of_norms(const double* all, int64_t count) const;
  Result<double> exchange_losses(StepProgress* step, double& right);

  /// Where a unit's sums of squares are among those of its stage's ranks.
  struct Norms {
    int stage = 0;
    int64_t first = 0;  // chunk
  };

  const RankContext context_;
  const RankState<T>& state_;
  HostWindow& window_;
  const int stage_;
  std::vector<Norms> norms_;
  std::vector<int> owned_;
  int64_t most_chunks_ = 0;                    // of any stage
  double *told_ = nullptr, *right_ = nullptr;  // the host's: what this rank tells, then what all ranks told
  const double* losses_ = nullptr;
  std::vector<double> ordered_losses_;  // by number of the microbatch
};

extern template class StepEnd<float>;
extern template class StepEnd<bf16>;
extern template class StepEnd<fp16>;

}  // namespace loom::engine
