#include "engine/context/fast_path.h"

#include <sched.h>

#include <utility>

#include "base/clock.h"
#include "base/memory_watch.h"
#include "engine/context/context.h"
#include "engine/run/communicator.h"
#include "engine/run/fast_steps.h"

namespace weft::engine {
namespace {

// How often the caller polls the FIFOs before the operation becomes active: for about 5 µs. Where ranks share
// cores a peer may need this core, so the caller yields after every poll.
constexpr int kLooks = 256, kCrowdedLooks = 16;

// Whether other work has come up while the caller keeps the lock.
bool disturbed(Context& context) WEFT_REQUIRES(context_lock) {
  return context.lock_is_wanted() || context.submissions().any() || context.failures().any_pending() ||
         context.window_traffic().any_noted();
}

bool alone(Context& context) WEFT_REQUIRES(context_lock) {
  return context.operations().empty() && !context.failures().any_death() && !context.sleepers().taken() &&
         !disturbed(context);
}

// Delivers early messages, and polls the network if `network`. Not ok: why the operation has to fail.
[[gnu::noinline]] Status settle_before(Context& context, Operation& op, bool network)
    WEFT_REQUIRES(context_lock) {
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

// Polls what peers have sent. A message that is not for this operation, or not short, goes to the context.
// Returns the number of events.
inline int receive(Context& context, Operation& op, FastSteps& steps) WEFT_REQUIRES(context_lock) {
  return context.fabric().shm()->poll_next(
      [&](int peer) {
        context_lock_is_held();  // by the caller of poll_next()
        return context.inbox().takes_early(peer) ||
               op.progress.deals_with(op.comm->members().rank_of_world(peer), *op.tables);
      },
      [&](int peer, const transport::Envelope& envelope, const std::byte* payload) {
        context_lock_is_held();
        if (!steps.take(peer, envelope, payload)) context.inbox().arrived(peer, envelope, payload);
      });
}

// Goes on until the operation is done, its polls are used up, or other work has come up.
inline StepOutcome carry_out(Context& context, Operation& op, FastSteps& steps) WEFT_REQUIRES(context_lock) {
  const bool crowded = op.comm->environment().oversubscribed;
  StepOutcome outcome = StepOutcome::retry;
  for (int events = 0, looks = crowded ? kCrowdedLooks : kLooks;; --looks) {
    if (events > 0 || outcome == StepOutcome::retry) outcome = steps.run();
    if (outcome == StepOutcome::done || outcome == StepOutcome::failed || looks == 0) return outcome;
    events = receive(context, op, steps);
    if (MemoryWatch::lost() && steps.memory_lost()) [[unlikely]]
      return StepOutcome::failed;  // nobody else is here
    if (crowded && events == 0) sched_yield();
    if (disturbed(context)) return outcome;
  }
}

// The operation becomes active.
void go_on_active(Context& context, Operation& op, StepOutcome outcome, Status trouble)
    WEFT_REQUIRES(context_lock) {
  op.progress.follow_fast_path(*op.tables);
  if (outcome == StepOutcome::failed && trouble.code() == Code::remote_error)
    op.health.set_unreachable(std::exchange(trouble, Status()));
  op.comm->operations().add(op);
  context.operations().enter(op);
  if (!trouble.ok()) context.failures().fail(op, trouble);
  else if (context.failures().any_pending()) context.turn();
  else context.advance_one(op);
}

}  // namespace

bool run_alone(Context& context, Operation& op) {
  const MemoryWatch watch = context.lost_memory().watch();
  const RunEnvironment& environment = op.comm->environment();
  op.progress.lanes[0].next = 0;
  context.operations().expect(&op);
  FastSteps steps(environment, op);
  StepOutcome outcome = StepOutcome::waits;
  // What earlier operations have left with the network goes on.
  const bool network = environment.has_network && context.quiet_network_is_due();
  if (network || !context.inbox().empty()) [[unlikely]]
    steps.fail(settle_before(context, op, network));
  if (steps.ok() && alone(context)) outcome = carry_out(context, op, steps);
  if (outcome != StepOutcome::done) [[unlikely]] {
    go_on_active(context, op, outcome, steps.take_failure());
    return false;
  }
  context.operations().expect(nullptr);
  op.record->outcome = Code::ok;
  op.record->done = ticks();
  return true;
}

}  // namespace weft::engine
