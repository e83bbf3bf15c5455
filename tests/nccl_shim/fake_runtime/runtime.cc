// A CUDA runtime on the fake driver of tests/cuda, with what nccl-tests call: devices, memory, streams,
// events and graphs. The real one does not start there, since it asks the driver for private tables. Programs
// are linked with this in place of libcudart.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "driver.h"
#include "kernels.h"

namespace fake_runtime {
namespace {

thread_local int t_device = -1;

cudaError_t choose(int device) {
  static const int initialized = drive("cuInit", 0u);
  if (initialized != cudaSuccess) return static_cast<cudaError_t>(initialized);
  void* context = nullptr;
  if (const cudaError_t error = drive("cuDevicePrimaryCtxRetain", &context, device)) return error;
  t_device = device;
  return drive("cuCtxSetCurrent", context);
}

/// A thread that has chosen no device works on the first.
void have_device() {
  if (t_device < 0) (void)choose(0);
}

bool is_of_a_device(cudaStream_t stream) { return reinterpret_cast<uintptr_t>(stream) > 2; }

/// When a stream came to it.
struct Event {
  std::atomic<std::chrono::steady_clock::time_point> reached{};
};
Event* event_of(cudaEvent_t event) { return reinterpret_cast<Event*>(event); }

}  // namespace

OnDeviceOf::OnDeviceOf(cudaStream_t stream) {
  have_device();
  if (!is_of_a_device(stream)) return;
  void* context = nullptr;
  pushed_ = drive("cuStreamGetCtx", stream, &context) == cudaSuccess &&
            drive("cuCtxPushCurrent_v2", context) == cudaSuccess;
}
OnDeviceOf::~OnDeviceOf() {
  void* context = nullptr;
  if (pushed_) (void)drive("cuCtxPopCurrent_v2", &context);
}

void* reachable(const void* address) {
  void* const bytes = function_of_driver<void*(const void*)>("fake_cuda_bytes_behind")(address);
  return bytes ? bytes : const_cast<void*>(address);
}

}  // namespace fake_runtime

using namespace fake_runtime;

extern "C" {

// ---- Devices

cudaError_t cudaGetDeviceCount(int* count) {
  have_device();
  return drive("cuDeviceGetCount", count);
}
cudaError_t cudaSetDevice(int device) { return choose(device); }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  std::memset(properties, 0, sizeof *properties);
  std::strcpy(properties->name, "fake device");
  properties->major = 9;
  properties->pciBusID = device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  have_device();
  return drive("cuDeviceGetAttribute", value, static_cast<int>(attribute), device);
}
cudaError_t cudaDeviceSynchronize() {
  have_device();
  return drive("cuCtxSynchronize");
}
cudaError_t cudaDeviceReset() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t error) {
  const char* text = nullptr;
  return drive("cuGetErrorString", static_cast<int>(error), &text) == cudaSuccess ? text : "unknown error";
}

// ---- Memory

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = size_t{1} << 30;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  have_device();
  return drive("cuMemAlloc_v2", pointer, bytes);
}
cudaError_t cudaFree(void* pointer) { return pointer ? drive("cuMemFree_v2", pointer) : cudaSuccess; }
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  have_device();
  return drive("cuMemHostAlloc", pointer, bytes, flags);
}
cudaError_t cudaFreeHost(void*) { return cudaSuccess; }  // the driver has no such call: its process ends soon
cudaError_t cudaMemset(void* pointer, int value, size_t bytes) {
  if (const cudaError_t error = cudaDeviceSynchronize(); error || bytes == 0) return error;
  std::memset(reachable(pointer), value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  const OnDeviceOf device(stream);
  return bytes ? drive("cuMemcpyAsync", to, from, bytes, stream) : cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (const cudaError_t error = cudaDeviceSynchronize()) return error;
  if (const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, nullptr)) return error;
  return cudaStreamSynchronize(nullptr);
}

// ---- Streams and events

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  have_device();
  return drive("cuStreamCreate", stream, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return drive("cuStreamDestroy_v2", stream); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const OnDeviceOf device(stream);
  return drive("cuStreamSynchronize", stream);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const OnDeviceOf device(stream);
  return drive("cuStreamQuery", stream);
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = reinterpret_cast<cudaEvent_t>(new Event);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event_of(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return queue(stream, [event] { event_of(event)->reached = std::chrono::steady_clock::now(); });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  const std::chrono::duration<float, std::milli> elapsed =
      event_of(to)->reached.load() - event_of(from)->reached.load();
  *milliseconds = elapsed.count();
  return cudaSuccess;
}

// ---- Graphs

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const OnDeviceOf device(stream);
  return drive("cuStreamBeginCapture_v2", stream, static_cast<int>(mode));
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const OnDeviceOf device(stream);
  return drive("cuStreamEndCapture", stream, graph);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  return drive("cuGraphInstantiateWithFlags", executable, graph, flags);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  const OnDeviceOf device(stream);
  return drive("cuGraphLaunch", executable, stream);
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return drive("cuGraphDestroy", graph); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return drive("cuGraphExecDestroy", executable);
}

}  // extern "C"
