// How far a command is, on standard error: a bar where that is a terminal, else lines now and then.
//
// Thread safety: one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace loom::command {

/// For what prints nothing else on its way. To be called with how much is done of how much.
class Progress {
 public:
  /// `what` is counted, such as "batches".
  explicit Progress(std::string what) : what_(std::move(what)) {}
  /// Without a terminal a line is written at every tenth of the way, and where that takes longer than half a
  /// minute, every half minute.
  void operator()(int64_t done, int64_t all);

 private:
  using Clock = std::chrono::steady_clock;
  std::string what_;
  int64_t told_ = 0;  // tenths
  Clock::time_point last_ = Clock::now();
};

}  // namespace loom::command
