// One-sided operations on GPU memory: puts into windows and waits for signals, in the order of CUDA streams.
#include <deque>
#include <numeric>
#include <string>

#include "api/ranks.h"
#include "cuda/device_memory.h"

namespace weft::testing::windows_test {
namespace {

using Values = std::vector<float>;

Values filled(int from, int to, size_t count) {
  Values values(count);
  std::iota(values.begin(), values.end(), static_cast<float>(from * 1000 + to * 10));
  return values;
}

void on_device(weftConfig_t& config) { config.device = 0; }

struct DeviceWindows : ::testing::TestWithParam<Nodes> {
  void SetUp() override { WEFT_NEED_DEVICE(); }
};

// Every rank puts into every window, also its own; the wait and the copy back stand in one stream.
TEST_P(DeviceWindows, TakeBlocksOfAllRanks) {
  run_ranks(
      GetParam(),
      [](Rank& me) {
        const DeviceStream puts, waits;
        for (const size_t count : {size_t{1}, size_t{1000}, size_t{70'000}, size_t{300'001}}) {
          DeviceArray<float> own(Values(count * static_cast<size_t>(me.size), -1.f));
          weftWindow_t window = nullptr;
          WEFT_OK(weftCommWindowRegister(me.comm, own.data(),
                                         count * static_cast<size_t>(me.size) * sizeof(float), &window, 0));
          std::deque<DeviceArray<float>> blocks;
          std::vector<weftWaitSignalDesc_t> awaited;
          for (int peer = 0; peer < me.size; ++peer) awaited.push_back({1, peer, 0, 0});
          // Where streams cannot wait for operations, calls do.
          const bool first = (*cuda::Device::open(0))->has_memory_operations();
          if (first) WEFT_OK(weftWaitSignal(me.size, awaited.data(), me.comm, waits.weft()));
          for (int peer = 0; peer < me.size; ++peer) {
            blocks.emplace_back(filled(me.rank, peer, count));
            WEFT_OK(weftPutSignal(blocks.back().data(), count, weftFloat, peer, window,
                                  static_cast<size_t>(me.rank) * count * sizeof(float), 0, 0, 0, me.comm,
                                  puts.weft()));
          }
          if (!first) WEFT_OK(weftWaitSignal(me.size, awaited.data(), me.comm, waits.weft()));
          waits.synchronize();
          puts.synchronize();
          Values expected;
          for (int from = 0; from < me.size; ++from) {
            const Values block = filled(from, me.rank, count);
            expected.insert(expected.end(), block.begin(), block.end());
          }
          ASSERT_EQ(own.get(), expected) << count;
          weftResult_t health = weftSuccess;
          WEFT_OK(weftCommGetAsyncError(me.comm, &health));
          ASSERT_EQ(health, weftSuccess) << weftGetLastError(me.comm);
          WEFT_OK(weftCommWindowDeregister(me.comm, window));
        }
      },
      on_device);
}

INSTANTIATE_TEST_SUITE_P(Nodes, DeviceWindows,
                         ::testing::Values(blocks(1, 1), blocks(1, 2), blocks(2, 1), blocks(2, 2)));

TEST(WindowsOfDevices, TakeHostMemoryOnlyWhereCudaHasPinnedIt) {
  WEFT_NEED_DEVICE();
  run_ranks(
      blocks(1, 2),
      [](Rank& me) {
        std::vector<float> plain(4);
        weftWindow_t window = nullptr;
        EXPECT_EQ(weftCommWindowRegister(me.comm, plain.data(), 16, &window, 0), weftInvalidPointer)
            << weftGetLastError(nullptr);
        EXPECT_EQ(window, nullptr);
      },
      on_device);
  run_ranks(blocks(1, 2), [](Rank& me) {
    DeviceArray<float> on_gpu(Values(4));
    weftWindow_t window = nullptr;
    EXPECT_EQ(weftCommWindowRegister(me.comm, on_gpu.data(), 16, &window, 0), weftUnsupported);
  });
}

}  // namespace
}  // namespace weft::testing::windows_test
