// The fake CUDA driver, as the fake runtime calls it: the file that WEFT_CUDA_LIBRARY names, which Weft opens
// too.
#pragma once

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace fake_runtime {

inline void* driver() {
  static void* const file = [] {
    const char* const name = std::getenv("WEFT_CUDA_LIBRARY");
    void* const opened = name ? dlopen(name, RTLD_NOW | RTLD_GLOBAL) : nullptr;
    if (!opened) {
      std::fprintf(stderr,
                   "the fake CUDA runtime: WEFT_CUDA_LIBRARY must name the fake driver (fake_cuda.so)\n");
      std::abort();
    }
    return opened;
  }();
  return file;
}

template <typename Function>
Function* function_of_driver(const char* name) {
  void* const found = dlsym(driver(), name);
  if (!found) {
    std::fprintf(stderr, "the fake CUDA runtime: the driver has no %s\n", name);
    std::abort();
  }
  return reinterpret_cast<Function*>(found);
}

/// Calls the driver; its error codes are the runtime's. What went wrong is printed, since programs only see
/// the code.
template <typename... Parameters>
cudaError_t drive(const char* name, Parameters... parameters) {
  const int error = function_of_driver<int(Parameters...)>(name)(parameters...);
  if (error != cudaSuccess && error != cudaErrorNotReady)
    std::fprintf(stderr, "the fake CUDA runtime: %s failed with %d\n", name, error);
  return static_cast<cudaError_t>(error);
}

/// Makes the context of a stream's device current while it lives, since the fake driver wants it so.
class OnDeviceOf {
 public:
  explicit OnDeviceOf(cudaStream_t stream);
  ~OnDeviceOf();
  OnDeviceOf(const OnDeviceOf&) = delete;
  OnDeviceOf& operator=(const OnDeviceOf&) = delete;

 private:
  bool pushed_ = false;
};

/// `work` for a stream, which deletes it.
template <typename Work>
cudaError_t queue(cudaStream_t stream, Work work) {
  const OnDeviceOf device(stream);
  using Function = void(void*);
  Function* const run = [](void* given) {
    Work* const own = static_cast<Work*>(given);
    (*own)();
    delete own;
  };
  return drive("cuLaunchHostFunc", stream, run, static_cast<void*>(new Work(std::move(work))));
}

}  // namespace fake_runtime
