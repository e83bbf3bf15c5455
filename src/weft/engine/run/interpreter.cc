#include "engine/run/interpreter.h"

#include "engine/gpu/device_run.h"
#include "engine/gpu/device_steps.h"
#include "engine/gpu/proxy_steps.h"
#include "engine/run/host_steps.h"

namespace weft::engine {
namespace {

// Each lane in turn, by one table of step operations. True if anything moved.
template <StepTable Table>
Result<bool> run_lanes(const RunEnvironment& environment, Operation& op) {
  Table table(environment, op);
  const plan::Plan& plan = op.tables->plan;
  bool moved = false, retry = false;
  for (size_t number = 0; number < op.progress.lanes.size(); ++number) {
    LaneState& lane = op.progress.lanes[number];
    const uint32_t begin = lane.next, end = plan.lane_begin[number + 1];
    if (begin == end) continue;
    const StepOutcome outcome = run_lane(table, plan, lane, end);
    if (outcome == StepOutcome::failed) return table.take_failure();
    if (op.health.unreachable) [[unlikely]]
      return false;
    moved |= lane.next != begin || outcome == StepOutcome::turn_over;
    retry |= outcome == StepOutcome::retry;
    if (outcome == StepOutcome::done) --op.progress.lanes_left;
  }
  // Besides messages, puts that complete, room in a queue and steps of other lanes move an operation, and a
  // lane may have stopped at the end of its turn.
  op.progress.may_move = moved || retry || op.progress.puts_open > 0;
  return moved;
}

// Puts whose copies are done. True if any is done.
Result<bool> hand_over_puts(const RunEnvironment& environment, Operation& op) {
  if (op.device->side_copies().ready().empty()) return false;
  DeviceSteps table(environment, op);
  if (table.hand_over_puts() == StepOutcome::failed) return table.take_failure();
  return op.progress.reap_puts(*op.tables);
}

// Before the plan's steps and after them, an operation on GPU memory has work of its own.
Result<bool> advance_on_device(const RunEnvironment& environment, Operation& op, bool moved) {
  const cuda::Scope scope(op.device->executor().device());
  const Result<bool> polled = op.device->poll();
  if (!polled) return polled;
  moved |= *polled;
  op.progress.may_move = true;
  if (!op.device->prepared()) {
    WEFT_TRY(op.device->side_copies().mark());
    return moved;
  }
  for (const auto part : {hand_over_puts, run_lanes<DeviceSteps>, hand_over_puts}) {
    const Result<bool> ran = part(environment, op);
    op.progress.may_move = true;
    if (!ran || op.health.unreachable) return ran;
    moved |= *ran;
  }
  WEFT_TRY(op.device->side_copies().mark());
  if (op.progress.complete())
    if (Status concluded = op.device->conclude(); !concluded) return concluded;
  return moved;
}

// What crosses nodes, beside a kernel that does the rest.
Result<bool> advance_proxy(const RunEnvironment& environment, Operation& op) {
  const Result<bool> moved = run_lanes<ProxySteps>(environment, op);
  op.progress.may_move = true;  // the kernel's flags move it, too
  if (!moved || op.health.unreachable) return moved;
  if (op.progress.puts_started == op.tables->puts)
    op.device->on_path().path->proxy()->note_sent(op.device->on_path().epoch);
  if (op.progress.complete())
    if (Status concluded = op.device->conclude(); !concluded) return concluded;
  return moved;
}

}  // namespace

Result<bool> advance(const RunEnvironment& environment, Operation& op) {
  const bool moved = op.progress.reap_puts(*op.tables);
  if (op.device && op.device->on_path().has_proxy()) return advance_proxy(environment, op);
  if (op.device) return advance_on_device(environment, op, moved);
  const Result<bool> ran = run_lanes<HostSteps>(environment, op);
  if (!ran || !moved) return ran;
  op.progress.may_move = true;
  return true;
}

bool complete(const Operation& op) { return op.progress.complete() && (!op.device || op.device->finished()); }

}  // namespace weft::engine
