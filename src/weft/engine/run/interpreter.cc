#include "engine/run/interpreter.h"

#include <algorithm>

#include "base/clock.h"
#include "engine/failure/peer_losses.h"
#include "engine/gpu/device_run.h"
#include "engine/gpu/device_steps.h"
#include "engine/run/host_steps.h"

namespace weft::engine {
namespace {

using plan::Step;
using plan::StepId;
using plan::StepKind;
using transport::Completion;

// A put that completes later is counted open until its flag is seen.
bool reap_puts(Operation& op) {
  if (op.puts_open == 0) return false;
  uint32_t open = 0;
  for (const Completion& completion : op.completions) open += !completion.done;
  // Puts that have not been started are not done either; they are counted by their lanes.
  open -= op.prepared->puts - op.puts_started;
  const bool moved = open != op.puts_open;
  op.puts_open = open;
  return moved;
}

// A peer could not be reached: its report comes, or the time for that passes.
Result<bool> await_reason(Operation& op) {
  op.may_move = true;
  if (now_ns() - op.unreachable_ns < PeerLosses::kGraceNs) return false;
  return op.unreachable;
}

// Each lane in turn, by one table of step operations. True if anything moved.
template <StepTable Table>
Result<bool> run_lanes(const RunEnvironment& environment, Operation& op) {
  Table table(environment, op);
  const plan::Plan& plan = op.prepared->plan;
  bool moved = false, retry = false;
  for (size_t number = 0; number < op.lanes.size(); ++number) {
    LaneState& lane = op.lanes[number];
    const uint32_t begin = lane.next, end = plan.lane_begin[number + 1];
    if (begin == end) continue;
    const StepOutcome outcome = run_lane(table, plan, lane, end);
    if (outcome == StepOutcome::failed) return table.take_failure();
    if (op.unreachable_ns != 0) [[unlikely]]
      return await_reason(op);
    moved |= lane.next != begin || outcome == StepOutcome::turn_over;
    retry |= outcome == StepOutcome::retry;
    if (outcome == StepOutcome::done) --op.lanes_left;
  }
  // Besides messages, puts that complete, room in a queue and steps of other lanes move an operation, and a
  // lane may have stopped at the end of its turn.
  op.may_move = moved || retry || op.puts_open > 0;
  return moved;
}

// Before the plan's steps and after them, an operation on GPU memory has work of its own.
Result<bool> advance_on_device(const RunEnvironment& environment, Operation& op, bool moved) {
  const Result<bool> polled = op.device->poll();
  if (!polled) return polled;
  moved |= *polled;
  op.may_move = true;
  if (!op.device->prepared()) return moved;
  const Result<bool> ran = run_lanes<DeviceSteps>(environment, op);
  op.may_move = true;
  if (!ran || op.unreachable_ns != 0) return ran;
  if (op.lanes_left == 0 && op.puts_open == 0)
    if (Status concluded = op.device->conclude(); !concluded) return concluded;
  return moved || *ran;
}

// Gives the operation's books the lengths that its plan needs.
void lay_out(Operation& op) {
  const Prepared& prepared = *op.prepared;
  const plan::Plan& plan = prepared.plan;
  op.laid_out_for = &prepared;
  op.arrived.resize(plan.notifications());
  op.learned.resize(prepared.handles);
  op.completions.resize(prepared.puts);
  op.step_done.resize(plan.has_dependents ? plan.steps.size() : 0);
  op.lanes.resize(plan.lanes());
}

}  // namespace

void reset_arrivals(Operation& op) {
  if (op.laid_out_for != op.prepared.get()) lay_out(op);
  std::fill(op.arrived.begin(), op.arrived.end(), uint8_t{0});
}

void reset_steps(Operation& op, bool traced) {
  const plan::Plan& plan = op.prepared->plan;
  std::fill(op.learned.begin(), op.learned.end(), PeerBuffer{});
  std::fill(op.completions.begin(), op.completions.end(), Completion{});
  std::fill(op.step_done.begin(), op.step_done.end(), uint8_t{0});
  op.lanes_left = 0;
  const uint64_t since = traced ? ticks() : 0;
  for (int lane = 0; lane < plan.lanes(); ++lane) {
    op.lanes[lane] = {plan.lane_begin[lane], 0, since};
    op.lanes_left += plan.lane_begin[lane] != plan.lane_begin[lane + 1];
  }
  op.puts_open = 0;
  op.puts_started = 0;
}

void follow_fast_path(Operation& op) {
  const plan::Plan& plan = op.prepared->plan;
  const uint32_t next = op.lanes[0].next;
  reset_steps(op, false);
  op.lanes[0].next = next;
  op.lanes_left = next != plan.lane_steps.size();
  for (uint32_t i = 0; i < next; ++i) {
    const StepId id = plan.lane_steps[i];
    const int32_t put = op.prepared->put_of_step[id];
    if (put >= 0) {
      op.completions[put].done = true;
      ++op.puts_started;
    } else if (!op.step_done.empty()) {
      op.step_done[id] = 1;
    }
  }
  op.may_move = true;
}

Result<bool> advance(const RunEnvironment& environment, Operation& op) {
  if (op.unreachable_ns != 0) [[unlikely]]
    return await_reason(op);
  const bool moved = reap_puts(op);
  if (op.device) return advance_on_device(environment, op, moved);
  const Result<bool> ran = run_lanes<HostSteps>(environment, op);
  if (!ran || !moved) return ran;
  op.may_move = true;
  return true;
}

bool complete(const Operation& op) {
  return op.lanes_left == 0 && op.puts_open == 0 && (!op.device || op.device->finished());
}

std::vector<int> awaited_peers(const Operation& op) {
  const plan::Plan& plan = op.prepared->plan;
  std::vector<int> peers;
  for (size_t lane = 0; lane < op.lanes.size(); ++lane) {
    for (uint32_t i = plan.lane_begin[lane]; op.puts_open > 0 && i < op.lanes[lane].next; ++i) {
      const StepId id = plan.lane_steps[i];
      const int32_t put = op.prepared->put_of_step[id];
      if (put >= 0 && !op.completions[put].done) peers.push_back(plan.steps[id].peer);
    }
    if (op.lanes[lane].next == plan.lane_begin[lane + 1]) continue;
    const Step& step = plan.steps[plan.lane_steps[op.lanes[lane].next]];
    const bool waits = step.kind == StepKind::wait && !op.arrived[plan.wait_begin[step.peer] + step.tag];
    const bool stuck_sending = step.kind == StepKind::put || step.kind == StepKind::signal;
    if (waits || stuck_sending) peers.push_back(step.peer);
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

bool deals_with(const Operation& op, int rank) {
  const plan::Plan& plan = op.prepared->plan;
  for (size_t lane = 0; lane < op.lanes.size(); ++lane) {
    for (uint32_t i = op.lanes[lane].next; i < plan.lane_begin[lane + 1]; ++i) {
      const Step& step = plan.steps[plan.lane_steps[i]];
      if (step.peer != rank) continue;
      if (step.kind == StepKind::put || step.kind == StepKind::signal) return true;
      if (step.kind == StepKind::wait && !op.arrived[plan.wait_begin[rank] + step.tag]) return true;
    }
  }
  return false;
}

}  // namespace weft::engine
