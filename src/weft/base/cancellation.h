// Cancellation: one thread ends the waits of another. Waits for peers that may never come, such as those of
// the bootstrap, ask for it between short sleeps.
//
// Thread safety: a Cancellation is its thread's; any thread may set its flag.
#pragma once

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/clock.h"

namespace weft {

class Cancellation {
 public:
  /// For as long as it lives, this thread's waits that ask end when `requested` is set.
  explicit Cancellation(const std::atomic<bool>& requested) : outer_(std::exchange(current_, &requested)) {}
  ~Cancellation() { current_ = outer_; }
  Cancellation(const Cancellation&) = delete;
  Cancellation& operator=(const Cancellation&) = delete;

  static bool requested() { return current_ && current_->load(std::memory_order_relaxed); }
  /// Whether a wait until `deadline` ends now.
  static bool ends(Deadline deadline) { return requested() || deadline.passed(); }
  /// How long such a wait may sleep before it asks again, ms; at most `most`.
  static int sleep_ms(Deadline deadline, int most) {
    return deadline.remaining_ms(current_ ? std::min(most, kLongestSleepMs) : most);
  }

 private:
  static constexpr int kLongestSleepMs = 20;

  static inline thread_local const std::atomic<bool>* current_ = nullptr;
  const std::atomic<bool>* const outer_;
};

}  // namespace weft
