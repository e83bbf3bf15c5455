// Pace: how long a run has still to go, by the clock since its first step, which is left out: it touches
// memory for the others.
//
// Thread safety: none.
#pragma once

#include <loom/training.h>

#include <chrono>
#include <optional>
#include <utility>

namespace loom::train {

class Pace {
 public:
  /// Called after each step; `steps` are those of the run.
  double seconds_left(const StepRecord& record, int64_t steps) {
    using Clock = std::chrono::steady_clock;
    const auto left = static_cast<double>(steps - record.step - 1);
    if (!first_) {
      first_.emplace(Clock::now(), record.step);
      return left * record.seconds;
    }
    const double passed = std::chrono::duration<double>(Clock::now() - first_->first).count();
    return left * passed / static_cast<double>(record.step - first_->second);
  }

 private:
  /// When the first step had been told, and which one it was.
  std::optional<std::pair<std::chrono::steady_clock::time_point, int64_t>> first_;
};

}  // namespace loom::train
