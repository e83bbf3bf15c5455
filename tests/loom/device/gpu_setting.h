// The GPU's table of operators on the fake driver, and a test's model there.
#pragma once

#include <deque>
#include <span>

#include "device/cuda/compute.h"
#include "device/cuda/operators.h"
#include "loom/device/emulated_kernels.h"
#include "loom/device/fakes.h"
#include "model/setting.h"

namespace loom::testing {

/// A test's device with kernels and products.
class OnGpuTable : public OnFakeDevice {
 protected:
  void SetUp() override {
    OnFakeDevice::SetUp();
    add_emulated_kernels();
    // The beginning of a fat binary, which is all that the fake driver looks at: it has the emulator's
    // kernels. A GPU takes the library's.
    static constexpr uint32_t kFatBinary[] = {0xba55ed50, 0};
    static const cuda::KernelImage kEmulated[] = {{"emulated", std::as_bytes(std::span(kFatBinary))}};
    auto loaded = cuda::Kernels::load(*device, fake.is_fake() ? std::span(kEmulated) : cuda::kernel_images());
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    kernels = loaded.take();
    products = cuda::Products::create(*device, {.prefers_first = true}).take();
    compute = cuda::Compute::create(*device, *queue, *kernels, *products).take();
  }
  void TearDown() override {
    EXPECT_TRUE(queue->drain().ok()) << queue->status().message();
    OnFakeDevice::TearDown();
  }

  std::unique_ptr<cuda::Kernels> kernels;
  std::unique_ptr<cuda::Products> products;
  std::unique_ptr<cuda::Compute> compute;
};

/// Device memory, which is NaN until it is written.
template <typename T>
class GpuSetting final : public Setting<T> {
 public:
  GpuSetting(cuda::Device& device, device::Queue& queue, cuda::Compute& compute)
      : device_(device), queue_(queue), compute_(compute) {}
  device::Context context() override { return compute_; }
  const ops::Operators<T>& table() const override { return cuda::operators<T>(); }
  const ops::FusedOperators<T>* fused() const override { return &cuda::fused_operators<T>(); }
  bool is_fixed() const override { return true; }
  std::byte* take(int64_t bytes) override {
    if (bytes == 0) return nullptr;
    std::byte* const there = memory_.emplace_back(device_.allocate(bytes).take()).data();
    queue_.fill(there, std::byte{0xff}, bytes);
    return there;
  }
  void write(void* to, const void* from, int64_t bytes) override {
    if (bytes == 0) return;
    const device::Memory pinned = device_.allocate_pinned(bytes).take();
    std::memcpy(pinned.data(), from, static_cast<size_t>(bytes));
    queue_.copy(to, pinned.data(), bytes);
    EXPECT_TRUE(queue_.drain().ok()) << queue_.status().message();
  }
  void read(void* to, const void* from, int64_t bytes) override {
    if (bytes == 0) return;
    const device::Memory pinned = device_.allocate_pinned(bytes).take();
    queue_.copy(pinned.data(), from, bytes);
    EXPECT_TRUE(queue_.drain().ok()) << queue_.status().message();
    std::memcpy(to, pinned.data(), static_cast<size_t>(bytes));
  }

 private:
  cuda::Device& device_;
  device::Queue& queue_;
  cuda::Compute& compute_;
  std::deque<device::Memory> memory_;
};

}  // namespace loom::testing
