// The step loop: does the steps of one lane of a plan, in order, as far as they can go now. It never blocks:
// a step that has to wait leaves its lane where it is, and the next call tries that step again.
//
// What a step does is the business of a table of step operations. There are four tables:
//
//   HostSteps    host memory (host_steps.h)
//   DeviceSteps  GPU memory, by copy engines and kernels (gpu/device_steps.h)
//   ProxySteps   between nodes, where one kernel does what is inside a node (gpu/proxy_steps.h)
//   FastSteps    short messages inside a node, on the fast path (fast_steps.h)
//
// A new kind of step is one more operation here and in each table, and more elsewhere:
// docs/explanation/data-path.md has the list.
//
// Thread safety: under the context's lock.
#pragma once

#include <concepts>
#include <cstdint>

#include "base/memory_watch.h"
#include "engine/run/operation.h"
#include "plan/plan.h"

namespace weft::engine {

/// What became of a step, or of a lane.
enum class StepOutcome : uint8_t {
  done,
  waits,      // for a message, or for steps of other lanes
  retry,      // no message tells when it can go on: the transport is busy, or a device works
  turn_over,  // a part is done; the other lanes and the network get their turn
  failed,     // the table has the reason
};

/// A table of step operations for one operation.
template <typename T>
concept StepTable = requires(T table, plan::StepId id, const plan::Step& step, LaneState& lane) {
  { table.put(id, step) } -> std::same_as<StepOutcome>;
  { table.signal(step) } -> std::same_as<StepOutcome>;
  { table.wait(step) } -> std::same_as<StepOutcome>;
  { table.copy(step, lane) } -> std::same_as<StepOutcome>;
  { table.reduce(step, lane) } -> std::same_as<StepOutcome>;
  // Whether the steps are done that this one names in `after`.
  { table.ready(step) } -> std::same_as<bool>;
  // The thread has met memory that is not mapped (MemoryWatch); whether it was this operation's.
  { table.memory_lost() } -> std::same_as<bool>;
  // Notes that a step is done.
  { table.completed(id, step, lane) } -> std::same_as<void>;
};

template <StepTable Table>
inline StepOutcome do_step(Table& table, plan::StepId id, const plan::Step& step, LaneState& lane) {
  using enum plan::StepKind;
  StepOutcome outcome = StepOutcome::done;
  switch (step.kind) {
    case wait: return table.wait(step);
    case copy: outcome = table.copy(step, lane); break;
    case reduce: outcome = table.reduce(step, lane); break;
    case put: outcome = table.put(id, step); break;
    case signal: outcome = table.signal(step); break;
  }
  if (MemoryWatch::lost()) [[unlikely]]
    return table.memory_lost() ? StepOutcome::failed : outcome;
  return outcome;
}

/// Does the steps of a lane that ends at position `end` of `plan.lane_steps`. `done`: all of them.
template <StepTable Table>
inline StepOutcome run_lane(Table& table, const plan::Plan& plan, LaneState& lane, uint32_t end) {
  for (; lane.next != end; ++lane.next) {
    const plan::StepId id = plan.lane_steps[lane.next];
    const plan::Step& step = plan.steps[id];
    if (!table.ready(step)) return StepOutcome::waits;
    const StepOutcome outcome = do_step(table, id, step, lane);
    if (outcome != StepOutcome::done) return outcome;
    table.completed(id, step, lane);
  }
  return StepOutcome::done;
}

}  // namespace weft::engine
