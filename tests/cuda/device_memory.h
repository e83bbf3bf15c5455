// Device memory and streams for tests, over the very driver that the library loads: the fake one where
// WEFT_CUDA_LIBRARY names it, a real one elsewhere.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/ranks_at_work.h"
#include "base/settings.h"
#include "cuda/fake_driver/control.h"
#include "device/cuda/device.h"
#include "weft/weft.h"

namespace weft::testing {

namespace cuda = device::cuda;

/// What ranks ask of their communicators.
inline void on_device(weftConfig_t& config) { config.device = 0; }
inline void on_device_for_a_second(weftConfig_t& config) {
  config.device = 0;
  config.timeoutSeconds = 1;
}

#define CUDA_OK(call)                                                           \
  do {                                                                          \
    const ::weft::Status cuda_ok_ = ::weft::device::cuda::check((call), #call); \
    ASSERT_TRUE(cuda_ok_.ok()) << cuda_ok_.message();                           \
  } while (0)

inline const cuda::Driver& driver() { return **cuda::driver(); }

/// Skips the calling test where there is no device, with the reason.
#define WEFT_NEED_DEVICE()                                                    \
  if (auto weft_driver_ = ::weft::device::cuda::driver(); !weft_driver_.ok()) \
  GTEST_SKIP() << weft_driver_.status().message()

class DeviceStream {
 public:
  explicit DeviceStream(int ordinal = 0) : device_(**cuda::Device::open(ordinal)) {
    const cuda::Scope scope(device_);
    EXPECT_EQ(driver().stream_create(&stream_, cuda::kStreamNonBlocking), cuda::kSuccess);
  }
  ~DeviceStream() {
    const cuda::Scope scope(device_);
    (void)driver().stream_destroy(stream_);
  }
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;

  weftStream_t weft() const { return reinterpret_cast<weftStream_t>(stream_); }
  cuda::StreamHandle* get() const { return stream_; }
  void synchronize() const {
    const cuda::Scope scope(device_);
    EXPECT_EQ(driver().stream_synchronize(stream_), cuda::kSuccess);
  }

 private:
  cuda::Device& device_;
  cuda::StreamHandle* stream_ = nullptr;
};

/// CUDA's handle for the default stream of the calling thread.
inline cuda::StreamHandle* stream_of_thread() {
  return reinterpret_cast<cuda::StreamHandle*>(uintptr_t{2});  // CU_STREAM_PER_THREAD
}

/// Makes a stream stand still until it is let go on.
class HeldStream {
 public:
  explicit HeldStream(const DeviceStream& stream) : HeldStream(stream.get()) {}
  explicit HeldStream(cuda::StreamHandle* stream) : flags_(**(*cuda::Device::open(0))->take_flags()) {
    cuda::Device& device = **cuda::Device::open(0);
    const cuda::Scope scope(device);
    held_ = driver().stream_wait_value(stream, flags_.address_of_done(), ++flags_.turn,
                                       cuda::kWaitValueGeq) == cuda::kSuccess;
  }
  ~HeldStream() { let_go(); }
  HeldStream(const HeldStream&) = delete;
  HeldStream& operator=(const HeldStream&) = delete;

  /// False without stream memory operations.
  bool held() const { return held_; }
  void let_go() { std::atomic_ref(flags_.done).store(flags_.turn); }

 private:
  cuda::Device::Flags& flags_;
  bool held_ = false;
};

/// What a stream has so far.
class StreamMark {
 public:
  explicit StreamMark(const DeviceStream& stream) : StreamMark(stream.get()) {}
  explicit StreamMark(cuda::StreamHandle* stream) {
    const cuda::Scope scope(**cuda::Device::open(0));
    EXPECT_EQ(driver().event_create(&event_, cuda::kEventDisableTiming), cuda::kSuccess);
    EXPECT_EQ(driver().event_record(event_, stream), cuda::kSuccess);
  }
  ~StreamMark() {
    const cuda::Scope scope(**cuda::Device::open(0));
    (void)driver().event_destroy(event_);
  }
  StreamMark(const StreamMark&) = delete;
  StreamMark& operator=(const StreamMark&) = delete;

  bool reached() const {
    const cuda::Scope scope(**cuda::Device::open(0));
    return driver().event_query(event_) == cuda::kSuccess;
  }

 private:
  cuda::EventHandle* event_ = nullptr;
};

/// Whether a condition is met within a time that is far longer than anything takes.
inline bool eventually(const std::function<bool()>& met) {
  for (int look = 0; look < 20000; ++look) {
    if (met()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

/// Frees device memory when no ranks run as threads of this process any more: see ranks_at_work.h.
class DeferredFrees {
 public:
  static void add(cuda::Device& device, cuda::DevicePointer memory) {
    const std::lock_guard guard(mutex_);
    waiting_.emplace_back(&device, memory);
    free_if_ranks_rest();
  }
  static void free_now(cuda::Device& device, cuda::DevicePointer memory) {
    const cuda::Scope scope(device);
    (void)driver().mem_free(memory);
  }
  /// Of what was left when ranks had ended.
  static void catch_up() {
    const std::lock_guard guard(mutex_);
    free_if_ranks_rest();
  }

 private:
  static void free_if_ranks_rest() {
    if (RanksAtWork::any()) return;
    for (const auto& [device, memory] : std::exchange(waiting_, {})) free_now(*device, memory);
  }
  static inline std::mutex mutex_;
  static inline std::vector<std::pair<cuda::Device*, cuda::DevicePointer>> waiting_;
};

/// An array in device memory, which is freed when it goes, or once no rank is at work.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count, int ordinal = 0)
      : device_(**cuda::Device::open(ordinal)), count_(count) {
    DeferredFrees::catch_up();
    const cuda::Scope scope(device_);
    cuda::DevicePointer pointer = 0;
    if (count > 0) {
      EXPECT_EQ(driver().mem_alloc(&pointer, count * sizeof(T)), cuda::kSuccess);
    }
    data_ = reinterpret_cast<T*>(static_cast<uintptr_t>(pointer));
  }
  explicit DeviceArray(const std::vector<T>& values, int ordinal = 0) : DeviceArray(values.size(), ordinal) {
    set(values);
  }
  ~DeviceArray() {
    if (data_) DeferredFrees::add(device_, address());
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  /// At once.
  void free() {
    if (data_) DeferredFrees::free_now(device_, address());
    data_ = nullptr;
  }
  void set(const std::vector<T>& values, size_t first = 0) {
    copy(address() + first * sizeof(T), reinterpret_cast<uintptr_t>(values.data()),
         values.size() * sizeof(T));
  }
  std::vector<T> get() const {
    std::vector<T> values(count_);
    copy(reinterpret_cast<uintptr_t>(values.data()), address(), count_ * sizeof(T));
    return values;
  }

 private:
  cuda::DevicePointer address() const { return reinterpret_cast<uintptr_t>(data_); }
  void copy(cuda::DevicePointer to, cuda::DevicePointer from, size_t bytes) const {
    if (bytes == 0) return;
    const cuda::Scope scope(device_);
    EXPECT_EQ(driver().memcpy_async(to, from, bytes, nullptr), cuda::kSuccess);
    EXPECT_EQ(driver().stream_synchronize(nullptr), cuda::kSuccess);
  }

  cuda::Device& device_;
  size_t count_;
  T* data_ = nullptr;
};

/// The fake driver's controls; `valid` is false with a real driver.
struct FakeControls {
  decltype(&fake_cuda_fail_after) fail_after = nullptr;
  decltype(&fake_cuda_calls) calls = nullptr;
  decltype(&fake_cuda_break) break_device = nullptr;
  decltype(&fake_cuda_hold_kernels) hold_kernels = nullptr;
  decltype(&fake_cuda_block) block = nullptr;
  decltype(&fake_cuda_largest_grid) largest_grid = nullptr;
  decltype(&fake_cuda_calls_of) calls_of = nullptr;
  bool valid() const { return calls != nullptr; }

  FakeControls() {
    const std::string& path = settings().cuda_library;
    void* library = path.empty() ? nullptr : dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    if (!library) return;
    fail_after = reinterpret_cast<decltype(fail_after)>(dlsym(library, "fake_cuda_fail_after"));
    break_device = reinterpret_cast<decltype(break_device)>(dlsym(library, "fake_cuda_break"));
    hold_kernels = reinterpret_cast<decltype(hold_kernels)>(dlsym(library, "fake_cuda_hold_kernels"));
    block = reinterpret_cast<decltype(block)>(dlsym(library, "fake_cuda_block"));
    largest_grid = reinterpret_cast<decltype(largest_grid)>(dlsym(library, "fake_cuda_largest_grid"));
    calls_of = reinterpret_cast<decltype(calls_of)>(dlsym(library, "fake_cuda_calls_of"));
    calls = reinterpret_cast<decltype(calls)>(dlsym(library, "fake_cuda_calls"));
  }
};
#define WEFT_NEED_FAKE(controls) \
  WEFT_NEED_DEVICE();            \
  const FakeControls controls;   \
  if (!controls.valid()) GTEST_SKIP() << "only the fake driver can be told to do this"

}  // namespace weft::testing
