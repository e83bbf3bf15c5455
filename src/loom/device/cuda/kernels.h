// The library's GPU kernels on one device: found by name, and launched on a queue with one struct of
// arguments (kernel_arguments.h). Nothing here has run on a GPU so far.
//
// Thread safety: constant once loaded; a kernel may be launched by several threads, each on a queue of its
// own.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "device/cuda/device.h"
#include "device/cuda/kernel_arguments.h"
#include "device/cuda/kernels/kernel_images.h"
#include "device/cuda/kernels/primitives.h"

namespace loom::cuda {

struct Kernel {
  FunctionHandle* function = nullptr;
  std::string name;
};

/// Queues a launch. Where the driver refuses it the queue keeps the failure, which names kernel and shape.
/// `arguments` is the kernel's struct, and is read before it returns.
void launch_with(device::Queue& queue, const Kernel& kernel, const LaunchShape& shape, const void* arguments);

template <typename Arguments>
void launch(device::Queue& queue, const Kernel& kernel, const LaunchShape& shape,
            const Arguments& arguments) {
  static_assert(std::is_trivially_copyable_v<Arguments> && sizeof(Arguments) <= kMostArgumentBytes);
  launch_with(queue, kernel, shape, &arguments);
}

class Kernels {
 public:
  /// Loads all of `images`, which outlive it. Errors: unsupported if there are none (a build without nvcc),
  /// or they have no code for this device.
  static Result<std::unique_ptr<Kernels>> load(Device& device,
                                               std::span<const KernelImage> images = kernel_images());
  ~Kernels();
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  /// The kernel of that name, which may be launched with up to so many dynamic bytes of shared memory.
  /// Errors: internal_error if there is none; unsupported if the device's blocks have less; the driver's
  /// where it does not load the kernel.
  Result<Kernel> find(const std::string& name, size_t shared_bytes = 0) const;

 private:
  explicit Kernels(Device& device) : device_(device) {}

  Device& device_;
  std::vector<ModuleHandle*> modules_;
};

}  // namespace loom::cuda
