// Clocks. now_ns() is monotonic and comparable between processes of one machine (CLOCK_MONOTONIC, through the
// vDSO, about 25 ns); ticks() is a cycle counter where there is one.
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

inline double us_since(int64_t begin_ns) { return static_cast<double>(now_ns() - begin_ns) / 1e3; }

/// A point in time by which something must be over.
class Deadline {
 public:
  static Deadline never() { return Deadline(INT64_MAX); }
  /// A time that the clock cannot count is never.
  static Deadline in_seconds(double s) {
    return s < kCountedSeconds ? Deadline(now_ns() + static_cast<int64_t>(s * 1e9)) : never();
  }
  bool passed() const { return at_ns_ != INT64_MAX && now_ns() >= at_ns_; }
  int64_t at_ns() const { return at_ns_; }
  /// What poll() and epoll_wait() take: rounded up, -1 for never, at most `cap`.
  int remaining_ms(int cap = INT32_MAX) const {
    if (at_ns_ == INT64_MAX) return cap == INT32_MAX ? -1 : cap;
    const int64_t left = (at_ns_ - now_ns() + 999'999) / 1'000'000;
    return left < 0 ? 0 : left > cap ? cap : static_cast<int>(left);
  }

 private:
  static constexpr double kCountedSeconds = 4e9;  // leaves room for the time before

  explicit Deadline(int64_t at) : at_ns_(at) {}
  int64_t at_ns_;
};

/// The cheapest clock there is (about 8 ns where it is the time-stamp counter); ticks_to_ns() gives it
/// meaning.
inline uint64_t ticks() {
#if defined(__x86_64__)
  return __rdtsc();
#else
  return static_cast<uint64_t>(now_ns());
#endif
}
/// The CLOCK_MONOTONIC time at which ticks() had the value `t`; from a calibration that gets better with
/// time.
int64_t ticks_to_ns(uint64_t t);
inline double ticks_to_us(uint64_t t) { return static_cast<double>(ticks_to_ns(t)) / 1e3; }

/// One turn of a spin loop: tells the core that we wait.
inline void cpu_relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace weft
