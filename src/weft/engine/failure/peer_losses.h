// PeerLosses: reports that a peer has died or that a connection to it has ended. A report counts after its
// time of grace (grace.h).
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "base/status.h"
#include "engine/failure/grace.h"

namespace weft::engine {

class PeerLosses {
 public:
  /// A connection that ended is no death by itself: a rank that has no more to do with us may leave in good
  /// order. Its report stays, for operations that come to wait for that rank later.
  enum class Kind : uint8_t { connection, death };
  struct Report {
    Kind kind;
    int rank;  // of the job
    Status why;
    Grace grace;
  };

  /// `events` counts what has moved in the context.
  void add(Kind kind, int rank, const Status& why, int64_t now_ns, uint64_t events);
  bool empty() const { return reports_.empty(); }
  /// Whether a death has not been acted on yet.
  bool any_death() const { return deaths_ > 0; }
  /// The reports whose grace is over: deaths first, since they say more than the end of a connection, in the
  /// order in which they were added. A death is due after the earlier ones. These deaths become final.
  std::vector<Report> due(int64_t now_ns, uint64_t events);
  /// The final deaths: why, by rank of the job.
  const std::map<int, Status>& dead() const { return dead_; }

 private:
  std::vector<Report> reports_;
  int deaths_ = 0;  // among them
  std::map<int, Status> dead_;
};

}  // namespace weft::engine
