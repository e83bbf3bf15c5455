// Departures: ranks that have gone, or whose connection has ended, and the time of grace in which their last
// messages may still complete what waits for them.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace weft::engine {

class Departures {
 public:
  /// Grace lasts until nothing has moved for so long.
  static constexpr int64_t kGraceNs = 100'000'000;

  struct Departure {
    int rank;  // of the world
    Status why;
    int64_t look_ns;    // when to look whether things still move
    int64_t latest_ns;  // the end of grace in any case
    uint64_t events;    // that the context had seen at the last look
  };

  /// `events` counts what has moved in the context; while it grows, grace is prolonged up to a second.
  void add(int rank, const Status& why, int64_t now_ns, uint64_t events);
  bool empty() const { return all_.empty(); }
  /// Those whose grace is over. They stay.
  std::vector<Departure> due(int64_t now_ns, uint64_t events);
  /// The same, taken out.
  std::vector<Departure> take_due(int64_t now_ns, uint64_t events);

 private:
  static bool grace_is_over(Departure& departure, int64_t now_ns, uint64_t events);

  std::vector<Departure> all_;
};

}  // namespace weft::engine
