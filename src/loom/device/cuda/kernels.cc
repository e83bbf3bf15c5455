// Loading and launching.
#include "device/cuda/kernels.h"

namespace loom::cuda {
namespace {

constexpr size_t kSharedBytesWithoutConsent = 48 << 10;  // of a block, on every device

}  // namespace

void launch_with(device::Queue& queue, const Kernel& kernel, const LaunchShape& shape,
                 const void* arguments) {
  auto& own = static_cast<Queue&>(queue);
  if (!own.status().ok()) return;
  const Scope scope(own.device());
  const auto& [grid, threads, shared_bytes] = shape;
  void* parameters[] = {const_cast<void*>(arguments)};
  const int failed =
      (*driver())->launch_kernel(kernel.function, grid[0], grid[1], grid[2], threads, 1, 1,
                                 static_cast<unsigned>(shared_bytes), own.stream(), parameters, nullptr);
  if (failed == kSuccess) return;
  (void)own.keep(check(
      failed,
      fmt::format("kernel {} as {}×{}×{} blocks of {} threads with {} bytes of shared memory on {} "
                  "(cuLaunchKernel)",
                  kernel.name, grid[0], grid[1], grid[2], threads, shared_bytes, own.device().describe())));
}

Result<std::unique_ptr<Kernels>> Kernels::load(Device& device, std::span<const KernelImage> images) {
  if (images.empty())
    return fail(Code::unsupported,
                "this build of Loom has no GPU kernels, for it was made without nvcc: build it where CUDA's "
                "toolkit is, or train on CPUs");
  const Scope scope(device);
  std::unique_ptr<Kernels> kernels(new Kernels(device));
  for (const KernelImage& image : images) {
    ModuleHandle* module = nullptr;
    const int failed = (*driver())->module_load_data(&module, image.bytes.data());
    const Status status = check(failed, fmt::format("the GPU kernels of {}.cu on {} (cuModuleLoadData)",
                                                    image.name, device.describe()));
    if (failed == kNoBinaryForGpu || failed == kUnsupportedPtxVersion)
      return fail(
          Code::unsupported,
          "this build's GPU kernels are for other devices than {}: build Loom with an nvcc that knows it; {}",
          device.describe(), status.message());
    LOOM_TRY(status);
    kernels->modules_.push_back(module);
  }
  return kernels;
}

Kernels::~Kernels() {
  const Scope scope(device_);
  for (ModuleHandle* module : modules_) (void)(*driver())->module_unload(module);
}

Result<Kernel> Kernels::find(const std::string& name, size_t shared_bytes) const {
  const Scope scope(device_);
  Kernel kernel{nullptr, name};
  const Driver& d = **driver();
  for (ModuleHandle* module : modules_) {
    const int failed = d.module_get_function(&kernel.function, module, name.c_str());
    if (failed == kSuccess) break;
    kernel.function = nullptr;
    if (failed != kNotFound)
      return check(failed, fmt::format("kernel {} on {} (cuModuleGetFunction)", name, device_.describe()));
  }
  if (kernel.function == nullptr)
    return fail(Code::internal_error, "the GPU kernels of this build have none with the name {}", name);
  if (shared_bytes <= kSharedBytesWithoutConsent) return kernel;
  if (shared_bytes > static_cast<size_t>(device_.shared_bytes()))
    return fail(Code::unsupported, "kernel {} needs {} bytes of shared memory, blocks of {} have {}", name,
                shared_bytes, device_.describe(), device_.shared_bytes());
  LOOM_TRY(
      check(d.function_set_attribute(kernel.function, kMaxDynamicSharedBytes, static_cast<int>(shared_bytes)),
            fmt::format("{} bytes of shared memory for kernel {} (cuFuncSetAttribute)", shared_bytes, name)));
  return kernel;
}

}  // namespace loom::cuda
