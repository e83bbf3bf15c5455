// DeviceSteps: the step operations on GPU memory, for an operation that has a DeviceRun. A step is queued on
// the device and found done at a later look; meanwhile its lane stays where it is.
//
// Thread safety: under the context's lock.
#pragma once

#include "engine/gpu/side_copies.h"
#include "engine/run/step_parts.h"

namespace weft::engine {

class DeviceSteps : public LaneSteps {
 public:
  using LaneSteps::LaneSteps;

  StepOutcome put(plan::StepId id, const plan::Step& step);
  StepOutcome signal(const plan::Step& step);
  StepOutcome copy(const plan::Step& step, LaneState& lane);
  StepOutcome reduce(const plan::Step& step, LaneState& lane);
  /// Hands puts whose copies are done to their transports, as far as those take them. `done`: no error;
  /// `retry`: a peer cannot be reached.
  StepOutcome hand_over_puts();

 private:
  Result<transport::Progress> start_put(const PendingPut& put, transport::Completion& completion);
  StepOutcome outcome_of(const Result<StepOutcome>& result);
  /// The same of a copy or reduction.
  StepOutcome outcome_of_read(const plan::Step& step, const Result<StepOutcome>& result);
  Result<const transport::RemoteBuffer*> expose(const plan::Step& step);
};

}  // namespace weft::engine
