// PeerLosses: the queue of loss reports. A report says that a peer has died, that a connection to a peer has
// ended, or that an operation could not reach a peer. It counts when its grace is over (grace.h).
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
  /// A connection that has ended is not a death: a rank may close it when it leaves in order. The report
  /// stays, and fails operations that wait for that rank later.
  enum class Kind : uint8_t { connection, death, operation };
  struct Report {
    Kind kind;
    int rank;       // of the job; -1: an operation's
    Operation* op;  // the operation that could not reach a peer, with a reference; null for other kinds
    Status why;
    Grace grace;
  };

  /// `events`: the context's count of events (grace.h).
  void add(Kind kind, int rank, Status why, int64_t now_ns, uint64_t events) {
    add({kind, rank, nullptr, std::move(why), Grace(now_ns, events)}, kind == Kind::death);
  }
  /// Takes over a reference to the operation.
  void add(Operation& op, Status why, int64_t now_ns, uint64_t events) {
    add({Kind::operation, -1, &op, std::move(why), Grace(now_ns, events)}, false);
  }
  bool empty() const { return reports_.empty(); }
  /// Whether a reported death is still in its grace.
  bool any_death() const { return deaths_ > 0; }
  /// The reports whose grace is over. Deaths come first, because they say more than the end of a connection.
  /// Deaths keep the order in which they were added: none is due before an earlier one. They become final
  /// here.
  std::vector<Report> due(int64_t now_ns, uint64_t events);
  /// The final deaths: why, by rank of the job.
  const std::map<int, Status>& dead() const { return dead_; }

 private:
  void add(Report report, bool death) {
    reports_.push_back(std::move(report));
    deaths_ += death;
  }

  std::vector<Report> reports_;
  int deaths_ = 0;  // the number of deaths in reports_
  std::map<int, Status> dead_;
};

}  // namespace weft::engine
