// GPU memory that is registered by a dma-buf, as NCCL does where the properties say so: over a network that
// takes nothing else, through a plugin that is compiled with a younger libfabric's declarations.
#include "gpu_memory.h"

namespace weft::nccl_net_test::gpu_file_test {
namespace {

class GpuFile : public OverNets {};

constexpr size_t kBefore = 3 * 4096 + 256, kBytes = 150'000, kAfter = 5000;
constexpr std::byte kUntouched{0xee};

/// Memory in the middle of an allocation, registered by the allocation's file, which is closed afterwards.
class InFile {
 public:
  explicit InFile(End& end)
      : end_(end), whole_(std::vector<std::byte>(kBefore + kBytes + kAfter, kUntouched)) {
    const testing::cuda::Scope scope(**testing::cuda::Device::open(0));
    auto made = testing::cuda::make_dma_buf(whole_.data(), kBefore + kBytes + kAfter);
    EXPECT_TRUE(made.ok());
    if (!made.ok()) return;
    EXPECT_EQ(end.host().register_dma_buf(end.get(), data(), kBytes, abi::kCudaMemory, made->offset + kBefore,
                                          made->file.get(), &memory_),
              abi::kSuccess)
        << (logged().empty() ? "" : logged().back());
  }
  std::byte* data() const { return whole_.data() + kBefore; }
  void* memory() const { return memory_; }
  void fill(uint64_t seed) {
    std::vector<std::byte> bytes(kBytes);
    nccl_net_test::fill(bytes.data(), kBytes, seed);
    whole_.set(bytes, kBefore);
  }
  bool holds(uint64_t seed) const {
    const std::vector<std::byte> bytes = whole_.get();
    return nccl_net_test::holds(bytes.data() + kBefore, kBytes, seed) &&
           all_are(bytes.data(), kBefore, kUntouched) &&
           all_are(bytes.data() + kBefore + kBytes, kAfter, kUntouched);
  }
  void deregister() { EXPECT_EQ(end_.host().deregister(end_.get(), memory_), abi::kSuccess); }

 private:
  End& end_;
  testing::DeviceArray<std::byte> whole_;
  void* memory_ = nullptr;
};

TEST_P(GpuFile, RegistersMemoryAtAnOffset) {
  run(
      [](Process& self) {
        End end = self.connect();
        InFile source(end);
        source.fill(9);
        finish(self.host(), send(end, source.data(), kBytes, 1, source.memory()));
        source.deregister();
        self.meet();
      },
      [](Process& self) {
        EXPECT_EQ(self.host().properties(0).memory, abi::kHostMemory | abi::kCudaMemory | abi::kDmaBuf);
        End end = self.accept();
        InFile target(end);
        void* request = receive(end, {target.data()}, {kBytes}, {1}, {target.memory()});
        EXPECT_EQ(finish(self.host(), request).at(0), static_cast<int>(kBytes));
        flush(end, {target.data()}, {static_cast<int>(kBytes)}, {target.memory()});
        EXPECT_TRUE(target.holds(9));
        target.deregister();
        void* none = nullptr;
        EXPECT_EQ(
            self.host().register_dma_buf(end.get(), target.data(), kBytes, abi::kCudaMemory, 0, -1, &none),
            abi::kInvalidUsage);
        EXPECT_TRUE(has_logged("as a dma-buf: "));
        EXPECT_EQ(none, nullptr);
        self.meet();
      });
}

INSTANTIATE_TEST_SUITE_P(Conformance, GpuFile,
                         ::testing::Combine(::testing::Values(with("files", {{"FAKE_GPU_NETWORK", "files"}},
                                                                   WEFT_NCCL_NET_YOUNGER)),
                                            ::testing::ValuesIn(kVersions)),
                         name_of_net);

}  // namespace
}  // namespace weft::nccl_net_test::gpu_file_test
