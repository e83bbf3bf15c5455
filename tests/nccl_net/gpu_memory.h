// Memory of the fake driver's devices, and host memory, behind one face for tests of the plugin; and the nets
// over which the plugin reaches such memory.
#pragma once

#include "cuda/device_memory.h"
#include "two_processes.h"

namespace weft::nccl_net_test {

/// libfabric over loopback with the fakes, and `more` of the environment. Where CUDA_UNDER_TEST names a real
/// driver, it is that, with the plugin as users have it, over the network that the environment chooses.
inline Net with(const std::string& name, const std::vector<std::pair<std::string, std::string>>& more,
                const std::string& library = WEFT_NCCL_NET_MUTANT) {
  if (const char* real = std::getenv("CUDA_UNDER_TEST"))
    return {name, {{"WEFT_NET", "ofi"}, {"WEFT_CUDA_LIBRARY", real}}, library_under_test()};
  Net net{name,
          {{"WEFT_NET", "ofi"},
           {"WEFT_PROVIDER", provider_under_test()},
           {"WEFT_SOCKET_IFNAME", "lo"},
           {"WEFT_CUDA_LIBRARY", WEFT_FAKE_CUDA},
           {"FAKE_GPU_NETWORK", "1"}},
          library};
  net.environment.insert(net.environment.end(), more.begin(), more.end());
  return net;
}
inline Net gpu_net() { return with("gpu", {}); }
/// Busy now and then, and without any order.
inline Net unordered_gpu_net() { return with("unordered_gpu", {{"MUTATION", "none"}}); }

/// Memory of some kind that is registered with a connection while it lives. It begins as all 0xee.
class Place {
 public:
  virtual ~Place() = default;
  virtual std::byte* data() = 0;
  virtual void* memory() const = 0;
  virtual std::vector<std::byte> get() const = 0;
  virtual void set(const std::vector<std::byte>& bytes, size_t at) = 0;

  /// Bytes of `seed` from `at` on.
  void fill(size_t bytes, uint64_t seed, size_t at = 0) {
    std::vector<std::byte> values(bytes);
    nccl_net_test::fill(values.data(), bytes, seed);
    set(values, at);
  }
  bool starts_with(size_t bytes, uint64_t seed, size_t at = 0) const {
    return nccl_net_test::holds(get().data() + at, bytes, seed);
  }
  /// These, and nothing after them.
  bool holds(size_t bytes, uint64_t seed) const {
    const std::vector<std::byte> values = get();
    return starts_with(bytes, seed) && all_are(values.data() + bytes, values.size() - bytes, std::byte{0xee});
  }
  bool is_untouched() const { return holds(0, 0); }
};

class OnHost final : public Place {
 public:
  static constexpr bool kOnGpu = false;
  OnHost(End& end, size_t bytes) : buffer_(end, bytes) {}
  std::byte* data() override { return buffer_.data(); }
  void* memory() const override { return buffer_.memory(); }
  std::vector<std::byte> get() const override { return {buffer_.data(), buffer_.data() + buffer_.size()}; }
  void set(const std::vector<std::byte>& bytes, size_t at) override {
    std::copy(bytes.begin(), bytes.end(), buffer_.data() + at);
  }

 private:
  mutable Buffer buffer_;
};

class OnGpu final : public Place {
 public:
  static constexpr bool kOnGpu = true;
  OnGpu(End& end, size_t bytes, int device = 0)
      : end_(end), bytes_(bytes), array_(std::vector<std::byte>(bytes, std::byte{0xee}), device) {
    if (bytes > 0) {
      EXPECT_EQ(end.host().register_memory(end.get(), data(), bytes, abi::kCudaMemory, &memory_),
                abi::kSuccess)
          << (logged().empty() ? "" : logged().back());
    }
  }
  ~OnGpu() override { deregister(); }
  void deregister() {
    void* memory = std::exchange(memory_, nullptr);
    if (!memory || !end_.get()) return;
    EXPECT_EQ(end_.host().deregister(end_.get(), memory), abi::kSuccess);
  }
  /// The memory itself goes.
  void free() { array_.free(); }
  std::byte* data() override { return array_.data(); }
  size_t size() const { return bytes_; }
  void* memory() const override { return memory_; }
  std::vector<std::byte> get() const override { return array_.get(); }
  void set(const std::vector<std::byte>& bytes, size_t at) override { array_.set(bytes, at); }

 private:
  End& end_;
  const size_t bytes_;
  testing::DeviceArray<std::byte> array_;
  void* memory_ = nullptr;
};

/// Which is over when it returns.
inline void flush(End& end, std::vector<void*> data, std::vector<int> bytes, std::vector<void*> memory) {
  void* request = &request;
  EXPECT_EQ(end.host().flush(end.get(), static_cast<int>(data.size()), data.data(), bytes.data(),
                             memory.data(), &request),
            abi::kSuccess);
  EXPECT_EQ(request, nullptr);
}

}  // namespace weft::nccl_net_test
