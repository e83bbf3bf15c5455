// How a context does a brief operation (Prepared::brief): its caller alone, who has the lock, looks after
// nothing else for a moment. Such an operation is in none of the context's books: no turn advances it, nobody
// can wait for it, and only `hot_` leads messages to it. If anything else comes up, or the moment passes, it
// is entered and goes on from where it is like any other.
#include <sched.h>

#include "base/clock.h"
#include "base/memory_watch.h"
#include "engine/run/brief.h"
#include "engine/run/communicator.h"
#include "engine/context/context.h"

namespace weft::engine {
namespace {

// Looks at the FIFOs before the operation is treated like any other: about 5 µs. Where ranks share cores a
// peer may need this one, which is offered after every look.
constexpr int kLooks = 256, kCrowdedLooks = 16;

}  // namespace

bool Context::alone() const {
  return active_.empty() && deaths_.empty() && !sleeper_ && !trace_ && !disturbed();
}

// The part of that which may change while the caller keeps the lock.
bool Context::disturbed() const {
  return wanting_.load(std::memory_order_relaxed) != 0 || has_submissions_.load(std::memory_order_relaxed) ||
         !pending_failures_.empty();
}

// What earlier messages and operations have left to be done first; not ok: why the operation has to fail.
Status Context::settle_before(Operation& op, bool network) {
  Status trouble;
  if (!stash_.empty()) deliver_stashed(op);
  if (network)
    if (Result<int> polled = fabric_->poll(*this, true); !polled) trouble = polled.status();
  if (MemoryWatch::lost()) [[unlikely]] {
    if (trouble.ok()) trouble = lost_memory(op);
    MemoryWatch::settle([](const MemoryWatch::Run&) {});  // what is left is of operations that have failed
  }
  return trouble;
}

// Until it is done, its looks are used up, or somebody else wants to work here.
inline BriefOutcome Context::carry_out_alone(Operation& op, Status& trouble) {
  const bool crowded = fabric_->oversubscribed();
  BriefOutcome outcome = advance_brief(op, trouble);
  for (int looks = crowded ? kCrowdedLooks : kLooks; outcome == BriefOutcome::waits && looks > 0; --looks) {
    const int events = receive_brief(op);
    if (MemoryWatch::lost()) [[unlikely]]
      if (trouble = lost_memory(op); !trouble.ok()) break;  // nobody else is here
    if (crowded && events == 0) sched_yield();
    if (disturbed()) break;
    if (events > 0 || op.may_move) outcome = advance_brief(op, trouble);
  }
  return outcome;
}

// It turned out not to be brief.
void Context::go_on_entered(Operation& op, BriefOutcome outcome, Status trouble) {
  hand_over(op);
  if (outcome == BriefOutcome::failed && trouble.code() == Code::remote_error)
    op.set_unreachable(std::exchange(trouble, Status()), now_ns());
  op.comm->operation_begun(op);
  enter(op);
  if (!trouble.ok()) op.comm->fail(trouble.in(op.comm->describe(op)), true);
  else if (!pending_failures_.empty()) turn();
  else advance_one(op);
}

bool Context::run_alone(Operation& op) {
  const MemoryWatch watch(owns, this);
  op.base[0] = static_cast<std::byte*>(const_cast<void*>(op.call.send));
  op.base[1] = static_cast<std::byte*>(op.call.recv);
  begin_brief(op);
  hot_ = &op;
  Status trouble;
  // What earlier operations have left with the network goes on.
  const bool network = fabric_->has_network() && ++turns_ % kQuietNetworkTurns == 0;
  if (network || !stash_.empty()) [[unlikely]]
    trouble = settle_before(op, network);
  BriefOutcome outcome = BriefOutcome::waits;
  if (trouble.ok() && alone()) outcome = carry_out_alone(op, trouble);
  if (outcome != BriefOutcome::done) [[unlikely]] {
    go_on_entered(op, outcome, std::move(trouble));
    return false;
  }
  hot_ = nullptr;
  op.record->outcome = Code::ok;
  op.record->done = ticks();
  return true;
}

}  // namespace weft::engine
