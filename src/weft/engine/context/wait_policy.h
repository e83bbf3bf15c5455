// WaitPolicy: how long a thread that waits polls before it sleeps.
//
// At first it polls as long as the settings say, since a sleep and a wake-up cost more than a few polls.
// In a long wait, events that are far apart mean that the network is slower than its ranks. From then on the
// thread sleeps between events and leaves its core to other work. It first polls once more. The events of a
// short operation mostly come together, so there the thread polls for a while before it sleeps.
//
// Thread safety: none; one thread's wait.
#pragma once

#include <algorithm>
#include <cstdint>

namespace weft::engine {

class WaitPolicy {
 public:
  struct Limits {
    int64_t spin_ns = 0;      // of polling without a pause; 0 where ranks share cores
    int64_t yield_ns = 0;     // of polling in all; after spin_ns the thread yields between two polls
    bool crowded = false;     // ranks share cores
    uint32_t looks = kLooks;  // polls between two readings of the clock
    int64_t linger_ns = 0;    // of polling after an event, where events are far apart; at most yield_ns
  };
  static constexpr uint32_t kLooks = 64, kCrowdedLooks = 16;

  explicit WaitPolicy(const Limits& limits) : limits_(limits) {}

  /// A poll found something.
  void found() {
    ++found_;
    looks_ = 0;
    idle_since_ns_ = idle_ns_ = 0;
  }
  /// A poll found nothing. True: tell() is due.
  bool found_nothing() { return ++looks_ % (seldom_ ? 1 : limits_.looks) == 0; }
  /// `rings`: whether sleepers are woken by all that they may wait for, at once.
  void tell(int64_t now_ns, bool rings) {
    if (began_ns_ == 0) began_ns_ = now_ns;
    if (idle_since_ns_ == 0) idle_since_ns_ = now_ns;
    idle_ns_ = now_ns - idle_since_ns_;
    const int64_t waited_ns = now_ns - began_ns_;
    if (waited_ns > kMemoryNs) {  // events of long ago count half
      began_ns_ += waited_ns / 2;
      found_ /= 2;
    }
    seldom_ = rings && waited_ns > limits_.yield_ns / kLongWait && waited_ns > (found_ + 1) * kSeldomNs;
  }

  /// The thread has slept. It polls again for as long as before, unless events are far apart.
  void slept() {
    if (!seldom_) idle_since_ns_ = idle_ns_ = 0;
  }

  /// Whether the thread should sleep, by the time of the last tell().
  bool over() const {
    return seldom_ ? idle_ns_ >= std::min(limits_.linger_ns, limits_.yield_ns) : idle_ns_ > limits_.yield_ns;
  }
  int64_t idle_ns() const { return idle_ns_; }
  bool spins() const { return !limits_.crowded && idle_ns_ < limits_.spin_ns; }
  /// Whether a pause between two polls is worth it: no event came at once.
  bool pauses() const { return looks_ > kLooks; }

 private:
  static constexpr int64_t kLongWait = 4;  // a wait is long from this part of yield_ns on
  static constexpr int64_t kMemoryNs = 20'000'000;
  static constexpr int64_t kSeldomNs = 100'000;  // between two events, on average

  Limits limits_;
  uint32_t looks_ = 0;  // polls in a row that found nothing
  int64_t found_ = 0;
  int64_t began_ns_ = 0, idle_since_ns_ = 0, idle_ns_ = 0;
  bool seldom_ = false;  // in a long wait, events are far apart
};

}  // namespace weft::engine
