// How a context does a brief operation (Prepared::brief): its caller alone, who has the lock, looks after
// nothing else for a moment. Such an operation is in none of the context's books: no turn advances it, nobody
// can wait for it, and only `hot_` leads messages to it. If anything else comes up, or the moment passes, it
// is entered and goes on from where it is like any other.
#include <sched.h>

#include "base/clock.h"
#include "base/memory_watch.h"
#include "engine/brief.h"
#include "engine/communicator.h"
#include "engine/context.h"

namespace weft::engine {
namespace {

// Looks at the FIFOs before the operation is treated like any other: about 5 µs. Where ranks share cores a
// peer may need this one, which is offered after every look.
constexpr int kLooks = 256, kCrowdedLooks = 16;

}  // namespace

bool Context::alone() const {
  return active_.empty() && !has_submissions_.load(std::memory_order_relaxed) && pending_failures_.empty() &&
         deaths_.empty() && wanting_.load(std::memory_order_relaxed) == 0 && !sleeper_ && !trace_;
}

// What is to be looked at before the operation; not ok: why it has to fail.
Status Context::prepare_alone(Operation& op) {
  op.base[0] = static_cast<std::byte*>(const_cast<void*>(op.call.send));
  op.base[1] = static_cast<std::byte*>(op.call.recv);
  begin_brief(op);
  hot_ = &op;
  if (!stash_.empty()) deliver_stashed(op);
  Status trouble;
  // What earlier operations have left with the network goes on.
  if (fabric_->between_nodes() && ++turns_ % kQuietNetworkTurns == 0)
    if (Result<int> polled = fabric_->poll(*this, true); !polled) trouble = polled.status();
  if (MemoryWatch::lost()) [[unlikely]] {
    if (trouble.ok()) trouble = lost_memory(op);
    MemoryWatch::settle([](const MemoryWatch::Run&) {});  // what is left is of operations that have failed
  }
  return trouble;
}

// Looks for messages until one has come, there is room to send, or somebody else wants to work here.
Status Context::poll_alone(Operation& op, bool crowded, int& looks) {
  transport::Transport* const local = fabric_->local();
  for (;;) {
    const Result<int> polled = local->poll(*this);
    if (MemoryWatch::lost()) [[unlikely]]
      WEFT_TRY(lost_memory(op));  // nobody else is here
    if (!polled) [[unlikely]]
      return polled.status();
    const bool stuck = *polled == 0;
    if (crowded && stuck) sched_yield();
    if (--looks <= 0 || !stuck || op.may_move || wanting_.load(std::memory_order_relaxed) != 0) return {};
  }
}

bool Context::run_alone(Operation& op) {
  op.record->started = op.record->queued;
  const MemoryWatch watch(owns, this);
  Status trouble = prepare_alone(op);
  BriefOutcome outcome = BriefOutcome::waits;
  const bool crowded = fabric_->oversubscribed();
  for (int looks = crowded ? kCrowdedLooks : kLooks; trouble.ok() && alone();) {
    outcome = advance_brief(op, trouble);
    if (outcome != BriefOutcome::waits || looks <= 0) break;
    trouble = poll_alone(op, crowded, looks);
  }
  if (outcome == BriefOutcome::done) {
    hot_ = nullptr;
    op.record->outcome = Code::ok;
    op.record->done = ticks();
    return true;
  }
  hand_over(op);
  if (outcome == BriefOutcome::failed && trouble.code() == Code::remote_error)
    op.set_unreachable(std::exchange(trouble, Status()), now_ns());
  op.comm->operation_begun(op);
  enter(op);
  if (!trouble.ok()) op.comm->fail(trouble.in(op.comm->describe(op)), true);
  else if (!pending_failures_.empty()) turn();
  else advance_one(op);
  return false;
}

}  // namespace weft::engine
