// Grace: how long the report of a lost peer waits before it counts. Messages of the peer may still be in
// flight, and may complete the operations that wait for the peer. Its report of the reason may follow, too.
//
// Grace ends when no event has happened in the context for kGraceNs, or after kLongestGraceNs.
//
// Thread safety: a value.
#pragma once

#include <cstdint>

namespace weft::engine {

class Grace {
 public:
  static constexpr int64_t kGraceNs = 100'000'000;
  static constexpr int64_t kLongestGraceNs = 1'000'000'000;

  /// `events`: the context's count of events, such as messages that arrive.
  Grace(int64_t now_ns, uint64_t events)
      : look_ns_(now_ns + kGraceNs), latest_ns_(now_ns + kLongestGraceNs), events_(events) {}

  /// Whether grace is over at `now_ns`. New events extend it by kGraceNs.
  bool over(int64_t now_ns, uint64_t events) {
    if (now_ns < look_ns_) return false;
    if (now_ns >= latest_ns_ || events_ == events) return true;
    events_ = events;
    look_ns_ = now_ns + kGraceNs;
    return false;
  }

 private:
  int64_t look_ns_;    // when to compare the count of events again
  int64_t latest_ns_;  // when grace ends in any case
  uint64_t events_;    // the count at the last comparison
};

}  // namespace weft::engine
