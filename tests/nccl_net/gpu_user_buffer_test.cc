// User buffers, as NCCL 2.20 to 2.22 register them where the properties say that registrations are global:
// once with a connection of the process to itself, then with each connection that uses a part of them, for
// one transfer. NCCL then sends all that is left of a buffer, to a receive of whatever length there is, and
// goes on behind what test() says to have been sent.
#include "gpu_memory.h"

namespace weft::nccl_net_test::gpu_user_buffer_test {
namespace {

class GpuUserBuffer : public OverNets {};

constexpr size_t kBytes = 1'000'003, kRoom = 300'000;

/// Receives in pieces until all is there.
template <typename Target>
void receive_in_pieces(Process& self) {
  End end = self.accept();
  std::vector<std::byte> whole;
  while (whole.size() < kBytes) {
    Target bounce(end, kRoom);
    void* request = receive(end, {bounce.data()}, {kRoom}, {3}, {bounce.memory()});
    const std::vector<int> bytes = finish(self.host(), request);
    ASSERT_FALSE(bytes.empty());
    ASSERT_EQ(bytes[0], static_cast<int>(std::min(kRoom, kBytes - whole.size())));
    flush(end, {bounce.data()}, {bytes[0]}, {bounce.memory()});
    const std::vector<std::byte> piece = bounce.get();
    whole.insert(whole.end(), piece.begin(), piece.begin() + bytes[0]);
  }
  EXPECT_TRUE(holds(whole.data(), kBytes, 7));
  self.meet();
}

void send_all_that_is_left(Process& self) {
  End end = self.connect();
  OnGpu buffer(end, kBytes);
  buffer.fill(kBytes, 7);
  for (size_t at = 0; at < kBytes;) {
    void* request = send(end, buffer.data() + at, kBytes - at, 3, buffer.memory());
    const std::vector<int> bytes = finish(self.host(), request);
    ASSERT_FALSE(bytes.empty());
    ASSERT_EQ(bytes[0], static_cast<int>(std::min(kRoom, kBytes - at)));
    at += static_cast<size_t>(bytes[0]);
  }
  self.meet();
}

TEST_P(GpuUserBuffer, IsCutToReceivesOfAGpuAndGoesOnBehindThem) {
  run(send_all_that_is_left, receive_in_pieces<OnGpu>);
}
TEST_P(GpuUserBuffer, IsCutToReceivesOfAHostAndGoesOnBehindThem) {
  run(send_all_that_is_left, receive_in_pieces<OnHost>);
}

// NCCL registers GPU memory alone, so that host memory which is too long is a mistake.
TEST_P(GpuUserBuffer, OfAHostThatIsTooLongFailsOnBothSides) {
  const auto fails = [](Process& self, void* request, const std::string& how) {
    abi::Result result = abi::kSuccess;
    EXPECT_TRUE(wait_until([&] { return tested(self.host(), request, nullptr, &result); }));
    EXPECT_EQ(result, abi::kInvalidUsage);
    EXPECT_TRUE(has_logged("a message of 300000 bytes with tag 1 " + how + " a receive of 200000 bytes"));
    self.meet();
  };
  run(
      [&](Process& self) {
        End end = self.connect();
        OnHost buffer(end, 300'000);
        fails(self, send(end, buffer.data(), 300'000, 1, buffer.memory()), "was sent to");
      },
      [&](Process& self) {
        End end = self.accept();
        OnGpu buffer(end, 300'000);
        fails(self, receive(end, {buffer.data()}, {200'000}, {1}, {buffer.memory()}), "came for");
        EXPECT_TRUE(buffer.is_untouched());
      });
}

/// A connection of the process to itself.
std::pair<End, End> loopback(PluginHost& host) {
  char handle[abi::kHandleBytes] = {};
  void *listener = nullptr, *sender = nullptr, *receiver = nullptr;
  EXPECT_EQ(host.listen(0, handle, &listener), abi::kSuccess);
  EXPECT_TRUE(wait_until([&] {
    abi::Result result = abi::kSuccess;
    if (!sender) result = host.connect(0, handle, &sender);
    if (!receiver && result == abi::kSuccess) result = host.accept(listener, &receiver);
    EXPECT_EQ(result, abi::kSuccess);
    return sender && receiver;
  }));
  EXPECT_EQ(host.close_listener(listener), abi::kSuccess);
  return {End(host, End::Side::sender, sender), End(host, End::Side::receiver, receiver)};
}

// The network registers three times for each process: a block to try it with, by a probe and by the endpoint,
// and the user's buffer. Whatever registers a part of that buffer finds it known.
TEST_P(GpuUserBuffer, IsRegisteredOnceForAllConnections) {
  constexpr int kUses = 20;
  constexpr size_t kPart = 40'000;
  const auto use = [](Process& self, End end, bool sends) {
    auto [from_here, to_here] = loopback(self.host());
    OnGpu whole(from_here, kUses * kPart);
    if (sends) whole.fill(kUses * kPart, 5);
    for (size_t at = 0; at < kUses * kPart; at += kPart) {
      void* memory = nullptr;
      ASSERT_EQ(self.host().register_memory(end.get(), whole.data() + at, kPart, abi::kCudaMemory, &memory),
                abi::kSuccess)
          << logged().back();
      finish(self.host(), sends ? send(end, whole.data() + at, kPart, 2, memory)
                                : receive(end, {whole.data() + at}, {kPart}, {2}, {memory}));
      EXPECT_EQ(self.host().deregister(end.get(), memory), abi::kSuccess);
    }
    EXPECT_TRUE(whole.holds(kUses * kPart, 5));
    whole.deregister();
    self.meet();
  };
  const Net net = with("few_registrations", {{"FAKE_GPU_REGISTRATIONS", "3"}});
  run_two(
      version(), net, [&](Process& self) { use(self, self.connect(), true); },
      [&](Process& self) { use(self, self.accept(), false); });
}

INSTANTIATE_TEST_SUITE_P(Conformance, GpuUserBuffer,
                         ::testing::Combine(::testing::Values(gpu_net(), unordered_gpu_net()),
                                            ::testing::Values(8, 12)),
                         name_of_net);

}  // namespace
}  // namespace weft::nccl_net_test::gpu_user_buffer_test
