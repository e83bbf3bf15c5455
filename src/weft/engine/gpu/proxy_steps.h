// ProxySteps: the step operations between nodes of an operation that is a kernel inside its node (proxy.h).
// A put or signal is sent once all blocks of the kernel have raised its flag. A wait tells the kernel what
// has arrived.
//
// Thread safety: under the context's lock.
#pragma once

#include "engine/gpu/proxy.h"
#include "engine/run/step_parts.h"

namespace weft::engine {

class ProxySteps : public LaneSteps {
 public:
  ProxySteps(const RunEnvironment& environment, Operation& op);

  StepOutcome put(plan::StepId id, const plan::Step& step);
  StepOutcome signal(const plan::Step& step);
  StepOutcome wait(const plan::Step& step) const;
  /// The plan has none: they are the kernel's.
  StepOutcome copy(const plan::Step& step, LaneState& lane);
  StepOutcome reduce(const plan::Step& step, LaneState& lane);

 private:
  bool is_raised(const plan::Step& step) const {
    return proxy_.words().is_raised(epoch_, static_cast<uint32_t>(step.peer), step.tag, places_.blocks);
  }

  Proxy& proxy_;
  const ProxyPlaces& places_;
  const uint64_t epoch_;
};

}  // namespace weft::engine
