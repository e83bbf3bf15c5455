#include "nccl/gpu.h"

#include <dlfcn.h>

#include <string>

#include "base/log.h"
#include "base/settings.h"
#include "device/cuda/driver.h"

namespace weft::nccl {
namespace {

namespace cuda = device::cuda;

template <typename Function>
bool load(void* library, const char* name, Function*& into) {
  into = reinterpret_cast<Function*>(dlsym(library, name));
  return into != nullptr;
}

}  // namespace

const Gpu* Gpu::open() {
  const std::string& set = settings().cuda_library;
  const std::string file = set.empty() ? "libcuda.so.1" : set;
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    if (!set.empty()) log::warn("WEFT_CUDA_LIBRARY is {}, which cannot be opened: {}", set, dlerror());
    return nullptr;
  }
  Gpu* driver = new Gpu;  // stays, as what it opened does
  const bool complete = load(library, "cuInit", driver->init_) &&
                        load(library, "cuDeviceGetCount", driver->device_count_) &&
                        load(library, "cuPointerGetAttribute", driver->pointer_attribute_) &&
                        load(library, "cuCtxGetDevice", driver->current_device_) &&
                        load(library, "cuStreamSynchronize", driver->synchronize_) &&
                        load(library, "cuCtxGetCurrent", driver->get_context_) &&
                        load(library, "cuCtxSetCurrent", driver->set_context_) &&
                        load(library, "cuDeviceGet", driver->get_device_) &&
                        load(library, "cuDevicePrimaryCtxRetain", driver->retain_primary_) &&
                        load(library, "cuGetErrorString", driver->error_string_);
  if (complete) return driver;
  log::warn("{} is no CUDA driver that can be used: {}", file, dlerror());
  delete driver;
  return nullptr;
}

const Gpu* gpu() {
  static const Gpu* const driver = Gpu::open();
  return driver;
}

int Gpu::devices() const {
  int count = 0;
  if (init_(0) != cuda::kSuccess || device_count_(&count) != cuda::kSuccess) return 0;
  return count;
}

bool Gpu::is_device_memory(const void* pointer) const {
  if (!pointer) return false;
  unsigned type = cuda::kHostMemory;
  const int result =
      pointer_attribute_(&type, cuda::kMemoryType, reinterpret_cast<unsigned long long>(pointer));
  return result == cuda::kSuccess && type != cuda::kHostMemory;
}

Result<int> Gpu::current_device() const {
  int device = -1;
  WEFT_TRY(check(current_device_(&device), "cuCtxGetDevice"));
  return device;
}

Status Gpu::synchronize(void* stream) const {
  const int result = synchronize_(stream);
  // A thread that has never used CUDA has nothing on its default stream.
  if (!stream &&
      (result == cuda::kInvalidContext || result == cuda::kNotInitialized || result == cuda::kDeinitialized))
    return {};
  return check(result, "cuStreamSynchronize");
}

void* Gpu::context() const {
  void* context = nullptr;
  return get_context_(&context) == cuda::kSuccess ? context : nullptr;
}

Result<void*> Gpu::primary_context(int device) const {
  int number = 0;
  void* context = nullptr;
  WEFT_TRY(check(get_device_(&number, device), "cuDeviceGet"));
  WEFT_TRY(check(retain_primary_(&context, number), "cuDevicePrimaryCtxRetain"));
  return context;
}

void Gpu::enter(void* context) const {
  if (context) set_context_(context);
}

void Gpu::restore(void* context) const {
  if (this->context() != context) set_context_(context);
}

Status Gpu::check(int result, const char* what) const {
  if (result == cuda::kSuccess) return {};
  const char* text = nullptr;
  error_string_(result, &text);
  return fail(Code::unhandled_cuda_error, "{} failed with {}: {}", what, result,
              text ? text : "unknown error");
}

}  // namespace weft::nccl
