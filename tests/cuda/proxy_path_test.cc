// Collectives of several nodes as one kernel for each rank, whose proxy moves what crosses nodes, on the fake
// driver. Nodes are pretended.
#include <array>
#include <barrier>
#include <chrono>
#include <random>
#include <set>
#include <thread>

#include "api/handles.h"
#include "api/processes.h"
#include "api/ranks.h"
#include "cuda/collective_calls.h"
#include "cuda/graphs.h"
#include "cuda/plan_path.h"
#include "engine/gpu/proxy.h"

namespace weft::testing::proxy_path_test {
namespace {

using namespace plan_paths;
using collective_calls::call;
using collective_calls::given;
using collective_calls::kCollectives;
using collective_calls::Values;

constexpr size_t kCount = 16;     // floats: 64 bytes
constexpr size_t kLong = 20'000;  // more than goes to another node at once

// ---- Results

const std::vector<Nodes> kClusters{
    blocks(2, 1), blocks(2, 2), blocks(2, 4), blocks(3, 1), {"a", "b", "a", "b", "a"}};

/// Every collective, in a row and without waiting in between, on two streams.
TEST(ProxyPath, ShortCollectivesAreOneKernelForEachRank) {
  WEFT_NEED_PLAN_PATH();
  for (const Nodes& nodes : kClusters)
    run_ranks(
        nodes,
        [](Rank& me) {
          const DeviceStream streams[2];
          std::vector<std::unique_ptr<DeviceArray<float>>> arrays;
          std::vector<Values> expected;
          for (int round = 0; round < 3 * kCollectives; ++round) {
            const size_t count = round % 3 == 0 ? kCount : 1 + static_cast<size_t>(round) * 37;
            for (int side = 0; side < 2; ++side)
              arrays.push_back(std::make_unique<DeviceArray<float>>(count * static_cast<size_t>(me.size)));
            expected.push_back(call(round % kCollectives, round % 3 == 1, count, round, me,
                                    *arrays[arrays.size() - 2], *arrays.back(),
                                    streams[round / 5 % 2].weft()));
            EXPECT_EQ(algorithm_of(me.comm), "one_hop_proxy") << round;
          }
          for (const DeviceStream& stream : streams) stream.synchronize();
          for (size_t i = 0; i < expected.size(); ++i) {
            Values got = arrays[2 * i + 1]->get();
            got.resize(expected[i].size());
            ASSERT_EQ(got, expected[i]) << "call " << i << ", " << me.size << " ranks";
          }
        },
        on_device);
}

/// Ranks as processes do not reach the buffers of their node's ranks: those are staged.
TEST(ProxyPathDeathTest, RanksAsProcessesAreRight) {
  constexpr int kNoDevice = 77;
  const std::vector<int> statuses = run_processes(blocks(2, 2), [](Rank& me) {
    if (!can_have_processes(4)) return kNoDevice;
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.device = me.rank;
    weftComm_t comm;
    if (weftCommSplit(me.comm, 0, me.rank, &comm, &config) != weftSuccess) return 2;
    const Rank with_device{me.rank, me.size, comm};
    const DeviceStream stream(me.rank);
    for (int round = 0; round < 2 * kCollectives; ++round) {
      const int which = round % kCollectives;
      const size_t count = which == 0 && round > 0 ? kLong : kCount;
      DeviceArray<float> send(4 * count, me.rank), recv(4 * count, me.rank);
      const Values expected =
          call(which, round % 3 == 1, count, round, with_device, send, recv, stream.weft());
      if (algorithm_of(comm) != (count == kLong ? "all_to_all_proxy" : "one_hop_proxy")) return 3;
      stream.synchronize();
      Values got = recv.get();
      got.resize(expected.size());
      if (got != expected) return 4;
    }
    if (::testing::Test::HasFailure()) return 5;
    return weftCommDestroy(comm) || weftCommDestroy(me.comm) ? 6 : 0;
  });
  if (exited_with(statuses[0], kNoDevice)) GTEST_SKIP() << "no four CUDA devices, or no plan kernels";
  for (const int status : statuses) EXPECT_TRUE(exited_with(status, 0)) << status;
}

/// Longer ones: inside a node kernels read each other's buffers, and blocks go to other nodes.
TEST(ProxyPath, LongerCollectivesAreHierarchicalAndTheLongestGoStepByStep) {
  WEFT_NEED_PLAN_PATH();
  for (const Nodes& nodes : {blocks(2, 2), blocks(2, 4)})
    run_ranks(
        nodes,
        [](Rank& me) {
          const DeviceStream stream;
          for (int round = 0; round < 6; ++round) {
            const size_t count = round % 3 == 2 ? 1 << 20 : kLong;
            DeviceArray<float> send(count), recv(count);
            const Values sum = call(0, round % 2 == 1, count, round, me, send, recv, stream.weft());
            EXPECT_EQ(algorithm_of(me.comm) == "all_to_all_proxy", count == kLong) << algorithm_of(me.comm);
            stream.synchronize();
            ASSERT_EQ(recv.get(), sum) << round;
          }
        },
        on_device);
}

/// On a machine that was measured, among all plans that qualify.
TEST(ProxyPath, WhatTheTunerChoosesIsRight) {
  WEFT_NEED_PLAN_PATH();
  const auto machine = model::machine_from_json(R"({"engines": 1, "engine_us": 7.2, "engine_step_us": 3.2,
    "device_ranks": 4, "thread_ranks": 4, "cores": 16, "intra": {"alpha_us": 0.15, "overhead_us": 0.2,
    "bytes_per_us": 1300000, "by_cpu": false}, "memory": {"copy_cached": 1419000, "copy_large": 1419000,
    "reduce_cached": 363000, "reduce_large": 363000}})");
  ASSERT_TRUE(machine.ok()) << machine.status().message();
  for (const Nodes& nodes : {blocks(2, 2), blocks(2, 4)})
    run_ranks(
        nodes,
        [&](Rank& me) {
          me.comm->comm->on_device().machine = std::make_shared<const model::Machine>(*machine);
          const DeviceStream stream;
          std::set<std::string> used;
          for (int round = 0; round < 4 * kCollectives; ++round) {
            const size_t count = std::array{size_t{16}, size_t{500}, size_t{3000}, size_t{16384}}[round / 8];
            const size_t most = count * static_cast<size_t>(me.size);
            DeviceArray<float> send(most), recv(most);
            const Values expected =
                call(round % kCollectives, false, count, round, me, send, recv, stream.weft());
            used.insert(algorithm_of(me.comm));
            stream.synchronize();
            Values got = recv.get();
            got.resize(expected.size());
            ASSERT_EQ(got, expected) << round << " by " << algorithm_of(me.comm);
          }
          EXPECT_TRUE(used.contains("recursive_doubling_proxy"));
          EXPECT_TRUE(used.contains("binomial_proxy"));
        },
        on_device);
}

/// Of floats in strict order, and of averages: as a communicator of host memory has them.
TEST(ProxyPath, StrictSumsHaveTheHostsBits) {
  WEFT_NEED_PLAN_PATH();
  constexpr size_t kFloats = 1001;
  const auto inputs = [](const Rank& me) {
    Values v(kFloats);
    std::mt19937 random(static_cast<unsigned>(me.rank + 7));
    for (float& x : v) x = static_cast<float>(random() % 100'000) / 7.0f - 5'000;
    return v;
  };
  for (const weftRedOp_t op : {weftSum, weftAvg}) {
    std::vector<Values> of_host(4), of_kernel(4);
    run_ranks(
        blocks(2, 2),
        [&](Rank& me) {
          const Values send = inputs(me);
          Values& recv = of_host[static_cast<size_t>(me.rank)];
          recv.resize(kFloats);
          WEFT_OK(weftAllReduce(send.data(), recv.data(), kFloats, weftFloat, op, me.comm, nullptr));
        },
        [](weftConfig_t& config) { config.strict = 1; });
    run_ranks(
        blocks(2, 2),
        [&](Rank& me) {
          const DeviceStream stream;
          const DeviceArray<float> send(inputs(me)), recv(kFloats);
          WEFT_OK(weftAllReduce(send.data(), recv.data(), kFloats, weftFloat, op, me.comm, stream.weft()));
          EXPECT_EQ(algorithm_of(me.comm), "one_hop_proxy");
          stream.synchronize();
          of_kernel[static_cast<size_t>(me.rank)] = recv.get();
        },
        [](weftConfig_t& config) {
          config.device = 0;
          config.strict = 1;
        });
    EXPECT_EQ(of_host, of_kernel);
  }
}

/// A root that runs ahead writes its outgoing slots again only when they have been sent.
TEST(ProxyPath, ARootMayRunAhead) {
  WEFT_NEED_PLAN_PATH();
  constexpr size_t kCalls = 60;
  run_ranks(
      blocks(2, 2),
      [](Rank& me) {
        const DeviceStream stream;
        HeldStream held(stream);
        if (me.rank == 0) held.let_go();
        DeviceArray<float> send(kCalls * kCount), recv(kCalls * kCount);
        send.set(given(me.rank, kCalls * kCount, 0));
        for (size_t i = 0; i < kCalls; ++i)
          WEFT_OK(weftBroadcast(send.data() + i * kCount, recv.data() + i * kCount, kCount, weftFloat, 0,
                                me.comm, stream.weft()));
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        held.let_go();
        stream.synchronize();
        EXPECT_EQ(recv.get(), given(0, kCalls * kCount, 0));
      },
      on_device);
}

// The progress thread waited for the lock of a call that waited for the progress thread.
TEST(ProxyPath, ACallThatWaitsForRoomInAFullStreamHoldsNobodyUp) {
  WEFT_NEED_PLAN_PATH();
  WEFT_NEED_FAKE(fake);
  const DeviceArray<float> data(2 * kCount);
  expect_full_stream_makes_room(blocks(2, 1), 1200, [&](Rank& me, const DeviceStream& stream) {
    float* const own = data.data() + static_cast<size_t>(me.rank) * kCount;
    WEFT_OK(weftAllReduce(own, own, kCount, weftFloat, weftMax, me.comm, stream.weft()));
    EXPECT_EQ(algorithm_of(me.comm), "one_hop_proxy");
  });
}

TEST(ProxyPath, AGroupOfTwoCommunicatorsAndTransfersIsRight) {
  WEFT_NEED_PLAN_PATH();
  run_ranks(
      blocks(2, 2),
      [&](Rank& me) {
        const DeviceStream a, b;
        weftComm_t other;
        WEFT_OK(weftCommSplit(me.comm, 0, me.size - me.rank, &other, nullptr));
        DeviceArray<float> send(Values(kCount, 1)), sum(kCount), all(4 * kCount), from(kCount);
        WEFT_OK(weftGroupStart());
        WEFT_OK(weftAllReduce(send.data(), sum.data(), kCount, weftFloat, weftSum, me.comm, a.weft()));
        WEFT_OK(weftAllGather(send.data(), all.data(), kCount, weftFloat, other, b.weft()));
        WEFT_OK(weftGroupEnd());
        WEFT_OK(weftGroupStart());
        WEFT_OK(weftSend(sum.data(), kCount, weftFloat, (me.rank + 1) % 4, me.comm, a.weft()));
        WEFT_OK(weftRecv(from.data(), kCount, weftFloat, (me.rank + 3) % 4, me.comm, a.weft()));
        WEFT_OK(weftGroupEnd());
        a.synchronize();
        b.synchronize();
        EXPECT_EQ(sum.get(), Values(kCount, 4));
        EXPECT_EQ(from.get(), Values(kCount, 4));
        EXPECT_EQ(all.get(), Values(4 * kCount, 1));
        WEFT_OK(weftCommDestroy(other));
      },
      on_device);
}

/// A graph has no proxy: no CPU hears of a launch.
TEST(ProxyPath, CapturedCallsGoStepByStep) {
  WEFT_NEED_PLAN_PATH();
  WEFT_NEED_GRAPHS();
  run_ranks(
      blocks(2, 2),
      [&](Rank& me) {
        const DeviceStream stream;
        DeviceArray<float> send(Values(kCount, 1)), recv(kCount);
        Graph graph(stream);
        WEFT_OK(weftAllReduce(send.data(), recv.data(), kCount, weftFloat, weftSum, me.comm, stream.weft()));
        ASSERT_EQ(graph.end(), cuda::kSuccess);
        for (int launch = 1; launch < 4; ++launch) {
          send.set(Values(kCount, static_cast<float>(launch)));
          graph.launch(stream);
          stream.synchronize();
          ASSERT_EQ(recv.get(), Values(kCount, static_cast<float>(4 * launch)));
        }
      },
      on_device);
}

// ---- What a call costs

/// Of the caller: one launch, and before it the argument checks. Of the progress thread: nothing but to ask
/// the device each 100 ms whether it works, and a message for each put.
TEST(ProxyPath, ACallIsOneLaunchAndAtMostFourMoreCalls) {
  WEFT_NEED_PLAN_PATH();
  WEFT_NEED_FAKE(fake);
  constexpr uint64_t kOfQuestions = 3 * 4 * 8;
  for (const uint64_t per_node : {1, 2, 4})
    for (int which = 0; which < kCounted; ++which) {
      const CallCounts counts = count_calls(fake, blocks(2, static_cast<int>(per_node)), which, kCount);
      EXPECT_EQ(counts.launches, CallCounts::kCalls * 2 * per_node) << which;
      EXPECT_LE(counts.caller, 5u) << which;
      EXPECT_LE(counts.progress, kOfQuestions) << which;
      for (size_t rank = 0; rank < 2 * per_node; ++rank)
        EXPECT_EQ(counts.messages[rank], which == 3 && rank != 0 ? 0 : CallCounts::kCalls * per_node)
            << "collective " << which << ", rank " << rank;
    }
}

// ---- Words

// Slots were written again before an earlier operation had sent them.
TEST(ProxyPath, OperationsThatSendInAnotherOrderFreeTheirSlotsInOrder) {
  WEFT_NEED_DEVICE();
  const auto executor = engine::DeviceExecutor::open(0).take();
  const cuda::Scope scope(executor->device());
  {
    const auto proxy = engine::Proxy::create(*executor, 2).take();
    const uint64_t& sent = proxy->memory()->sent;
    for (const uint64_t epoch : {1, 2, 3}) proxy->note_launched(epoch);
    proxy->note_sent(2);
    EXPECT_EQ(sent, 0u);
    proxy->note_sent(1);
    EXPECT_EQ(sent, 2u);
    proxy->note_sent(1);
    proxy->note_sent(3);
    EXPECT_EQ(sent, 3u);
  }
}

// ---- Failures

struct ProxyPathFailures : ::testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(ProxyPath, ProxyPathFailures, ::testing::Values(kCount, kLong),
                         [](const auto& info) { return info.param == kCount ? "one_hop" : "all_to_all"; });

TEST_P(ProxyPathFailures, ARankOfAnotherNodeThatDoesNotCallIsNamedAndTheStreamGoesOn) {
  WEFT_NEED_PLAN_PATH();
  expect_rank_without_call_is_named(blocks(2, 2), GetParam());
}

TEST_P(ProxyPathFailures, ARankOfAnotherNodeWhoseStreamDoesNotComeIsNamed) {
  WEFT_NEED_PLAN_PATH();
  expect_rank_whose_stream_is_late_is_named(blocks(2, 1), GetParam(),
                                            "nothing has come from rank 1 on another node");
}

TEST_P(ProxyPathFailures, AnAbortLetsTheStreamGoOn) {
  WEFT_NEED_PLAN_PATH();
  expect_abort_lets_streams_go_on(blocks(2, 2), GetParam());
}

TEST(ProxyPath, RanksThatCallSomethingElseAreToldWhat) {
  WEFT_NEED_PLAN_PATH();
  for (const size_t other : {kCount - 1, kLong, size_t{1} << 20})
    expect_other_length_is_told(blocks(2, 2), kCount, other);
}

/// The kernels of the others leave, and their ranks say who is dead.
TEST(ProxyPathDeathTest, APeerThatDiesOnAnotherNodeIsNamed) {
  constexpr int kNoDevice = 77;
  Arrivals called;
  const std::vector<int> statuses = run_processes(blocks(2, 1), [&](Rank& me) {
    if (!can_have_processes(2)) return kNoDevice;
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.device = me.rank;
    weftComm_t comm;
    if (weftCommSplit(me.comm, 0, me.rank, &comm, &config) != weftSuccess) return 2;
    const DeviceStream stream(me.rank);
    const DeviceArray<float> data(Values(kCount, 1), me.rank);
    const auto call = [&] {
      return weftAllReduce(data.data(), data.data(), kCount, weftFloat, weftSum, comm, stream.weft());
    };
    if (call() != weftSuccess) return 3;
    stream.synchronize();
    if (data.get() != Values(kCount, 2)) return 4;
    if (algorithm_of(comm) != "one_hop_proxy") return 5;
    if (me.rank == 1) {
      called.wait_for(1);  // a call after the death would fail
      raise(SIGKILL);
    }
    if (call() != weftSuccess) return 6;
    called.arrive();
    stream.synchronize();  // the kernel has left
    if (async_failure_of(comm) == weftSuccess) return 7;
    const std::string why = weftGetLastError(comm);
    if (why.find("rank 1") == std::string::npos) {
      fprintf(stderr, "%s\n", why.c_str());
      return 8;
    }
    return 0;
  });
  if (exited_with(statuses[0], kNoDevice)) GTEST_SKIP() << "no two CUDA devices, or no plan kernels";
  EXPECT_TRUE(exited_with(statuses[0], 0)) << statuses[0];
}

}  // namespace
}  // namespace weft::testing::proxy_path_test
