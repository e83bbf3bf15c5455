// Several communicators of one process at once, each with a context and a thread of its own, as NCCL has them
// from version 11 of the interface on: they meet, send both ways and end without regard to one another.
#include "two_processes.h"

namespace weft::nccl_net_test {
namespace {

class Communicators : public OverNets {};

constexpr int kCommunicators = 3, kMessages = 40;
constexpr size_t kMostBytes = 120'000;

size_t size_of(uint64_t seed) { return mix(seed) % (seed % 3 ? 300 : kMostBytes); }

/// One communicator's thread: `handle` is the other process's.
struct Communicator {
  std::unique_ptr<PluginHost> host;
  void* listener = nullptr;
  char mine[abi::kHandleBytes] = {};
  char handle[abi::kHandleBytes] = {};

  void run(int number) {
    void *sender = nullptr, *receiver = nullptr;
    ASSERT_TRUE(wait_until([&] {
      abi::Result result = abi::kSuccess;
      if (!sender) result = host->connect(0, handle, &sender);
      if (!receiver && result == abi::kSuccess) result = host->accept(listener, &receiver);
      return result != abi::kSuccess || (sender && receiver);
    }));
    ASSERT_TRUE(sender && receiver);
    EXPECT_EQ(host->close_listener(listener), abi::kSuccess);
    {
      End out(*host, End::Side::sender, sender), in(*host, End::Side::receiver, receiver);
      Buffer source(out, kMostBytes), target(in, kMostBytes);
      for (int i = 0; i < kMessages; ++i) exchange(out, in, source, target, number * 1000 + i);
      target.deregister(), source.deregister();
    }
    EXPECT_EQ(host->finalize(), abi::kSuccess);
  }

  static void exchange(End& out, End& in, Buffer& source, Buffer& target, uint64_t seed) {
    const size_t bytes = size_of(seed);
    fill(source.data(), bytes, seed);
    void* received = receive(in, target, 5);
    void* sent = send(out, source.data(), bytes, 5, source.memory());
    std::vector<int> sizes;
    EXPECT_TRUE(wait_until([&] {
      abi::Result result = abi::kSuccess;
      if (sent && tested(out.host(), sent, nullptr, &result)) sent = nullptr;
      if (received && tested(in.host(), received, &sizes, &result)) received = nullptr;
      EXPECT_EQ(result, abi::kSuccess);
      return !sent && !received;
    }));
    EXPECT_EQ(sizes.at(0), static_cast<int>(bytes));
    EXPECT_TRUE(holds(target.data(), bytes, seed)) << "message " << seed;
  }
};

TEST_P(Communicators, WorkAtOnceFromThreadsOfTheirOwn) {
  const std::string library = net().library;
  const auto both = [&](Process& self) {
    std::vector<Communicator> all(kCommunicators);
    for (Communicator& each : all) {
      each.host = PluginHost::open(library, version());
      ASSERT_NE(each.host, nullptr);
      ASSERT_EQ(each.host->listen(0, each.mine, &each.listener), abi::kSuccess);
      self.tell(each.mine, sizeof each.mine);
      self.hear(each.handle, sizeof each.handle);
    }
    std::vector<std::thread> threads;
    for (int i = 0; i < kCommunicators; ++i)
      threads.emplace_back([&all, i] { all[static_cast<size_t>(i)].run(i); });
    for (std::thread& thread : threads) thread.join();
    self.meet();
  };
  run(both, both);
}

INSTANTIATE_TEST_SUITE_P(Conformance, Communicators,
                         ::testing::Combine(::testing::ValuesIn(nets()), ::testing::Values(8, 11, 12)),
                         name_of_net);

}  // namespace
}  // namespace weft::nccl_net_test
