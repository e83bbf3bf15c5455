// GPU memory that is freed while it is registered, and used all the same. A card holds the pages of what is
// registered and works on them, so it cannot notice; the driver, where it is asked, does.
#include "gpu_memory.h"

namespace weft::nccl_net_test::gpu_freed_test {
namespace {

class GpuFreed : public OverNets {};

constexpr size_t kBytes = 300'000;

abi::Result end_of(PluginHost& host, void* request) {
  abi::Result result = abi::kSuccess;
  EXPECT_TRUE(wait_until([&] { return tested(host, request, nullptr, &result); })) << "a request never ends";
  return result;
}

/// What a flush of the place says.
abi::Result flushed(End& end, void* data, void* memory) {
  int bytes = static_cast<int>(kBytes);
  void* request = nullptr;
  return end.host().flush(end.get(), 1, &data, &bytes, &memory, &request);
}

// Its message waits for the receive; by then the memory is gone.
TEST_P(GpuFreed, FreedSendSaysSo) {
  run(
      [](Process& self) {
        End end = self.connect();
        OnGpu buffer(end, kBytes);
        void* request = send(end, buffer.data(), kBytes, 1, buffer.memory());
        buffer.free();
        self.meet();
        EXPECT_EQ(end_of(self.host(), request), abi::kInvalidArgument);
        EXPECT_TRUE(has_logged("is no memory of a CUDA device, or was freed"));
        end.close();  // as NCCL does, by which the other side hears of it
        self.meet();
      },
      [](Process& self) {
        End end = self.accept();
        OnGpu buffer(end, kBytes);
        self.meet();
        void* request = receive(end, {buffer.data()}, {kBytes}, {1}, {buffer.memory()});
        EXPECT_EQ(end_of(self.host(), request), abi::kRemoteError);
        EXPECT_TRUE(buffer.is_untouched());
        self.meet();
      });
}

// The network writes into pages that nobody has any more, and the flush tells. What comes next for memory
// that is there arrives.
TEST_P(GpuFreed, FreedReceiveSaysSo) {
  run(
      [](Process& self) {
        End end = self.connect();
        OnGpu buffer(end, kBytes);
        buffer.fill(kBytes, 4);
        for (int tag = 1; tag <= 3; ++tag) {
          self.meet();
          finish(self.host(), send(end, buffer.data(), kBytes, tag, buffer.memory()));
        }
        self.meet();
      },
      [](Process& self) {
        End end = self.accept();
        OnGpu gone(end, kBytes), replaced(end, kBytes), there(end, kBytes);
        const auto take = [&](std::byte* into, void* memory, int tag) {
          self.meet();
          return finish(self.host(), receive(end, {into}, {kBytes}, {tag}, {memory})).at(0);
        };
        std::byte* const was = gone.data();
        gone.free();
        EXPECT_EQ(take(was, gone.memory(), 1), static_cast<int>(kBytes)) << "the network holds the pages";
        EXPECT_EQ(flushed(end, was, gone.memory()), abi::kInvalidUsage);
        EXPECT_TRUE(has_logged("was freed while it was registered"));

        std::byte* const address = replaced.data();
        replaced.free();
        const testing::DeviceArray<std::byte> other(std::vector<std::byte>(kBytes, std::byte{0x77}));
        EXPECT_EQ(take(address, replaced.memory(), 2), static_cast<int>(kBytes));
        EXPECT_EQ(flushed(end, address, replaced.memory()), abi::kInvalidUsage) << "of other memory there";
        EXPECT_EQ(other.get(), std::vector<std::byte>(kBytes, std::byte{0x77}));

        EXPECT_EQ(take(there.data(), there.memory(), 3), static_cast<int>(kBytes));
        EXPECT_EQ(flushed(end, there.data(), there.memory()), abi::kSuccess);
        EXPECT_TRUE(there.holds(kBytes, 4));
        self.meet();
      });
}

// The card has the pages, and sends what was in them. (The receiver does not poll when the first bytes have
// come, so that the rest is still to be read; if one poll took in everything, this tests nothing.)
TEST_P(GpuFreed, ASendThatIsUnderWayArrives) {
  constexpr size_t kLong = 32 << 20;  // more than sockets hold
  run(
      [](Process& self) {
        End end = self.connect();
        OnGpu buffer(end, kLong);
        buffer.fill(kLong, 5);
        void* request = send(end, buffer.data(), kLong, 1, buffer.memory());
        abi::Result result = abi::kSuccess;
        bool over = false;
        EXPECT_TRUE(wait_until([&] {
          over = tested(self.host(), request, nullptr, &result);
          return over || self.has_been_told();
        }));
        buffer.free();
        self.meet();
        EXPECT_EQ(over ? result : end_of(self.host(), request), abi::kSuccess);
        self.meet();
      },
      [](Process& self) {
        End end = self.accept();
        OnGpu buffer(end, kLong);
        void* request = receive(end, {buffer.data()}, {kLong}, {1}, {buffer.memory()});
        abi::Result result = abi::kSuccess;
        bool over = false;
        EXPECT_TRUE(wait_until([&] {
          over = tested(self.host(), request, nullptr, &result);
          return over || buffer.get().front() != std::byte{0xee};
        }));
        self.meet();
        EXPECT_EQ(over ? result : end_of(self.host(), request), abi::kSuccess);
        EXPECT_TRUE(buffer.holds(kLong, 5));
        self.meet();
      });
}

INSTANTIATE_TEST_SUITE_P(Conformance, GpuFreed,
                         ::testing::Combine(::testing::Values(gpu_net()), ::testing::Values(8, 12)),
                         name_of_net);

}  // namespace
}  // namespace weft::nccl_net_test::gpu_freed_test
