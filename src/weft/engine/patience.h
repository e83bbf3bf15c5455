// Patience: how long a thread that waits goes on looking for news before it sleeps.
//
// At first as long as the settings say, since a sleep and a wake-up cost more than a few looks. A wait that
// has lasted longer than that, and whose news come seldom, is one for a network that is slower than its
// ranks: from then on it sleeps between the news, and its core is free for whoever computes.
//
// Thread safety: none; one thread's wait.
#pragma once

#include <cstdint>

namespace weft::engine {

class Patience {
 public:
  struct Limits {
    int64_t spin_ns = 0;  // of looking without a pause; 0 where ranks share cores
    int64_t yield_ns =
        0;  // of looking in all, the core being offered between two looks once the first is over
    bool crowded = false;  // ranks share cores
    /// Whether sleepers are woken by all that they may wait for, at once.
    bool rings = false;
  };
  explicit Patience(const Limits& limits)
      : limits_(limits), looks_between_clocks_(limits.crowded ? kCrowdedLooks : kLooks) {}

  /// A look found something.
  void found() {
    ++found_;
    looks_ = 0;
    idle_ns_ = 0;
  }
  /// A look found nothing; true if it is time to tell what time it is.
  bool found_nothing() { return ++looks_ % looks_between_clocks_ == 0; }
  void tell(int64_t now_ns) {
    if (began_ns_ == 0) began_ns_ = now_ns;
    if (looks_ == looks_between_clocks_) idle_since_ns_ = now_ns;
    idle_ns_ = now_ns - idle_since_ns_;
    waited_ns_ = now_ns - began_ns_;
  }

  /// By the clock that was told last.
  bool over() const { return idle_ns_ > (news_come_seldom() ? kLingerNs : limits_.yield_ns); }
  bool spins() const { return !limits_.crowded && idle_ns_ < limits_.spin_ns; }
  /// Whether a pause between two looks is worth it: news did not come at once.
  bool pauses() const { return looks_ > kLooks; }

 private:
  static constexpr uint32_t kLooks = 64, kCrowdedLooks = 16;  // between two looks at the clock
  static constexpr int64_t kLingerNs = 20'000;                // about what a sleep and a wake-up cost
  static constexpr int64_t kSeldomNs = 100'000;               // between two pieces of news, on average

  bool news_come_seldom() const {
    return limits_.rings && waited_ns_ > limits_.yield_ns && waited_ns_ > found_ * kSeldomNs;
  }

  const Limits limits_;
  const uint32_t looks_between_clocks_;
  uint32_t looks_ = 0;  // in a row that found nothing
  int64_t found_ = 0;
  int64_t began_ns_ = 0, waited_ns_ = 0;
  int64_t idle_since_ns_ = 0, idle_ns_ = 0;
};

}  // namespace weft::engine
