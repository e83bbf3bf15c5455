// CUDA graphs for tests: capture, launch, destroy, over the driver that the library loads, fake or real.
#pragma once

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/device_memory.h"

namespace weft::testing {

/// Functions of the driver that the library does not use itself.
struct GraphFunctions {
  int (*instantiate)(void** executable, cuda::GraphHandle* graph, unsigned long long flags) = nullptr;
  int (*launch)(void* executable, cuda::StreamHandle* stream) = nullptr;
  int (*destroy_executable)(void* executable) = nullptr;

  GraphFunctions() {
    const std::string& path = settings().cuda_library;
    void* library = dlopen(path.empty() ? "libcuda.so.1" : path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    if (!library) return;
    instantiate = reinterpret_cast<decltype(instantiate)>(dlsym(library, "cuGraphInstantiateWithFlags"));
    launch = reinterpret_cast<decltype(launch)>(dlsym(library, "cuGraphLaunch"));
    destroy_executable = reinterpret_cast<decltype(destroy_executable)>(dlsym(library, "cuGraphExecDestroy"));
  }
};
inline const GraphFunctions& graph_functions() {
  static const GraphFunctions functions;
  return functions;
}

/// A graph and what was instantiated from it; captured between the constructor and end().
class Graph {
 public:
  explicit Graph(const DeviceStream& stream, int mode = cuda::kCaptureModeGlobal)
      : device_(**cuda::Device::open(0)), stream_(stream) {
    const cuda::Scope scope(device_);
    EXPECT_EQ(driver().stream_begin_capture(stream.get(), mode), cuda::kSuccess);
  }
  ~Graph() { destroy(); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// What the driver says at the end of the capture, and of the instantiation.
  int end() {
    const cuda::Scope scope(device_);
    if (const int error = driver().stream_end_capture(stream_.get(), &graph_)) return error;
    return instantiate();
  }
  /// Makes one more executable graph of it.
  int instantiate() {
    const cuda::Scope scope(device_);
    executables_.push_back(nullptr);
    return graph_functions().instantiate(&executables_.back(), graph_, 0);
  }
  void launch(const DeviceStream& stream, size_t executable = 0) {
    const cuda::Scope scope(device_);
    ASSERT_EQ(graph_functions().launch(executables_.at(executable), stream.get()), cuda::kSuccess);
  }
  void launch() { launch(stream_); }
  void destroy() {
    const cuda::Scope scope(device_);
    for (void* executable : std::exchange(executables_, {}))
      (void)graph_functions().destroy_executable(executable);
    if (graph_) (void)driver().graph_destroy(std::exchange(graph_, nullptr));
  }

 private:
  cuda::Device& device_;
  const DeviceStream& stream_;
  cuda::GraphHandle* graph_ = nullptr;
  std::vector<void*> executables_;
};

/// Makes `later` come after what `earlier` has so far: in a capture, brings it in or joins it.
inline void follow(const DeviceStream& later, const DeviceStream& earlier) {
  const cuda::Scope scope(**cuda::Device::open(0));
  cuda::EventHandle* event = nullptr;
  CUDA_OK(driver().event_create(&event, cuda::kEventDisableTiming));
  CUDA_OK(driver().event_record(event, earlier.get()));
  CUDA_OK(driver().stream_wait_event(later.get(), event, 0));
  CUDA_OK(driver().event_destroy(event));
}

/// Skips the calling test where graphs cannot hold operations, with the reason.
#define WEFT_NEED_GRAPHS()                                                                             \
  WEFT_NEED_DEVICE();                                                                                  \
  if (const Status weft_captures_ = (*cuda::Device::open(0))->can_be_captured(); !weft_captures_.ok()) \
  GTEST_SKIP() << weft_captures_.message()

// ---- What the tests capture

using Values = std::vector<float>;

/// What rank `rank` gives in round `round`.
inline Values given(int rank, int round, size_t count) {
  Values v(count);
  for (size_t i = 0; i < count; ++i)
    v[i] = static_cast<float>((rank + 1) * (round + 2) + static_cast<int>(i % 7));
  return v;
}
inline Values sum_of(int size, int round, size_t count) {
  Values v(count);
  for (int r = 0; r < size; ++r) {
    const Values part = given(r, round, count);
    for (size_t i = 0; i < count; ++i) v[i] += part[i];
  }
  return v;
}
inline weftResult_t all_reduce(const DeviceArray<float>& send, const DeviceArray<float>& recv, size_t count,
                               weftComm_t comm, const DeviceStream& stream) {
  return weftAllReduce(send.data(), recv.data(), count, weftFloat, weftSum, comm, stream.weft());
}

/// Waits for the failure of a communicator.
inline weftResult_t failure_of(weftComm_t comm) {
  weftResult_t health = weftSuccess;
  for (int look = 0; health == weftSuccess && look < 20000; ++look) {
    EXPECT_EQ(weftCommGetAsyncError(comm, &health), weftSuccess);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return health;
}

}  // namespace weft::testing
