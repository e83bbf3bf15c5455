// Failures: collects the failures in a context, and decides which communicators fail. The causes are peers
// that die, connections that end, failures that other ranks report, memory that was freed, and deadlines.
//
// Thread safety: most methods need the context's lock. The bootstrap's thread calls on_dead(), on_failed()
// and on_question(), which take the lock. reported() and forget() do not need it.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "bootstrap/bootstrap.h"
#include "engine/context/context_lock.h"
#include "engine/failure/inquiries.h"
#include "engine/failure/peer_losses.h"

namespace weft::engine {

class Communicator;
class Context;
struct Operation;

class Failures {
 public:
  explicit Failures(Context& context) : context_(context), inquiries_(context) {}

  /// Fails the communicator of an operation in which something went wrong; the sentence begins with the
  /// operation's name.
  void fail(Operation& op, const Status& why) WEFT_REQUIRES(context_lock);
  /// Does the same at the next act_on_pending(), because a transport must not be called from inside its own
  /// poll(). Returns the status with which the communicator will fail.
  Status fail_later(const Operation& op, const Status& why) WEFT_REQUIRES(context_lock);
  void fail_later(const Communicator& comm, Status why) WEFT_REQUIRES(context_lock);
  bool any_pending() const WEFT_REQUIRES(context_lock) { return !pending_.empty(); }
  void act_on_pending() WEFT_REQUIRES(context_lock);
  /// Fails the communicators whose operations use memory that this thread has found missing.
  void act_on_lost_memory() WEFT_REQUIRES(context_lock);

  /// The connection to a peer has ended.
  void on_connection_lost(int peer, const Status& why) WEFT_REQUIRES(context_lock);
  /// An operation of this context could not reach a peer (OperationHealth). Does nothing if this was
  /// reported.
  void on_unreachable(Operation& op) WEFT_REQUIRES(context_lock);
  /// Whether a death is in its time of grace.
  bool any_death() const WEFT_REQUIRES(context_lock) { return losses_.any_death(); }
  /// Why a new communicator cannot work: one of its ranks is dead, and grace is over. ok if none is.
  Status first_loss_of(const Communicator& comm) const WEFT_REQUIRES(context_lock);
  /// Another rank's report of a communicator's failure; ok if there is none. Reports appear here at once,
  /// even while a thread holds the context's lock.
  Status reported(const Communicator& comm);
  /// Drops the report of a communicator that is destroyed.
  void forget(const Communicator& comm);

  /// Acts on losses and deadlines that are due. Cheap; the context calls it every 100 ms.
  void check(int64_t now_ns) WEFT_REQUIRES(context_lock);
  int64_t checked_ns() const WEFT_REQUIRES(context_lock) { return checked_ns_; }
  Inquiries& inquiries() { return inquiries_; }

  // Called by the bootstrap: see bootstrap::Callbacks.
  void on_dead(int rank, const Status& why);
  void on_failed(int from, uint32_t comm, const std::string& why);
  bootstrap::OpReport on_question(int from, uint32_t comm, uint32_t number);

 private:
  void act_on_losses(int64_t now_ns) WEFT_REQUIRES(context_lock);
  void act_on_death(int world_rank, const Status& why) WEFT_REQUIRES(context_lock);
  void act_on_connection(int world_rank, const Status& why) WEFT_REQUIRES(context_lock);
  void act_on_unreachable(Operation& op, const Status& why) WEFT_REQUIRES(context_lock);
  static Status loss_of(const Communicator& comm, int world_rank, const Status& why);

  Context& context_;
  PeerLosses losses_ WEFT_GUARDED_BY(context_lock);
  std::vector<std::pair<uint32_t, Status>> pending_ WEFT_GUARDED_BY(context_lock);  // communicator and reason
  Mutex reports_mutex_;
  std::unordered_map<uint32_t, std::pair<int, std::string>> reports_
      WEFT_GUARDED_BY(reports_mutex_);  // by communicator: from whom, and what
  Inquiries inquiries_;
  int64_t checked_ns_ WEFT_GUARDED_BY(context_lock) = 0;
};

}  // namespace weft::engine
