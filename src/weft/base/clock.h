// Clocks. now_ns() is monotonic and comparable between processes of one machine (CLOCK_MONOTONIC, through the vDSO,
// about 25 ns); ticks() is the cheapest thing that counts (a cycle counter where there is one), for spin budgets only.
#pragma once

#include <time.h>

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace weft {

inline int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

/// A point in time by which something must be over.
class Deadline {
 public:
  static Deadline never() { return Deadline(INT64_MAX); }
  static Deadline in_seconds(double s) { return Deadline(now_ns() + static_cast<int64_t>(s * 1e9)); }
  bool passed() const { return at_ns_ != INT64_MAX && now_ns() >= at_ns_; }
  int64_t at_ns() const { return at_ns_; }
  /// What poll() and epoll_wait() take: rounded up, -1 for never, at most `cap`.
  int remaining_ms(int cap = INT32_MAX) const {
    if (at_ns_ == INT64_MAX) return cap == INT32_MAX ? -1 : cap;
    const int64_t left = (at_ns_ - now_ns() + 999'999) / 1'000'000;
    return left < 0 ? 0 : left > cap ? cap : static_cast<int>(left);
  }

 private:
  explicit Deadline(int64_t at) : at_ns_(at) {}
  int64_t at_ns_;
};

/// One turn of a spin loop: tells the core that we wait.
inline void cpu_relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace weft
