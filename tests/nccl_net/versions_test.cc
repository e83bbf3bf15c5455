// What every version of the ABI tells of a device and carries, and the longest message that there is.
#include "two_processes.h"

namespace weft::nccl_net_test {
namespace {

class Versions : public OverNets {};

TEST_P(Versions, TellAndCarryTheSame) {
  static constexpr int kParts = 8;
  static constexpr size_t kPart = 30'000;
  run(
      [](Process& self) {
        End end = self.connect();
        Buffer buffer(end, 300'000);
        for (const size_t bytes : {size_t{0}, size_t{100}, buffer.size()}) {
          fill(buffer.data(), bytes, bytes);
          EXPECT_EQ(finish(self.host(), send(end, buffer.data(), bytes, 1, buffer.memory())).at(0),
                    static_cast<int>(bytes));
        }
        std::vector<void*> requests;
        for (int i = kParts - 1; i >= 0; --i) {
          fill(buffer.data() + i * kPart, 20'000 + i, i);
          requests.push_back(send(end, buffer.data() + i * kPart, 20'000 + i, i, buffer.memory()));
        }
        for (void* request : requests) finish(self.host(), request);
        self.meet();
      },
      [](Process& self) {
        ASSERT_GE(self.host().devices(), 1);
        const abi::PropertiesV12 properties = self.host().properties(0);
        EXPECT_NE(std::string(properties.name), "");
        EXPECT_EQ(properties.memory, abi::kHostMemory);
        EXPECT_GT(properties.speed, 0);
        EXPECT_GT(properties.most_connections, 0);
        EXPECT_GE(properties.most_receives, 8);
        EXPECT_EQ(properties.offload_type, 0);
        if (self.version() >= 9) {
          EXPECT_EQ(properties.parts.count, 1);
          EXPECT_EQ(properties.parts.devices[0], 0);
          EXPECT_EQ(properties.longest_message, size_t{1} << 30);
        }
        EXPECT_EQ(properties.most_in_multi_request, self.version() >= 11 ? 1 : 0);
        EXPECT_EQ(properties.rail, self.version() >= 12 ? -1 : 0);
        End end = self.accept();
        Buffer buffer(end, 300'000);
        for (const size_t bytes : {size_t{0}, size_t{100}, buffer.size()}) {
          EXPECT_EQ(finish(self.host(), receive(end, buffer, 1)).at(0), static_cast<int>(bytes));
          EXPECT_TRUE(holds(buffer.data(), bytes, bytes));
          void* data = buffer.data();
          void* memory = buffer.memory();
          int size = static_cast<int>(bytes);
          void* request = &size;
          EXPECT_EQ(self.host().flush(end.get(), 1, &data, &size, &memory, &request), abi::kSuccess);
          EXPECT_EQ(request, nullptr);  // host memory needs none
        }
        std::vector<void*> data, memory(kParts, buffer.memory());
        for (int i = 0; i < kParts; ++i) data.push_back(buffer.data() + i * kPart);
        const std::vector<int> sizes =
            finish(self.host(),
                   receive(end, data, std::vector<size_t>(kParts, kPart), {0, 1, 2, 3, 4, 5, 6, 7}, memory));
        for (int i = 0; i < kParts; ++i) {
          EXPECT_EQ(sizes.at(i), 20'000 + i);
          EXPECT_TRUE(holds(buffer.data() + i * kPart, 20'000 + i, i)) << "part " << i;
        }
        self.meet();
      });
}

/// NCCL unloads the plugin with its last communicator. After the next init() it takes all devices that it
/// counts for physical ones, and makes the virtual ones again.
TEST_P(Versions, CountVirtualDevicesOnlyOnceTheyAreMadeAgain) {
  if (version() < 9) GTEST_SKIP() << "version 8 knows no virtual devices";
  run([this](Process& self) {
    const int physical = self.host().devices();
    const int pair = self.host().make_virtual_device({0, 0});
    if (version() >= 11) {
      const auto beside = PluginHost::open(net().library, version());
      EXPECT_EQ(beside->devices(), physical + 1) << "another communicator has taken them away";
    }
    EXPECT_EQ(self.host().finalize(), abi::kSuccess);

    const auto next = PluginHost::open(net().library, version());
    EXPECT_EQ(next->devices(), physical);
    EXPECT_EQ(next->properties(pair).parts.count, 2) << "an NCCL that does not unload the plugin uses it";
    EXPECT_EQ(next->make_virtual_device({0, 0, 0}), pair);
    EXPECT_EQ(next->properties(pair).parts.count, 3);
    EXPECT_EQ(next->make_virtual_device({0, 0}), pair + 1);
    EXPECT_EQ(next->devices(), physical + 2);
  });
}

INSTANTIATE_TEST_SUITE_P(Conformance, Versions,
                         ::testing::Combine(::testing::ValuesIn(real_nets()), ::testing::ValuesIn(kVersions)),
                         name_of_net);

class LongestMessage : public OverNets {};

TEST_P(LongestMessage, IsOneGiB) {
  // The provider of these tests takes more than the 30 s of wait_until() for a GiB.
  const size_t bytes = size_t{1} << (without_order(net()) ? 26 : 30);
  run(
      [bytes](Process& self) {
        End end = self.connect();
        Buffer buffer(end, bytes);
        fill(buffer.data(), bytes, 1);
        EXPECT_EQ(finish(self.host(), send(end, buffer.data(), bytes, 1, buffer.memory())).at(0),
                  static_cast<int>(bytes));
        self.meet();
      },
      [bytes](Process& self) {
        End end = self.accept();
        Buffer buffer(end, bytes);
        EXPECT_EQ(finish(self.host(), receive(end, buffer, 1)).at(0), static_cast<int>(bytes));
        EXPECT_TRUE(holds(buffer.data(), bytes, 1));
        self.meet();
      });
}

INSTANTIATE_TEST_SUITE_P(Conformance, LongestMessage,
                         ::testing::Combine(::testing::ValuesIn(real_nets()), ::testing::Values(8, 12)),
                         name_of_net);

}  // namespace
}  // namespace weft::nccl_net_test
