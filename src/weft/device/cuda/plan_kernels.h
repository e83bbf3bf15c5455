// Launching plan kernels (plan.cu).
//
// Thread safety: every function. launch() is called inside a Scope of the device.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "device/cuda/device.h"
#include "device/cuda/plan_call.h"

namespace weft::device::cuda {

/// The fat binary of the plan kernels; empty in a build without nvcc.
std::span<const std::byte> plan_kernel_image();

class PlanKernels {
 public:
  /// The process's kernels of a device, loaded once and kept. Errors: unsupported if this build has no
  /// kernels, or none for the device.
  static Result<const PlanKernels*> of(Device& device);

  /// How many blocks fit on the device at once, whichever kernel they are of.
  uint32_t resident_blocks() const { return multiprocessors_; }
  /// Launches a kernel on a stream, with all blocks of the program.
  Status launch(StreamHandle* stream, const std::string& kernel, const PlanArguments& arguments) const;

 private:
  uint32_t multiprocessors_ = 0;
  std::map<std::string, FunctionHandle*> kernels_;
};

}  // namespace weft::device::cuda
