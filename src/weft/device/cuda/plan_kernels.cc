#include "device/cuda/plan_kernels.h"

#include <vector>

#include "base/mutex.h"
#include "device/kernels.h"

namespace weft::device::cuda {
namespace {

std::vector<std::string> names_of_kernels() {
  std::vector<std::string> names{plan_kernel_name(false, DataType::int8, ReduceOp::sum)};
  for (int type = 0; type < kDataTypes; ++type) {
    names.push_back(plan_kernel_name(true, static_cast<DataType>(type), ReduceOp::sum));
    if (is_float(static_cast<DataType>(type)))
      names.push_back(plan_kernel_name(true, static_cast<DataType>(type), ReduceOp::avg));
  }
  return names;
}

}  // namespace

Result<const PlanKernels*> PlanKernels::of(Device& device) {
  static Mutex mutex;
  static auto* const loaded = new std::map<int, std::unique_ptr<PlanKernels>>;
  const MutexLock guard(mutex);
  auto& known = (*loaded)[device.ordinal()];
  if (known) return known.get();
  const std::span<const std::byte> image = plan_kernel_image();
  if (image.empty())
    return fail(Code::unsupported, "this build of Weft has no GPU kernels: it was made without nvcc");
  const Scope scope(device);
  const Driver& d = **driver();
  auto kernels = std::make_unique<PlanKernels>();
  int multiprocessors = 0;
  WEFT_TRY(check(d.device_get_attribute(&multiprocessors, kMultiprocessorCount, device.ordinal()),
                 "cuDeviceGetAttribute"));
  kernels->multiprocessors_ = static_cast<uint32_t>(multiprocessors);
  ModuleHandle* module = nullptr;
  if (Status loads = check(d.module_load_data(&module, image.data()), "cuModuleLoadData"); !loads)
    return fail(Code::unsupported, "the plan kernels of this build do not run on {}: {}", device.describe(),
                loads.message());
  for (const std::string& name : names_of_kernels())
    WEFT_TRY(check(d.module_get_function(&kernels->kernels_[name], module, name.c_str()), name));
  known = std::move(kernels);
  return known.get();
}

Status PlanKernels::launch(StreamHandle* stream, const std::string& kernel,
                           const PlanArguments& arguments) const {
  const unsigned blocks = unsigned{arguments.program.lanes} * arguments.program.blocks;
  void* parameters[] = {const_cast<PlanArguments*>(&arguments)};
  return check((*driver())->launch_kernel(kernels_.at(kernel), blocks, 1, 1, kPlanThreads, 1, 1, 0, stream,
                                          parameters, nullptr),
               "a plan kernel (cuLaunchKernel)");
}

}  // namespace weft::device::cuda
