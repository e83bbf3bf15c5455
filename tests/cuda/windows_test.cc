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

// A put whose input is staged first is behind the signal of its group: that one has no input.
TEST_P(DeviceWindows, CountASignalThatOvertakesItsPutWhenThePutIsThere) {
  run_ranks(
      GetParam(),
      [](Rank& me) {
        constexpr size_t kCount = 1 << 20;
        const int to = (me.rank + 1) % me.size, from = (me.rank + me.size - 1) % me.size;
        const DeviceStream puts, waits;
        DeviceArray<float> own(Values(kCount, -1.f)), all_looked(Values(1));
        weftWindow_t window = nullptr;
        WEFT_OK(weftCommWindowRegister(me.comm, own.data(), kCount * sizeof(float), &window, 0));
        for (int round = 1; round <= 5; ++round) {
          DeviceArray<float> source(Values(kCount, static_cast<float>(16 * round + me.rank)));
          WEFT_OK(weftGroupStart());
          WEFT_OK(weftPutSignal(source.data(), kCount, weftFloat, to, window, 0, WEFT_SIGNAL_NONE, 0, 0,
                                me.comm, puts.weft()));
          WEFT_OK(weftSignal(to, 0, 0, 0, me.comm, puts.weft()));
          WEFT_OK(weftGroupEnd());
          const weftWaitSignalDesc_t awaited{1, from, 0, 0};
          WEFT_OK(weftWaitSignal(1, &awaited, me.comm, waits.weft()));
          waits.synchronize();
          ASSERT_EQ(own.get().back(), static_cast<float>(16 * round + from)) << round;
          puts.synchronize();
          WEFT_OK(weftAllReduce(all_looked.data(), all_looked.data(), 1, weftFloat, weftSum, me.comm,
                                puts.weft()));
          puts.synchronize();
        }
        WEFT_OK(weftCommWindowDeregister(me.comm, window));
      },
      on_device);
}

INSTANTIATE_TEST_SUITE_P(Nodes, DeviceWindows,
                         ::testing::Values(blocks(1, 1), blocks(1, 2), blocks(2, 1), blocks(2, 2)));

// A stream came to two calls of a group while their rank was busy between the looks at them, and the second
// call began first.
TEST(DeviceWindowsOfGroups, CountInTheOrderOfTheirStreamHoweverLongARankIsBusy) {
  WEFT_NEED_FAKE(fake);
  if (settings().cuda_ipc) GTEST_SKIP() << "a call that begins copies nothing, where memory is shared";
  run_ranks(
      blocks(1, 2),
      [&fake](Rank& me) {
        constexpr size_t kCount = 1 << 20;
        const DeviceStream puts, others;
        DeviceArray<float> own(Values(kCount, -1.f)), other(Values(kCount, -1.f));
        weftWindow_t window = nullptr, other_window = nullptr;
        WEFT_OK(weftCommWindowRegister(me.comm, own.data(), kCount * sizeof(float), &window, 0));
        WEFT_OK(weftCommWindowRegister(me.comm, other.data(), kCount * sizeof(float), &other_window, 0));
        if (me.rank == 0) {
          DeviceArray<float> source(Values(kCount, 7.f));
          HeldStream puts_stand(puts), others_stand(others);
          if (!puts_stand.held()) GTEST_SKIP() << "without stream memory operations no stream stands still";
          WEFT_OK(weftGroupStart());
          WEFT_OK(weftPutSignal(source.data(), kCount, weftFloat, 1, window, 0, WEFT_SIGNAL_NONE, 0, 0,
                                me.comm, puts.weft()));
          WEFT_OK(weftPutSignal(source.data(), kCount, weftFloat, 1, other_window, 0, WEFT_SIGNAL_NONE, 0, 0,
                                me.comm, others.weft()));
          WEFT_OK(weftSignal(1, 0, 0, 0, me.comm, puts.weft()));
          WEFT_OK(weftGroupEnd());
          const uint64_t copies = fake.calls("cuMemcpyAsync");
          fake.block("cuMemcpyAsync", 1);
          others_stand.let_go();
          EXPECT_TRUE(eventually([&] { return fake.calls("cuMemcpyAsync") > copies; }));
          puts_stand.let_go();
          std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the stream comes to both calls
          fake.block("cuMemcpyAsync", 0);
          puts.synchronize();
          others.synchronize();
        } else {
          const weftWaitSignalDesc_t awaited{1, 0, 0, 0};
          WEFT_OK(weftWaitSignal(1, &awaited, me.comm, puts.weft()));
          puts.synchronize();
          EXPECT_EQ(own.get().back(), 7.f);
        }
        DeviceArray<float> both_are_done(Values(1));
        WEFT_OK(weftAllReduce(both_are_done.data(), both_are_done.data(), 1, weftFloat, weftSum, me.comm,
                              puts.weft()));
        puts.synchronize();
        WEFT_OK(weftCommWindowDeregister(me.comm, other_window));
        WEFT_OK(weftCommWindowDeregister(me.comm, window));
      },
      on_device);
}

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
