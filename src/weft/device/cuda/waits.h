// Waits: the conditions under which a CUDA stream may wait for a flag that a CPU thread sets only when more
// work of the device is done. The driver does not know of that dependency, and may hold that work up. Both
// cases below were seen on an H100 with a driver for CUDA 13.0 (docs/explanation/gpus.md, "While a stream
// waits"). An environment variable, read when CUDA is initialized, prevents each. When the library is loaded,
// it sets the variables that are not set.
//   CUDA_DEVICE_MAX_CONNECTIONS  Queues through which a process feeds a device; 8 by default. A stream that
//                                waits holds one. When as many wait as there are, no kernel starts any more,
//                                nor a copy inside the device, those included that would end the waits.
//   CUDA_MODULE_LOADING          LAZY by default: a kernel is loaded at its first launch, and the driver then
//                                waits for the streams of the device, and lets other work wait as well.
//
// Thread safety: every function.
#pragma once

#include "base/status.h"
#include "device/cuda/driver.h"

namespace weft::device::cuda {

inline constexpr int kConnections = 32;  // as many as CUDA has

/// Sets the variables that are not set. Only before CUDA is initialized, when it has an effect.
void ask_for_waits();

/// Whether streams may wait; if not, which variable is in the way, and what would be right.
Status streams_may_wait(const Driver& driver);

}  // namespace weft::device::cuda
