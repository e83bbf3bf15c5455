// The fakes that these tests run on, and what they can be told beyond the interfaces that they stand in for.
// Tests that tell them nothing run on a GPU as well, where WEFT_CUDA_LIBRARY names NVIDIA's driver: it knows
// nothing of races.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "cuda/fake_driver/control.h"
#include "device/cuda/device.h"

namespace loom::testing {

/// The fake driver's controls (cuda/fake_driver/control.h), all null with another driver.
struct FakeDriver {
  decltype(&fake_cuda_fail_after) fail_after = nullptr;
  decltype(&fake_cuda_bytes_behind) bytes_behind = nullptr;
  decltype(&fake_cuda_calls) calls = nullptr;
  decltype(&fake_cuda_break) break_device = nullptr;
  decltype(&fake_cuda_add_kernel) add_kernel = nullptr;
  decltype(&fake_cuda_hold_stream) hold_stream = nullptr;
  decltype(&fake_cuda_leave_out_wait) leave_out_wait = nullptr;

  FakeDriver() {
    (void)cuda::driver();  // loads it
    void* const library = dlopen(std::getenv("WEFT_CUDA_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) std::abort();
    is_fake_ = dlsym(library, "fake_cuda_calls") != nullptr;
    if (!is_fake_) return;
    find(library, "fake_cuda_fail_after", fail_after);
    find(library, "fake_cuda_bytes_behind", bytes_behind);
    find(library, "fake_cuda_calls", calls);
    find(library, "fake_cuda_break", break_device);
    find(library, "fake_cuda_add_kernel", add_kernel);
    find(library, "fake_cuda_hold_stream", hold_stream);
    find(library, "fake_cuda_leave_out_wait", leave_out_wait);
    find(library, "fake_cuda_follow_races", follow_races_);
    find(library, "fake_cuda_take_race", take_race_);
  }
  bool is_fake() const { return is_fake_; }
  void follow_races(int on) const {
    if (is_fake_) follow_races_(on);
  }
  /// The sentence of the first race since it was asked last, "" if there was none.
  std::string race() const {
    char text[512] = "";
    if (is_fake_) take_race_(text, sizeof text);
    return text;
  }

 private:
  template <typename Function>
  static void find(void* library, const char* name, Function& into) {
    into = reinterpret_cast<Function>(dlsym(library, name));
    if (into == nullptr) std::abort();
  }

  bool is_fake_ = false;
  decltype(&fake_cuda_follow_races) follow_races_ = nullptr;
  decltype(&fake_cuda_take_race) take_race_ = nullptr;
};

/// The device of a test, and one queue of it. Races between streams fail the test, unless it takes them.
class OnFakeDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = cuda::Device::open(0);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    device = opened.take();
    queue = new_queue();
    fake.follow_races(1);
  }
  void TearDown() override {
    queue.reset();
    EXPECT_EQ(fake.race(), "");
    fake.follow_races(0);
  }

  /// Lets a device work again after an error that ends all its work; the queues it had are of no use.
  void repair() {
    fake.break_device(0, 0);
    queue = new_queue();
  }
  std::unique_ptr<device::Queue> new_queue() const { return device->make_queue().take(); }
  std::unique_ptr<device::Event> new_event() const { return device->make_event().take(); }
  static cuda::Queue& cuda_queue(device::Queue& queue) { return static_cast<cuda::Queue&>(queue); }

  /// An array of the device with these values.
  template <typename T>
  device::Memory upload(const std::vector<T>& values) const {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    device::Memory there = device->allocate(bytes).take(), pinned = device->allocate_pinned(bytes).take();
    std::memcpy(pinned.data(), values.data(), static_cast<size_t>(bytes));
    queue->copy(there.data(), pinned.data(), bytes);
    EXPECT_TRUE(queue->drain().ok()) << queue->status().message();
    return there;
  }
  /// The device's values there, once the test's queue is empty.
  template <typename T>
  std::vector<T> download(const T* from, int64_t count) const {
    const auto bytes = count * static_cast<int64_t>(sizeof(T));
    const device::Memory pinned = device->allocate_pinned(bytes).take();
    queue->copy(pinned.data(), from, bytes);
    EXPECT_TRUE(queue->drain().ok()) << queue->status().message();
    std::vector<T> values(static_cast<size_t>(count));
    std::memcpy(values.data(), pinned.data(), static_cast<size_t>(bytes));
    return values;
  }

  FakeDriver fake;
  std::unique_ptr<cuda::Device> device;
  std::unique_ptr<device::Queue> queue;
};

}  // namespace loom::testing
