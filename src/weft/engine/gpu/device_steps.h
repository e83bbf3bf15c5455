// The steps of a plan on GPU memory: the interpreter's put, copy and reduce, for an operation that has a
// DeviceRun. A step is queued on the device and found done at a later look; meanwhile its lane stays where it
// is.
//
// Thread safety: under the context's lock.
#pragma once

#include "base/status.h"
#include "engine/run/operation.h"
#include "plan/plan.h"
#include "transport/transport.h"

namespace weft::engine {

enum class DeviceStep : uint8_t { done, waits };

/// As far as the step can go now. `envelope` is a put's notification, as data.
Result<DeviceStep> device_put(Operation& op, plan::StepId id, const plan::Step& step, uint32_t lane,
                              transport::Envelope envelope);
Result<DeviceStep> device_copy(Operation& op, const plan::Step& step, uint32_t lane);
Result<DeviceStep> device_reduce(Operation& op, const plan::Step& step, uint32_t lane);

}  // namespace weft::engine
