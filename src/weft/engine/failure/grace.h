// Grace: how long the report of a loss waits before it counts. Messages of the peer may still be on their
// way, and complete the operations that wait for it. Its report of why it failed may follow, too.
//
// Grace lasts until nothing has moved in the context for kGraceNs, and no longer than kLongestGraceNs.
//
// Thread safety: a value.
#pragma once

#include <cstdint>

namespace weft::engine {

class Grace {
 public:
  static constexpr int64_t kGraceNs = 100'000'000;
  static constexpr int64_t kLongestGraceNs = 1'000'000'000;

  /// `events` counts what has moved in the context.
  Grace(int64_t now_ns, uint64_t events)
      : look_ns_(now_ns + kGraceNs), latest_ns_(now_ns + kLongestGraceNs), events_(events) {}

  /// Whether it is over at `now_ns`. If things still move, it asks to be looked at again later.
  bool over(int64_t now_ns, uint64_t events) {
    if (now_ns < look_ns_) return false;
    if (now_ns >= latest_ns_ || events_ == events) return true;
    events_ = events;
    look_ns_ = now_ns + kGraceNs;
    return false;
  }

 private:
  int64_t look_ns_;    // when to look whether things still move
  int64_t latest_ns_;  // its end in any case
  uint64_t events_;    // that the context had seen at the last look
};

}  // namespace weft::engine
