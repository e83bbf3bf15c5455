#include "device/cuda/driver.h"

#include <dlfcn.h>

#include <string>

#include "base/settings.h"
#include "device/cuda/waits.h"

namespace weft::device::cuda {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

enum class Need : uint8_t { required, optional };

/// Fills the table from an opened library. `missing` is the first required function that the library lacks.
class Binder {
 public:
  explicit Binder(void* library) : library_(library) {}

  template <typename Function>
  void operator()(Function*& into, const char* symbol, Need need = Need::required) {
    into = reinterpret_cast<Function*>(dlsym(library_, symbol));
    if (!into && need == Need::required && missing.empty()) missing = symbol;
  }

  std::string missing;

 private:
  void* library_;
};

void bind_devices(Binder& bind, Driver& d) {
  bind(d.init, "cuInit");
  bind(d.driver_get_version, "cuDriverGetVersion");
  bind(d.get_error_name, "cuGetErrorName");
  bind(d.get_error_string, "cuGetErrorString");
  bind(d.device_get_count, "cuDeviceGetCount");
  bind(d.device_get, "cuDeviceGet");
  bind(d.device_get_name, "cuDeviceGetName");
  bind(d.device_get_uuid, "cuDeviceGetUuid_v2", Need::optional);  // from 11.4 on; of parts of a GPU (MIG)
  if (!d.device_get_uuid) bind(d.device_get_uuid, "cuDeviceGetUuid");
  bind(d.device_get_attribute, "cuDeviceGetAttribute");
  bind(d.device_get_pci_bus_id, "cuDeviceGetPCIBusId");
  bind(d.device_can_access_peer, "cuDeviceCanAccessPeer");
  bind(d.primary_context_retain, "cuDevicePrimaryCtxRetain");
  bind(d.context_push, "cuCtxPushCurrent_v2");
  bind(d.context_pop, "cuCtxPopCurrent_v2");
  bind(d.context_get_current, "cuCtxGetCurrent");
  bind(d.context_get_device, "cuCtxGetDevice");
  bind(d.context_enable_peer_access, "cuCtxEnablePeerAccess");
}

void bind_memory(Binder& bind, Driver& d) {
  bind(d.mem_alloc, "cuMemAlloc_v2");
  bind(d.mem_free, "cuMemFree_v2");
  bind(d.mem_host_alloc, "cuMemHostAlloc");
  bind(d.mem_host_register, "cuMemHostRegister_v2");
  bind(d.mem_host_unregister, "cuMemHostUnregister");
  bind(d.mem_host_get_device_pointer, "cuMemHostGetDevicePointer_v2");
  bind(d.pointer_get_attributes, "cuPointerGetAttributes");
  bind(d.memcpy_async, "cuMemcpyAsync");
  bind(d.ipc_get_mem_handle, "cuIpcGetMemHandle");
  bind(d.ipc_open_mem_handle, "cuIpcOpenMemHandle_v2");
  bind(d.ipc_close_mem_handle, "cuIpcCloseMemHandle");
  bind(d.mem_get_handle_for_range, "cuMemGetHandleForAddressRange", Need::optional);  // from 11.7 on
  bind(d.flush_gpu_direct_writes, "cuFlushGPUDirectRDMAWrites", Need::optional);      // from 11.3 on
}

void bind_streams(Binder& bind, Driver& d) {
  bind(d.context_get_priority_range, "cuCtxGetStreamPriorityRange");
  bind(d.stream_create, "cuStreamCreate");
  bind(d.stream_create_with_priority, "cuStreamCreateWithPriority");
  bind(d.stream_destroy, "cuStreamDestroy_v2");
  bind(d.stream_synchronize, "cuStreamSynchronize");
  bind(d.stream_get_context, "cuStreamGetCtx");
  bind(d.stream_is_capturing, "cuStreamIsCapturing");
  bind(d.thread_exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
  bind(d.stream_wait_value, "cuStreamWaitValue32_v2", Need::optional);  // from 11.7 on
  bind(d.stream_write_value, "cuStreamWriteValue32_v2", Need::optional);
  bind(d.stream_batch_mem_op, "cuStreamBatchMemOp_v2", Need::optional);
  bind(d.event_create, "cuEventCreate");
  bind(d.event_record, "cuEventRecord");
  bind(d.event_query, "cuEventQuery");
  bind(d.event_destroy, "cuEventDestroy_v2");
  bind(d.stream_wait_event, "cuStreamWaitEvent");
  bind(d.launch_host_function, "cuLaunchHostFunc");
  bind(d.module_load_data, "cuModuleLoadData");
  bind(d.module_get_loading_mode, "cuModuleGetLoadingMode", Need::optional);  // from 11.7 on
  bind(d.module_get_function, "cuModuleGetFunction");
  bind(d.launch_kernel, "cuLaunchKernel");
}

void bind_graphs(Binder& bind, Driver& d) {
  bind(d.stream_begin_capture, "cuStreamBeginCapture_v2");
  bind(d.stream_end_capture, "cuStreamEndCapture");
  bind(d.graph_destroy, "cuGraphDestroy");
  bind(d.stream_get_capture_info, "cuStreamGetCaptureInfo_v2",
       Need::optional);  // this and the rest from 11.3 on
  bind(d.graph_retain_user_object, "cuGraphRetainUserObject", Need::optional);
  bind(d.user_object_create, "cuUserObjectCreate", Need::optional);
  bind(d.user_object_release, "cuUserObjectRelease", Need::optional);
}

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

/// The driver's words for an error, while driver() does not have the table yet.
std::string words(const Driver& d, int error) {
  const char *name = nullptr, *text = nullptr;
  if (!d.get_error_name || d.get_error_name(error, &name) != kSuccess || !name) name = "unknown";
  if (!d.get_error_string || d.get_error_string(error, &text) != kSuccess || !text) text = "no description";
  return fmt::format("{} (CUDA error {}, {})", text, error, name);
}

Status load(Driver& d) {
  const std::string& wanted = settings().cuda_library;
  const std::string name = wanted.empty() ? kLibrary : wanted;
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return fail(Code::unsupported,
                "CUDA's driver cannot be loaded ({}): install NVIDIA's driver, or name its library in "
                "WEFT_CUDA_LIBRARY",
                dlerror());
  d.library = library;
  Binder bind(library);
  bind_devices(bind, d);
  if (d.driver_get_version) (void)d.driver_get_version(&d.version);
  bind_memory(bind, d);
  bind_streams(bind, d);
  bind_graphs(bind, d);
  if (d.version > 0 && d.version < kOldestDriver)
    return fail(Code::unsupported, "{} is for CUDA {}, at least {} is needed: install a newer driver", name,
                version_text(d.version), version_text(kOldestDriver));
  if (!bind.missing.empty())
    return fail(Code::unsupported, "{} has no function {}: it is no CUDA driver, or one older than {}", name,
                bind.missing, version_text(kOldestDriver));
  ContextHandle* context = nullptr;
  if (d.context_get_current(&context) == kNotInitialized) ask_for_waits();
  const int initialized = d.init(0);
  if (initialized == kStubLibrary)
    return fail(
        Code::unsupported,
        "{} is the CUDA toolkit's stub, not a driver: take it off LD_LIBRARY_PATH, or name the driver "
        "in WEFT_CUDA_LIBRARY",
        name);
  if (initialized == kNoDevice)
    return fail(Code::unsupported, "{} finds no CUDA device: see nvidia-smi and CUDA_VISIBLE_DEVICES", name);
  if (initialized != kSuccess)
    return fail(Code::unhandled_cuda_error, "{} cannot be initialized: {}", name, words(d, initialized));
  int devices = 0;
  if (d.device_get_count(&devices) != kSuccess || devices == 0)
    return fail(Code::unsupported, "{} finds no CUDA device: see nvidia-smi and CUDA_VISIBLE_DEVICES", name);
  return {};
}

struct LoadedDriver {
  Driver driver{};
  Status status;
  LoadedDriver() : status(load(driver)) {}
};

/// Never destroyed: progress threads may still use it while the process exits.
const LoadedDriver& loaded_driver() {
  static const LoadedDriver* const instance = new LoadedDriver;
  return *instance;
}

}  // namespace

Result<const Driver*> driver() {
  const LoadedDriver& l = loaded_driver();
  if (!l.status.ok()) return l.status;
  return &l.driver;
}

Status check(int error, std::string_view what) {
  if (error == kSuccess) return {};
  return fail(error == kOutOfMemory ? Code::out_of_memory : Code::unhandled_cuda_error, "{}: {}", what,
              words(loaded_driver().driver, error));
}

}  // namespace weft::device::cuda
