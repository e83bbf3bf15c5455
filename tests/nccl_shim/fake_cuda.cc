// A libcuda.so.1 for tests, as far as nccl/gpu.h asks: FAKE_CUDA_DEVICES devices (1), and memory that counts
// as a device's, though the CPU can read it.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {
std::mutex mutex;
auto& blocks = *new std::map<uintptr_t, size_t>;  // stays: it holds memory that is never freed
std::atomic<int> synchronized{0};
thread_local void* context = nullptr;
}  // namespace

EXPORT void* fakeCudaAlloc(size_t bytes) {
  void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  const std::lock_guard guard(mutex);
  blocks[reinterpret_cast<uintptr_t>(memory)] = bytes;
  return memory;
}
EXPORT int fakeCudaSynchronized() { return synchronized.load(); }

EXPORT int cuInit(unsigned) { return 0; }
EXPORT int cuDeviceGetCount(int* count) {
  const char* set = std::getenv("FAKE_CUDA_DEVICES");
  *count = set ? std::atoi(set) : 1;
  return *count > 0 ? 0 : 100;
}
EXPORT int cuPointerGetAttribute(void* value, int attribute, unsigned long long pointer) {
  const std::lock_guard guard(mutex);
  auto block = blocks.upper_bound(pointer);
  if (attribute != 2 || block == blocks.begin()) return 1;
  --block;
  if (pointer >= block->first + block->second) return 1;
  *static_cast<unsigned*>(value) = 2;
  return 0;
}
EXPORT int cuCtxGetDevice(int* device) {
  *device = 0;
  return 0;
}
EXPORT int cuStreamSynchronize(void* stream) {
  synchronized.fetch_add(1);
  return stream == reinterpret_cast<void*>(13) ? 900 : 0;  // the stream that is being captured
}
EXPORT int cuCtxGetCurrent(void** current) {
  *current = context;
  return 0;
}
EXPORT int cuCtxSetCurrent(void* current) {
  context = current;
  return 0;
}
EXPORT int cuGetErrorString(int, const char** text) {
  *text = "operation not permitted when stream is capturing";
  return 0;
}
