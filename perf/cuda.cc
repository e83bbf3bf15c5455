#include "cuda.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace weft::perf {
namespace {

constexpr int kCallFailed = 3;
constexpr unsigned kNonBlocking = 1;
constexpr int kCaptureOfThread = 1;  // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL

unsigned long long address_of(const void* memory) { return reinterpret_cast<uintptr_t>(memory); }

}  // namespace

Cuda::Cuda(std::string who) : who_(std::move(who)) {
  const char* named = std::getenv("WEFT_CUDA_LIBRARY");
  library_ = dlopen(named && *named ? named : "libcuda.so.1", RTLD_NOW);
  if (!library_) {
    std::fprintf(
        stderr,
        "%s--device cuda: there is no CUDA driver here (%s): install NVIDIA's, name the library with "
        "WEFT_CUDA_LIBRARY, or leave --device out and measure host memory\n",
        who_.c_str(), dlerror());
    std::_Exit(kCallFailed);
  }
  int (*init)(unsigned) = nullptr;
  bind(init, "cuInit");
  bind(count_, "cuDeviceGetCount");
  bind(retain_, "cuDevicePrimaryCtxRetain");
  bind(push_, "cuCtxPushCurrent_v2");
  bind(alloc_, "cuMemAlloc_v2");
  bind(free_, "cuMemFree_v2");
  bind(copy_, "cuMemcpyAsync");
  bind(create_, "cuStreamCreate");
  bind(synchronize_, "cuStreamSynchronize");
  constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE
  const int begun = init(0);
  if (begun != kNoDevice) {
    must(begun, "cuInit");
    must(count_(&devices_), "cuDeviceGetCount");
  }
  if (devices_ > 0) return;
  std::fprintf(stderr,
               "%s--device cuda: the CUDA driver finds no GPU here: look at CUDA_VISIBLE_DEVICES, or leave "
               "--device out and measure host memory\n",
               who_.c_str());
  std::_Exit(kCallFailed);
}

template <typename Function>
void Cuda::bind(Function& function, const char* symbol) {
  function = reinterpret_cast<Function>(dlsym(library_, symbol));
  if (function) return;
  std::fprintf(stderr, "%s--device cuda: the driver has no %s\n", who_.c_str(), symbol);
  std::_Exit(kCallFailed);
}

void Cuda::must(int error, const char* call) const {
  if (error == 0) return;
  std::fprintf(stderr, "%s%s: CUDA error %d\n", who_.c_str(), call, error);
  std::_Exit(kCallFailed);
}

void Cuda::use(int device) {
  void* context = nullptr;
  must(retain_(&context, device), "cuDevicePrimaryCtxRetain");
  must(push_(context), "cuCtxPushCurrent");
  must(create_(&stream_, kNonBlocking), "cuStreamCreate");
}

void Cuda::synchronize() const { must(synchronize_(stream_), "cuStreamSynchronize"); }

std::byte* Cuda::allocate(size_t bytes) const {
  unsigned long long pointer = 0;
  must(alloc_(&pointer, bytes), "cuMemAlloc");
  return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(pointer));
}

void Cuda::free(std::byte* memory) const { must(free_(address_of(memory)), "cuMemFree"); }

void Cuda::copy(void* to, const void* from, size_t bytes) const {
  if (bytes == 0) return;
  must(copy_(address_of(to), address_of(from), bytes, stream_), "cuMemcpyAsync");
  synchronize();
}

void Cuda::begin_capture() {
  if (!begin_capture_) {
    bind(end_capture_, "cuStreamEndCapture");
    bind(instantiate_, "cuGraphInstantiateWithFlags");
    bind(launch_, "cuGraphLaunch");
    bind(destroy_graph_, "cuGraphDestroy");
    bind(destroy_executable_, "cuGraphExecDestroy");
    bind(begin_capture_, "cuStreamBeginCapture_v2");
  }
  must(begin_capture_(stream_, kCaptureOfThread), "cuStreamBeginCapture");
}

void* Cuda::end_capture() {
  void* graph = nullptr;
  void* executable = nullptr;
  must(end_capture_(stream_, &graph), "cuStreamEndCapture");
  must(instantiate_(&executable, graph, 0), "cuGraphInstantiate");
  must(destroy_graph_(graph), "cuGraphDestroy");
  return executable;
}

void Cuda::launch(void* graph) const { must(launch_(graph, stream_), "cuGraphLaunch"); }

void Cuda::destroy(void* graph) const { must(destroy_executable_(graph), "cuGraphExecDestroy"); }

}  // namespace weft::perf
