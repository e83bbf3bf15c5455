// StreakWatch: whether a context does nothing but back-to-back calls, none of which waits. Their messages
// stay with the network for a moment, to share writes with later ones (Fabric::waits_since()). Such calls do
// not wake the progress thread. No call says that it is the last one, so the progress thread looks again
// soon.
//
// Thread safety: begin() under the context's lock, due() on the progress thread, the rest from any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "engine/context/context_lock.h"

namespace weft::engine {

class StreakWatch {
 public:
  /// How long the progress thread sleeps between two looks.
  static constexpr int kLookUs = 50;

  bool on() const { return on_.load(std::memory_order_relaxed); }
  /// False if there was one.
  bool begin() WEFT_REQUIRES(context_lock) { return !on_.exchange(true); }
  void end() { on_.store(false); }
  /// Whether a turn is due at `now_ns`: what waits has been left behind, or it is time to look for anything
  /// else. `waits_since` gives since when something waits, 0: nothing does. Ends the streak once nothing has
  /// waited for some time.
  template <typename F>
  bool due(int64_t now_ns, F waits_since) {
    const int64_t since = waits_since();
    const bool left_behind = since != 0 && now_ns - since > kLeftBehindNs;
    if (since != 0) quiet_since_ns_ = 0;
    else if (quiet_since_ns_ == 0) quiet_since_ns_ = now_ns;
    if (left_behind || now_ns - turn_ns_ > kTurnNs) {
      turn_ns_ = now_ns;
      return true;
    }
    if (quiet_since_ns_ == 0 || now_ns - quiet_since_ns_ < kQuietNs) return false;
    quiet_since_ns_ = 0;
    // A call that has found a streak before this exchange has left what waits, and it is seen here.
    on_.exchange(false);
    return waits_since() != 0;
  }

 private:
  // What waits for longer than this has been left behind. How long nothing waits before the streak is over.
  // How often a turn is taken in any case, as a socket may have room again.
  static constexpr int64_t kLeftBehindNs = 40'000, kQuietNs = 400'000, kTurnNs = 1'000'000;

  std::atomic<bool> on_{false};
  int64_t quiet_since_ns_ = 0, turn_ns_ = 0;
};

}  // namespace weft::engine
