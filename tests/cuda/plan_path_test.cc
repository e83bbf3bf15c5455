// Short collectives as one kernel each, on the fake driver: what a call costs, and how it ends when a rank
// does not come.
#include "engine/gpu/plan_path.h"

#include <barrier>
#include <cstring>
#include <map>

#include "api/ranks.h"
#include "cuda/plan_path.h"

namespace weft::testing::plan_path_test {
namespace {

using namespace plan_paths;

constexpr size_t kCount = 16;  // floats: 64 bytes
using Values = std::vector<float>;

TEST(PlanPath, AShortCollectiveIsOneLaunchAndNothingOnTheProgressThread) {
  WEFT_NEED_PLAN_PATH();
  WEFT_NEED_FAKE(fake);
  constexpr int kCalls = 20, kRanks = 2;
  // Events are left out: every 100 ms one asks whether the device is alive.
  const auto counts = [&] {
    std::map<std::string, uint64_t> calls;
    for (const char* name : {"cuLaunchKernel", "cuMemcpyAsync", "cuStreamWriteValue32", "cuStreamWaitValue32",
                             "cuStreamWaitEvent", "cuLaunchHostFunc", "cuMemAlloc"})
      calls[name] = fake.calls(name);
    return calls;
  };
  std::barrier both(kRanks);
  std::map<std::string, uint64_t> before, after;
  run_ranks(
      blocks(1, kRanks),
      [&](Rank& me) {
        const DeviceStream stream;
        DeviceArray<float> send(Values(kCount, 1)), recv(kCount);
        WEFT_OK(weftAllReduce(send.data(), recv.data(), kCount, weftFloat, weftSum, me.comm, stream.weft()));
        stream.synchronize();
        both.arrive_and_wait();
        if (me.rank == 0) before = counts();
        both.arrive_and_wait();
        for (int call = 0; call < kCalls; ++call)
          WEFT_OK(
              weftAllReduce(send.data(), recv.data(), kCount, weftFloat, weftSum, me.comm, stream.weft()));
        stream.synchronize();
        both.arrive_and_wait();
        if (me.rank == 0) after = counts();
        both.arrive_and_wait();
        EXPECT_EQ(recv.get(), Values(kCount, kRanks));
        EXPECT_EQ(algorithm_of(me.comm), "one_hop_kernel");
      },
      on_device);
  for (const auto& [name, count] : after)
    EXPECT_EQ(count - before[name], name == "cuLaunchKernel" ? kCalls * kRanks : 0u) << name;
}

TEST(PlanPath, LongOnesAndTransfersGoStepByStep) {
  WEFT_NEED_PLAN_PATH();
  run_ranks(
      blocks(1, 2),
      [&](Rank& me) {
        const DeviceStream stream;
        const size_t longer = 2 << 20;
        DeviceArray<float> send(Values(longer, 2)), recv(longer);
        for (const size_t count : {kCount, longer, kCount}) {
          WEFT_OK(weftAllReduce(send.data(), recv.data(), count, weftFloat, weftSum, me.comm, stream.weft()));
          EXPECT_EQ(algorithm_of(me.comm) == "one_hop_kernel", count == kCount);
          if (me.rank == 0) WEFT_OK(weftSend(send.data(), kCount, weftFloat, 1, me.comm, stream.weft()));
          else WEFT_OK(weftRecv(recv.data(), kCount, weftFloat, 0, me.comm, stream.weft()));
        }
        stream.synchronize();
        EXPECT_EQ(recv.get(), [&] {
          Values expected(longer, 4);
          if (me.rank == 1) std::fill_n(expected.begin(), kCount, 2.0f);
          return expected;
        }());
      },
      on_device);
}

// A rank that cut its calls by its own device alone would wait for flags that no peer sets.
TEST(PlanPath, TheSmallestDeviceBoundsTheBlocksOfAllRanks) {
  using engine::PlanPath;
  std::vector<PlanPath::Offer> offers(3);
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    std::memset(&offers[rank].device, static_cast<int>(rank) + 1, sizeof offers[rank].device);
    offers[rank].process = 1;
    offers[rank].resident_blocks = 132;
  }
  const uint32_t wide = *PlanPath::most_blocks(offers);
  EXPECT_GT(wide, 3u);
  offers[1].resident_blocks = 12;
  EXPECT_EQ(*PlanPath::most_blocks(offers), std::min(wide, 6u));
  offers[2].device = offers[1].device;
  offers[2].resident_blocks = 12;
  EXPECT_EQ(*PlanPath::most_blocks(offers), 3u);
  offers[2].process = 2;
  EXPECT_EQ(PlanPath::most_blocks(offers).status().code(), Code::unsupported);
  offers[2].process = 1;
  offers[2].resident_blocks = 0;  // it made none
  EXPECT_EQ(PlanPath::most_blocks(offers).status().code(), Code::unsupported);
}

// A kernel that waits for its peers would keep others from starting.
TEST(PlanPath, GoesStepByStepWhereStreamsMayNotWait) {
  WEFT_NEED_FAKE(fake);
  if ((*cuda::Device::open(0))->has_memory_operations())
    GTEST_SKIP() << "cuda.plan_path_without_memops runs this with FAKE_CUDA_MEMOPS=0";
  run_ranks(
      blocks(1, 2),
      [&](Rank& me) {
        const DeviceStream stream;
        DeviceArray<float> data(Values(kCount, 1));
        WEFT_OK(weftAllReduce(data.data(), data.data(), kCount, weftFloat, weftSum, me.comm, stream.weft()));
        stream.synchronize();
        EXPECT_EQ(data.get(), Values(kCount, 2));
        EXPECT_NE(algorithm_of(me.comm), "one_hop_kernel");
      },
      on_device);
}

// The progress thread waited for the lock of a call that waited for the progress thread.
TEST(PlanPath, ACallThatWaitsForRoomInAFullStreamHoldsNobodyUp) {
  WEFT_NEED_PLAN_PATH();
  WEFT_NEED_FAKE(fake);
  const DeviceArray<float> data(4 * kCount);
  expect_full_stream_makes_room(blocks(1, 2), 1200, [&](Rank& me, const DeviceStream& stream) {
    float* const own = data.data() + static_cast<size_t>(me.rank) * kCount;
    WEFT_OK(weftAllReduce(own, own, kCount, weftFloat, weftMax, me.comm, stream.weft()));
    EXPECT_EQ(algorithm_of(me.comm), "one_hop_kernel");
  });
}

TEST(PlanPath, AnAbortEndsACallThatWaitsForRoomInItsStream) {
  WEFT_NEED_PLAN_PATH();
  WEFT_NEED_FAKE(fake);
  const DeviceArray<float> data(kCount);
  expect_abort_ends_wait_for_room(
      [&](weftComm_t comm, const DeviceStream& stream) { return sum_in_place(data, kCount, comm, stream); });
}

/// Kernels of one communicator count the same epochs, whichever streams they are on.
TEST(PlanPath, CallsOnSeveralStreamsFollowEachOther) {
  WEFT_NEED_PLAN_PATH();
  run_ranks(
      blocks(1, 3),
      [&](Rank& me) {
        const DeviceStream streams[3];
        DeviceArray<float> send(Values(kCount, 1)), recv(60 * kCount);
        for (size_t call = 0; call < 60; ++call)
          WEFT_OK(weftAllReduce(send.data(), recv.data() + call * kCount, kCount, weftFloat, weftSum, me.comm,
                                streams[call % 3].weft()));
        for (const DeviceStream& stream : streams) stream.synchronize();
        EXPECT_EQ(recv.get(), Values(60 * kCount, 3));
      },
      on_device);
}

TEST(PlanPath, AGroupOfTwoCommunicatorsIsRight) {
  WEFT_NEED_PLAN_PATH();
  run_ranks(
      blocks(1, 2),
      [&](Rank& me) {
        const DeviceStream a, b;
        weftComm_t other;
        WEFT_OK(weftCommSplit(me.comm, 0, me.rank, &other, nullptr));
        DeviceArray<float> send(Values(kCount, 1)), sum(kCount), all(2 * kCount);
        WEFT_OK(weftGroupStart());
        WEFT_OK(weftAllReduce(send.data(), sum.data(), kCount, weftFloat, weftSum, me.comm, a.weft()));
        WEFT_OK(weftAllGather(send.data(), all.data(), kCount, weftFloat, other, b.weft()));
        WEFT_OK(weftGroupEnd());
        a.synchronize();
        b.synchronize();
        EXPECT_EQ(sum.get(), Values(kCount, 2));
        EXPECT_EQ(all.get(), Values(2 * kCount, 1));
        WEFT_OK(weftCommDestroy(other));
      },
      on_device);
}

/// Of a plan with slots, and of one that exposes buffers.
struct PlanPathFailures : ::testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(PlanPath, PlanPathFailures, ::testing::Values(kCount, 100'000),
                         [](const auto& info) { return info.param == kCount ? "eager" : "exposed"; });

TEST_P(PlanPathFailures, ARankThatDoesNotCallIsNamedAndTheStreamGoesOn) {
  WEFT_NEED_PLAN_PATH();
  expect_rank_without_call_is_named(blocks(1, 2), GetParam());
}

// It said that every rank has started it, but that it makes no progress.
TEST_P(PlanPathFailures, ARankWhoseStreamDoesNotComeIsNamed) {
  WEFT_NEED_PLAN_PATH();
  expect_rank_whose_stream_is_late_is_named(blocks(1, 2), GetParam(),
                                            "the stream of rank 1 has not come to it");
}

TEST_P(PlanPathFailures, AnAbortLetsTheStreamGoOn) {
  WEFT_NEED_PLAN_PATH();
  expect_abort_lets_streams_go_on(blocks(1, 2), GetParam());
}

// A kernel that begins late found flag and stamp of a rank that had failed, and read its freed buffer.
TEST(PlanPath, AKernelThatBeginsAfterItsFailureReadsNoPeer) {
  WEFT_NEED_PLAN_PATH();
  constexpr size_t kLong = 100'000;
  std::barrier both(2);
  run_ranks(
      blocks(1, 2),
      [&](Rank& me) {
        const DeviceStream stream;
        DeviceArray<float> send(Values(kLong, 1)), recv(Values(2 * kLong, 7));
        HeldStream held(stream);
        if (me.rank == 0) held.let_go();
        WEFT_OK(weftAllGather(send.data(), recv.data(), kLong, weftFloat, me.comm, stream.weft()));
        EXPECT_NE(async_failure_of(me.comm), weftSuccess);
        if (me.rank == 0) {
          stream.synchronize();
          send.free();
        }
        both.arrive_and_wait();
        held.let_go();
        stream.synchronize();
        if (me.rank == 1) {
          EXPECT_EQ(recv.get(), Values(2 * kLong, 7));
        }
        abort_together(me, both);
      },
      on_device_for_a_second);
}

// Only copies noted it: a kernel could end well with what an aborted peer had overwritten.
TEST(PlanPath, ARankThatFailsIsNotedForItsPeers) {
  WEFT_NEED_DEVICE();
  using engine::NodeBoard;
  cuda::Device& device = **cuda::Device::open(0);
  const cuda::Scope scope(device);
  const auto first = NodeBoard::create(device, 0, 2).take();
  const auto second = NodeBoard::open(device, 1, 2, *first->offer()).take();
  EXPECT_TRUE(*first->peers_are_well());
  second->set_failed();
  EXPECT_FALSE(*first->peers_are_well());  // its report may come
  EXPECT_TRUE(eventually([&] { return !first->peers_are_well(); }));
  EXPECT_EQ(first->peers_are_well().status().code(), Code::remote_error);
  EXPECT_TRUE(*second->peers_are_well());
}

// All threads have one handle for their default streams. A kernel did not follow one of another thread.
TEST(PlanPath, CallsOfTwoThreadsOnTheirDefaultStreamsKeepTheirOrder) {
  WEFT_NEED_PLAN_PATH();
  std::barrier both(2);
  run_ranks(
      blocks(1, 2),
      [&](Rank& me) {
        DeviceArray<float> first(Values(kCount, 1)), second(Values(kCount, 10));
        both.arrive_and_wait();  // the device's default stream waits for those of threads
        const auto call = [&](const DeviceArray<float>& data) {
          WEFT_OK(weftAllReduce(data.data(), data.data(), kCount, weftFloat, weftSum, me.comm,
                                reinterpret_cast<weftStream_t>(stream_of_thread())));
        };
        const auto synchronize = [] {
          const cuda::Scope scope(**cuda::Device::open(0));
          EXPECT_EQ(driver().stream_synchronize(stream_of_thread()), cuda::kSuccess);
        };
        HeldStream held(stream_of_thread());
        if (me.rank != 0) held.let_go();
        call(first);
        std::thread([&] {
          call(second);
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
          held.let_go();
          synchronize();
        }).join();
        synchronize();
        EXPECT_EQ(first.get(), Values(kCount, 2));
        EXPECT_EQ(second.get(), Values(kCount, 20));
      },
      on_device);
}

// The second kernel would never start: the call ended with a timeout, and named the wrong cause.
TEST(PlanPath, TwoRanksOnOneStreamAreTold) {
  WEFT_NEED_PLAN_PATH();
  weftUniqueId id;
  WEFT_OK(weftGetUniqueId(&id));
  weftConfig_t config = WEFT_CONFIG_INITIALIZER;
  config.device = 0;
  weftComm_t comms[2] = {};
  WEFT_OK(weftGroupStart());
  for (int rank = 0; rank < 2; ++rank) WEFT_OK(weftCommInitRankConfig(&comms[rank], 2, id, rank, &config));
  WEFT_OK(weftGroupEnd());
  {
    const DeviceStream stream;
    DeviceArray<float> data[] = {DeviceArray<float>(Values(kCount, 1)),
                                 DeviceArray<float>(Values(kCount, 1))};
    WEFT_OK(weftGroupStart());
    for (int rank = 0; rank < 2; ++rank)
      WEFT_OK(weftAllReduce(data[rank].data(), data[rank].data(), kCount, weftFloat, weftSum, comms[rank],
                            stream.weft()));
    EXPECT_EQ(weftGroupEnd(), weftInvalidUsage);
    expect_reason(nullptr, "rank 0 has called it on the same CUDA stream");
    stream.synchronize();  // it goes on
  }
  for (weftComm_t comm : comms) (void)weftCommAbort(comm);
}

// Kernels send no message. Of some calls that differ, both kernels end; others wait for each other.
TEST(PlanPath, RanksThatCallSomethingElseAreToldWhat) {
  WEFT_NEED_PLAN_PATH();
  struct Other {
    size_t count;
    weftDataType_t type;
    int root;
    const char* says;
  };
  const Other others[] = {{kCount, weftInt32, 0, "of 16 int"},
                          {kCount - 1, weftFloat, 0, "of 15 float"},
                          {kCount + 1, weftFloat, 0, "of 17 float"},
                          {kCount, weftFloat, 1, "root 1"},
                          {1 << 20, weftFloat, 0, "of 1048576 float"}};
  for (const bool reduces : {false, true})
    for (const Other& other : others) {
      if (reduces && other.root != 0) continue;
      std::barrier both(2);
      run_ranks(
          blocks(1, 2),
          [&](Rank& me) {
            const DeviceStream stream;
            DeviceArray<float> data(Values(1 << 20, 1));
            const Other call = me.rank == 0 ? Other{kCount, weftFloat, 0, ""} : other;
            if (reduces)
              (void)weftAllReduce(data.data(), data.data(), call.count, call.type, weftSum, me.comm,
                                  stream.weft());
            else
              (void)weftBroadcast(data.data(), data.data(), call.count, call.type, call.root, me.comm,
                                  stream.weft());
            (void)async_failure_of(me.comm);
            expect_reason(me.comm, other.says);
            expect_reason(me.comm, "rank 0 called");
            abort_together(me, both);
          },
          on_device_for_a_second);
    }
}

}  // namespace
}  // namespace weft::testing::plan_path_test
