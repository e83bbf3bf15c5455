// StepEnd: how a step ends: the norm of the gradients, the losses that all ranks learn, and the optimizer.
//
// Sums of squares, and what ranks tell each other, are buffers of the program in the host's window. What a
// rank tells are the losses of its microbatches, how many sequences of each were right, and some numbers
// behind them. Then come those of all ranks.
//
// Thread safety: one thread.
#pragma once

#include <chrono>
#include <vector>

#include "engine/host_window.h"
#include "engine/rank_state.h"
#include "program/generate.h"

namespace loom::engine {

/// Of the step or the evaluation that is under way.
struct StepProgress {
  const StepSettings* settings = nullptr;  // of a step
  double targets = 0;                      // as StepSettings::targets
  StepResult result = {};
  std::chrono::steady_clock::time_point begin = {};
  double busy_seconds = 0;        // on lane 0, without waiting
  double until_norm_seconds = 0;  // when the norm was known
  int64_t right = 0;              // of a classification's evaluation

  double mean_over(const program::Job& job) const { return targets > 0 ? targets : job.targets_per_step(); }
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
};

template <typename T>
class StepEnd {
 public:
  using A = acc_t<T>;

  StepEnd(const RankContext& context, const RankState<T>& state, HostWindow& window, int stage);

  /// Both are in the window: sums of squares, and what ranks tell each other.
  void take_memory(double* squares, double* told);

  /// Units of this stage.
  std::span<const int> owned() const { return owned_; }
  int stage_of(int unit) const { return norms_[static_cast<size_t>(unit)].stage; }

  /// Where the head leaves the sum of a microbatch's losses, and counts its sequences whose likeliest class
  /// is the target.
  double* loss(int microbatch) const { return told_there_ + microbatch; }
  double* right(int microbatch) const { return loss(context_.job.microbatches + microbatch); }

  /// Squares of a unit's gradient shard: a double for each chunk. Of several tensor ranks `counted` gets a
  /// chunk with zeros in place of what is not counted.
  void sum_squares(int unit, A* counted) const;
  /// Finds the norm from the squares of all ranks that share a model. This is where the host waits for the
  /// device, and fetches losses, too. Errors: communication_error.
  Status find_norm(StepProgress& step);
  /// Finds the mean loss of a step or an evaluation, and what else ranks tell each other. Errors: not_finite,
  /// communication_error.
  Status find_mean_loss(StepProgress& step);
  /// One unit's update; nothing where the step is skipped.
  void optimize(const StepProgress& step, int unit) const;

 private:
  /// Behind what a rank tells of its microbatches.
  enum Told : size_t { kOverflows, kStops, kBusy, kTold };
  size_t told() const { return of_microbatches() + kTold; }
  size_t of_microbatches() const {
    return static_cast<size_t>(program::kToldOfMicrobatch * context_.job.microbatches);
  }

  void sum_counted(const UnitState<T>& s, int64_t chunk, A* counted, double* sum) const;
  /// Queues a copy of what this rank's head has left.
  void fetch_losses();
  /// Waits for the device, and for whatever was queued to be fetched.
  Status wait();
  double sum_of_norms(const double* all, int64_t count) const;
  Status exchange_losses(StepProgress& step);

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
  int64_t chunks_ = 0, most_chunks_ = 0;               // of this stage, and of any
  double *squares_ = nullptr, *told_there_ = nullptr;  // in the arena
  double* told_ = nullptr;              // the host's: what this rank tells, then what all ranks told
  std::vector<double> ordered_losses_;  // by number of the microbatch
};

extern template class StepEnd<float>;
extern template class StepEnd<bf16>;
extern template class StepEnd<fp16>;

}  // namespace loom::engine
