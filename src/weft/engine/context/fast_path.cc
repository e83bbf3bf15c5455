#include "engine/context/fast_path.h"

#include <sched.h>

#include <utility>

#include "base/clock.h"
#include "base/memory_watch.h"
#include "engine/context/context.h"
#include "engine/run/brief.h"
#include "engine/run/communicator.h"

namespace weft::engine {
namespace {

// How often the caller polls the FIFOs before the operation becomes active: for about 5 µs. Where ranks share
// cores a peer may need this core, so the caller yields after every poll.
constexpr int kLooks = 256, kCrowdedLooks = 16;

// Whether other work has come up while the caller keeps the lock.
bool disturbed(Context& context) WEFT_REQUIRES(context_lock) {
  return context.lock_is_wanted() || context.submissions().any() || context.failures().any_pending();
}

bool alone(Context& context) WEFT_REQUIRES(context_lock) {
  return context.operations().empty() && !context.failures().any_death() && !context.sleepers().taken() &&
         !context.trace() && !disturbed(context);
}

// Delivers early messages, and polls the network if `network`. Not ok: why the operation has to fail.
Status settle_before(Context& context, Operation& op, bool network) WEFT_REQUIRES(context_lock) {
  Status trouble;
  if (!context.inbox().empty()) context.inbox().deliver_early(op);
  if (network)
    if (Result<int> polled = context.fabric().poll(context.inbox(), true); !polled) trouble = polled.status();
  if (MemoryWatch::lost()) [[unlikely]] {
    if (trouble.ok()) trouble = LostMemory::of(op);
    MemoryWatch::settle([](const MemoryWatch::Run&) {});  // what is left is of operations that have failed
  }
  return trouble;
}

// Goes on until the operation is done, its polls are used up, or other work has come up.
inline BriefOutcome carry_out(Context& context, Operation& op, Status& trouble) WEFT_REQUIRES(context_lock) {
  const bool crowded = context.fabric().oversubscribed();
  BriefOutcome outcome = advance_brief(op, trouble);
  for (int looks = crowded ? kCrowdedLooks : kLooks; outcome == BriefOutcome::waits && looks > 0; --looks) {
    const int events = receive_brief(op);
    if (MemoryWatch::lost()) [[unlikely]]
      if (trouble = LostMemory::of(op); !trouble.ok()) break;  // nobody else is here
    if (crowded && events == 0) sched_yield();
    if (disturbed(context)) break;
    if (events > 0 || op.may_move) outcome = advance_brief(op, trouble);
  }
  return outcome;
}

// The operation becomes active.
void go_on_active(Context& context, Operation& op, BriefOutcome outcome, Status trouble)
    WEFT_REQUIRES(context_lock) {
  hand_over(op);
  if (outcome == BriefOutcome::failed && trouble.code() == Code::remote_error)
    op.health.set_unreachable(std::exchange(trouble, Status()), now_ns(), context.events());
  op.comm->operation_begun(op);
  context.operations().enter(op);
  if (!trouble.ok()) context.failures().fail(op, trouble);
  else if (context.failures().any_pending()) context.turn();
  else context.advance_one(op);
}

}  // namespace

bool run_alone(Context& context, Operation& op) {
  const MemoryWatch watch = context.lost_memory().watch();
  op.base[0] = static_cast<std::byte*>(const_cast<void*>(op.call.send));
  op.base[1] = static_cast<std::byte*>(op.call.recv);
  begin_brief(op);
  context.operations().expect(&op);
  Status trouble;
  // What earlier operations have left with the network goes on.
  const bool network = context.fabric().has_network() && context.quiet_network_is_due();
  if (network || !context.inbox().empty()) [[unlikely]]
    trouble = settle_before(context, op, network);
  BriefOutcome outcome = BriefOutcome::waits;
  if (trouble.ok() && alone(context)) outcome = carry_out(context, op, trouble);
  if (outcome != BriefOutcome::done) [[unlikely]] {
    go_on_active(context, op, outcome, std::move(trouble));
    return false;
  }
  context.operations().expect(nullptr);
  op.record->outcome = Code::ok;
  op.record->done = ticks();
  return true;
}

}  // namespace weft::engine
