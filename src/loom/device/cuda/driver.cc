// The table of the driver's functions, each taken from the driver that Weft has loaded.
#include "device/cuda/driver.h"

#include <weft/weft_cuda.h>

#include <string>

namespace loom::cuda {
namespace {

/// Fills the table. `failure` is why the first function is not there.
class Binder {
 public:
  template <typename Function>
  void operator()(Function*& into, const char* symbol) {
    void* function = nullptr;
    if (failure.ok() && weftCudaFunction(symbol, &function) != weftSuccess)
      failure = Status(Code::unsupported, weftGetLastError(nullptr));
    if (failure.ok() && function == nullptr)
      failure = fail(Code::unsupported, "CUDA's driver has no function {}: install a newer driver", symbol);
    into = reinterpret_cast<Function*>(function);
  }

  Status failure;
};

void bind_devices(Binder& bind, Driver& d) {
  bind(d.driver_get_version, "cuDriverGetVersion");
  bind(d.get_error_name, "cuGetErrorName");
  bind(d.get_error_string, "cuGetErrorString");
  bind(d.device_get_count, "cuDeviceGetCount");
  bind(d.device_get, "cuDeviceGet");
  bind(d.device_get_name, "cuDeviceGetName");
  bind(d.device_get_attribute, "cuDeviceGetAttribute");
  bind(d.primary_context_retain, "cuDevicePrimaryCtxRetain");
  bind(d.primary_context_release, "cuDevicePrimaryCtxRelease_v2");
  bind(d.context_get_current, "cuCtxGetCurrent");
  bind(d.context_push, "cuCtxPushCurrent_v2");
  bind(d.context_pop, "cuCtxPopCurrent_v2");
}

void bind_memory(Binder& bind, Driver& d) {
  bind(d.mem_get_info, "cuMemGetInfo_v2");
  bind(d.mem_alloc, "cuMemAlloc_v2");
  bind(d.mem_free, "cuMemFree_v2");
  bind(d.mem_host_alloc, "cuMemHostAlloc");
  bind(d.mem_free_host, "cuMemFreeHost");
  bind(d.memcpy_async, "cuMemcpyAsync");
  bind(d.memset_async, "cuMemsetD8Async");
}

void bind_streams(Binder& bind, Driver& d) {
  bind(d.stream_create, "cuStreamCreate");
  bind(d.stream_destroy, "cuStreamDestroy_v2");
  bind(d.stream_synchronize, "cuStreamSynchronize");
  bind(d.stream_wait_event, "cuStreamWaitEvent");
  bind(d.event_create, "cuEventCreate");
  bind(d.event_destroy, "cuEventDestroy_v2");
  bind(d.event_record, "cuEventRecord");
  bind(d.event_synchronize, "cuEventSynchronize");
  bind(d.event_elapsed_time, "cuEventElapsedTime");
}

void bind_kernels(Binder& bind, Driver& d) {
  bind(d.module_load_data, "cuModuleLoadData");
  bind(d.module_unload, "cuModuleUnload");
  bind(d.module_get_function, "cuModuleGetFunction");
  bind(d.function_set_attribute, "cuFuncSetAttribute");
  bind(d.launch_kernel, "cuLaunchKernel");
}

struct Loaded {
  Driver driver{};
  Status status;
  Loaded() {
    Binder bind;
    bind_devices(bind, driver);
    bind_memory(bind, driver);
    bind_streams(bind, driver);
    bind_kernels(bind, driver);
    status = bind.failure;
    if (status.ok()) (void)driver.driver_get_version(&driver.version);
  }
};

/// Never destroyed: other threads may still use it while the process exits.
const Loaded& loaded() {
  static const Loaded* const instance = new Loaded;
  return *instance;
}

}  // namespace

Result<const Driver*> driver() {
  const Loaded& l = loaded();
  if (!l.status.ok()) return l.status;
  return &l.driver;
}

Status check(int error, std::string_view what) {
  if (error == kSuccess) return {};
  const Driver& d = loaded().driver;
  const char *name = nullptr, *text = nullptr;
  if (d.get_error_name(error, &name) != kSuccess || name == nullptr) name = "unknown";
  if (d.get_error_string(error, &text) != kSuccess || text == nullptr) text = "no description";
  return fail(error == kOutOfMemory ? Code::out_of_memory : Code::system_error, "{}: {} (CUDA error {}, {})",
              what, text, error, name);
}

}  // namespace loom::cuda
