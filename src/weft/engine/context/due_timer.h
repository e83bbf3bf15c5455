// DueTimer: lets the progress thread come back to an idle context whose network has to be polled at a
// certain time (Fabric::due_ns()). Messages of back-to-back calls wait there to share a write.
//
// The due time moves with each call, and no call says that it is the last one. So a call does not wake the
// progress thread, except the one that arms the timer. While the timer is armed, the thread sleeps for
// kSleepUs at a time and compares the due time with the clock, without the context's lock. The timer disarms
// itself once there has been no due time for a while.
//
// Thread safety: arm() under the context's lock, is_due() on the progress thread, the rest from any thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace weft::engine {

class DueTimer {
 public:
  static constexpr int kSleepUs = 50;

  bool armed() const { return armed_.load(std::memory_order_relaxed); }
  /// False if the timer was armed before.
  bool arm() { return !armed_.exchange(true); }
  void disarm() { armed_.store(false); }
  /// Whether a turn is due: the due time has passed, or it is time for a turn in any case. `due_ns` gives the
  /// due time, 0 if there is none.
  template <typename F>
  bool is_due(int64_t now_ns, F due_ns) {
    const int64_t due = due_ns();
    if (due != 0) quiet_since_ns_ = 0;
    else if (quiet_since_ns_ == 0) quiet_since_ns_ = now_ns;
    if ((due != 0 && now_ns > due) || now_ns - turn_ns_ > kTurnNs) {
      turn_ns_ = now_ns;
      return true;
    }
    if (quiet_since_ns_ == 0 || now_ns - quiet_since_ns_ < kQuietNs) return false;
    quiet_since_ns_ = 0;
    // A call that found the timer armed before this exchange has set a due time, which is seen here.
    armed_.exchange(false);
    return due_ns() != 0;
  }

 private:
  // Without a due time for kQuietNs the timer disarms itself. A turn is taken every kTurnNs in any case,
  // since a socket may have room again.
  static constexpr int64_t kQuietNs = 400'000, kTurnNs = 1'000'000;

  std::atomic<bool> armed_{false};
  int64_t quiet_since_ns_ = 0, turn_ns_ = 0;
};

}  // namespace weft::engine
