#include "engine/gpu/proxy_steps.h"

#include "engine/gpu/device_run.h"

namespace weft::engine {

ProxySteps::ProxySteps(const RunEnvironment& environment, Operation& op)
    : LaneSteps(environment, op),
      proxy_(*op.device->on_path().path->proxy()),
      places_(*op.device->on_path().served->proxy_places),
      epoch_(op.device->on_path().epoch) {}

StepOutcome ProxySteps::put(plan::StepId id, const plan::Step& step) {
  if (!is_raised(step)) return StepOutcome::retry;
  const std::byte* const slots =
      proxy_.words().slots(cuda::ProxySlots::outgoing, epoch_, static_cast<uint32_t>(step.peer));
  const StepOutcome sent = send(step, envelope(step), slots + places_.outgoing[id]);
  if (sent != StepOutcome::done) return sent;
  transport::Completion& completion =
      op_.progress.completions[static_cast<size_t>(op_.tables->put_of_step[id])];
  completion.done = true;  // a message's payload has been copied
  op_.progress.begin_put(completion);
  return StepOutcome::done;
}

StepOutcome ProxySteps::signal(const plan::Step& step) {
  return is_raised(step) ? send(step, envelope(step), nullptr) : StepOutcome::retry;
}

StepOutcome ProxySteps::wait(const plan::Step& step) const {
  const StepOutcome outcome = LaneSteps::wait(step);
  if (outcome == StepOutcome::done)
    proxy_.words().tell_arrived(epoch_, static_cast<uint32_t>(step.peer), step.tag);
  return outcome;
}

StepOutcome ProxySteps::copy(const plan::Step&, LaneState&) {
  return failed(fail(Code::internal_error, "a copy does not cross nodes"));
}
StepOutcome ProxySteps::reduce(const plan::Step&, LaneState&) {
  return failed(fail(Code::internal_error, "a reduction does not cross nodes"));
}

}  // namespace weft::engine
