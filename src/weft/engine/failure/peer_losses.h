// PeerLosses: the queue of loss reports: a peer has died, a connection to it has ended, or an operation could
// not reach it. A report counts after its time of grace (grace.h).
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/failure/grace.h"

namespace weft::engine {

struct Operation;

class PeerLosses {
 public:
  /// A connection that ended is no death by itself: a rank that has no more to do with us may leave in good
  /// order. Its report stays, for operations that come to wait for that rank later.
  enum class Kind : uint8_t { connection, death, operation };
  struct Report {
    Kind kind;
    int rank;       // of the job; -1: an operation's
    Operation* op;  // that could not reach its peer or the peer's memory, with a reference; else null
    Status why;
    Grace grace;
  };

  /// `events` counts what has moved in the context.
  void add(Kind kind, int rank, Status why, int64_t now_ns, uint64_t events) {
    add({kind, rank, nullptr, std::move(why), Grace(now_ns, events)}, kind == Kind::death);
  }
  /// Takes over a reference to the operation.
  void add(Operation& op, Status why, int64_t now_ns, uint64_t events) {
    add({Kind::operation, -1, &op, std::move(why), Grace(now_ns, events)}, false);
  }
  bool empty() const { return reports_.empty(); }
  /// Whether a death has not been acted on yet.
  bool any_death() const { return deaths_ > 0; }
  /// The reports whose grace is over: deaths first, since they say more than the end of a connection, in the
  /// order in which they were added. A death is due after the earlier ones. These deaths become final.
  std::vector<Report> due(int64_t now_ns, uint64_t events);
  /// The final deaths: why, by rank of the job.
  const std::map<int, Status>& dead() const { return dead_; }

 private:
  void add(Report report, bool death) {
    reports_.push_back(std::move(report));
    deaths_ += death;
  }

  std::vector<Report> reports_;
  int deaths_ = 0;  // among them
  std::map<int, Status> dead_;
};

}  // namespace weft::engine
