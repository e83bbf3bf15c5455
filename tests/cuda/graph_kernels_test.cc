// Captured calls as kernels of a CUDA graph: nothing of the CPU at a launch, beside ordinary calls and other
// graphs in any order; and launches that go wrong.
#include <atomic>
#include <barrier>
#include <list>
#include <optional>
#include <string>
#include <thread>

#include "api/ranks.h"
#include "cuda/graphs.h"
#include "cuda/plan_path.h"

namespace weft::testing::graph_kernels_test {
namespace {

using namespace plan_paths;

constexpr size_t kShort = 100, kLong = 100'000;  // floats: through slots, and through exposed buffers

#define WEFT_NEED_GRAPH_KERNELS() \
  WEFT_NEED_PLAN_PATH();          \
  WEFT_NEED_GRAPHS()

uint64_t operations_of(weftComm_t comm) {
  weftCommStats_t stats = WEFT_COMM_STATS_INITIALIZER;
  EXPECT_EQ(weftCommGetStats(comm, &stats), weftSuccess);
  return stats.operations;
}

/// Twenty calls, short and long, each on what the one before has left; then replays beside ordinary calls,
/// which come before or after by rank.
TEST(PlanPathGraphs, TwentyCallsAreTwentyKernelsWithoutTheCpu) {
  WEFT_NEED_GRAPH_KERNELS();
  WEFT_NEED_FAKE(fake);
  constexpr int kCalls = 20, kRanks = 3;
  std::barrier all(kRanks);
  run_ranks(
      blocks(1, kRanks),
      [&](Rank& me) {
        const DeviceStream stream, beside;
        DeviceArray<float> values(kLong), aside(kShort);
        const auto calls = [&] {
          return std::pair(fake.calls("cuLaunchHostFunc"), fake.calls("cuLaunchKernel"));
        };
        const auto before = calls();
        all.arrive_and_wait();
        Graph graph(stream);
        for (int call = 0; call < kCalls; ++call) {
          const size_t count = call % 2 == 0 ? kShort : kLong;
          WEFT_OK(
              weftAllReduce(values.data(), values.data(), count, weftFloat, weftMax, me.comm, stream.weft()));
        }
        ASSERT_EQ(graph.end(), cuda::kSuccess);
        all.arrive_and_wait();
        const auto after = calls();
        EXPECT_EQ(after.first, before.first);
        EXPECT_EQ(after.second - before.second, uint64_t{kCalls} * kRanks);
        all.arrive_and_wait();
        for (int round = 0; round < 4; ++round) {
          values.set(given(me.rank, round, kLong));
          aside.set(given(me.rank, round, kShort));
          if (me.rank == 0) graph.launch();
          WEFT_OK(all_reduce(aside, aside, kShort, me.comm, beside));
          if (me.rank != 0) graph.launch();
          stream.synchronize();
          beside.synchronize();
          ASSERT_EQ(values.get(), given(kRanks - 1, round, kLong)) << round;
          ASSERT_EQ(aside.get(), sum_of(kRanks, round, kShort)) << round;
        }
        EXPECT_EQ(operations_of(me.comm), 4u * (kCalls + 1));
      },
      on_device);
}

TEST(PlanPathGraphs, TwoMayBeLaunchedInAnotherOrderOnEachRank) {
  WEFT_NEED_GRAPH_KERNELS();
  run_ranks(
      blocks(1, 2),
      [](Rank& me) {
        const DeviceStream streams[2];
        const DeviceArray<float> mine(given(me.rank, 0, kLong)),
            sums[] = {DeviceArray<float>(kLong), DeviceArray<float>(kShort)};
        Graph first(streams[0]);
        WEFT_OK(all_reduce(mine, sums[0], kLong, me.comm, streams[0]));
        ASSERT_EQ(first.end(), cuda::kSuccess);
        Graph second(streams[1]);
        WEFT_OK(all_reduce(mine, sums[1], kShort, me.comm, streams[1]));
        ASSERT_EQ(second.end(), cuda::kSuccess);
        for (int round = 0; round < 5; ++round) {
          (me.rank == 0 ? first : second).launch();
          (me.rank == 0 ? second : first).launch();
        }
        for (const DeviceStream& stream : streams) stream.synchronize();
        EXPECT_EQ(sums[0].get(), sum_of(2, 0, kLong));
        EXPECT_EQ(sums[1].get(), sum_of(2, 0, kShort));
      },
      on_device);
}

TEST(PlanPathGraphs, CallsOfAGroupAndOnForkedStreamsFollowEachOther) {
  WEFT_NEED_GRAPH_KERNELS();
  run_ranks(
      blocks(1, 2),
      [](Rank& me) {
        const DeviceStream stream, forked;
        const DeviceArray<float> a(given(me.rank, 0, kShort)), b(given(me.rank, 1, kLong)), sum_a(kShort),
            sum_b(kLong);
        Graph graph(stream);
        follow(forked, stream);
        WEFT_OK(weftGroupStart());
        WEFT_OK(all_reduce(a, sum_a, kShort, me.comm, stream));
        WEFT_OK(all_reduce(b, sum_b, kLong, me.comm, forked));
        WEFT_OK(weftGroupEnd());
        follow(stream, forked);
        ASSERT_EQ(graph.end(), cuda::kSuccess);
        for (int round = 0; round < 5; ++round) graph.launch();
        stream.synchronize();
        EXPECT_EQ(sum_a.get(), sum_of(2, 0, kShort));
        EXPECT_EQ(sum_b.get(), sum_of(2, 1, kLong));
      },
      on_device);
}

/// A communicator has memory for some graphs at a time. Further ones go step by step.
TEST(PlanPathGraphs, MoreGraphsThanThereIsMemoryForAreRight) {
  WEFT_NEED_GRAPH_KERNELS();
  run_ranks(
      blocks(1, 2),
      [](Rank& me) {
        const DeviceStream stream;
        DeviceArray<float> values(kShort);
        std::string last;
        std::list<Graph> graphs;
        for (int capture = 0; capture < 20; ++capture) {
          Graph& graph = graphs.emplace_back(stream);
          WEFT_OK(all_reduce(values, values, kShort, me.comm, stream));
          ASSERT_EQ(graph.end(), cuda::kSuccess);
          values.set(given(me.rank, capture, kShort));
          graph.launch();
          stream.synchronize();
          ASSERT_EQ(values.get(), sum_of(2, capture, kShort)) << capture;
          last = algorithm_of(me.comm);
          if (capture == 0) {
            EXPECT_EQ(last, "one_hop_kernel");
          }
        }
        EXPECT_EQ(last.find("_kernel"), std::string::npos) << last;
        EXPECT_EQ(operations_of(me.comm), 20u);
      },
      on_device);
}

// ---- Memory

/// Captures a call, replays it, and destroys the graph. Returns how the call was done.
std::string capture_and_replay(const Rank& me, int round, size_t count, const DeviceStream& stream,
                               DeviceArray<float>& values) {
  Graph graph(stream);
  EXPECT_EQ(all_reduce(values, values, count, me.comm, stream), weftSuccess);
  EXPECT_EQ(graph.end(), cuda::kSuccess);
  for (int replay = 0; replay < 2; ++replay) {
    values.set(given(me.rank, round + replay, count));
    graph.launch();
    stream.synchronize();
    Values got = values.get();
    got.resize(count);
    EXPECT_EQ(got, sum_of(me.size, round + replay, count)) << "capture " << round;
  }
  return algorithm_of(me.comm);
}

// Captures after the 16th went step by step.
TEST(PlanPathGraphs, FiftyGraphsOneAfterTheOtherUseTheSameMemory) {
  WEFT_NEED_GRAPH_KERNELS();
  WEFT_NEED_FAKE(fake);
  constexpr int kRanks = 3;
  std::barrier all(kRanks);
  run_ranks(
      blocks(1, kRanks),
      [&](Rank& me) {
        const DeviceStream stream;
        DeviceArray<float> values(kLong);
        (void)capture_and_replay(me, 0, kShort, stream, values);
        all.arrive_and_wait();
        const int64_t before = blocks_of_driver(fake);
        all.arrive_and_wait();
        for (int round = 1; round <= 50; ++round) {
          const bool is_long = round % 3 == 0;
          const std::string by = capture_and_replay(me, round, is_long ? kLong : kShort, stream, values);
          EXPECT_EQ(by, is_long ? "direct_kernel" : "one_hop_kernel") << round;
        }
        all.arrive_and_wait();
        EXPECT_EQ(blocks_of_driver(fake), before);
        all.arrive_and_wait();
      },
      on_device);
}

/// Ranks of one process with a device each.
TEST(PlanPathGraphs, FiftyGraphsOnTwoDevicesUseTheSameMemory) {
  WEFT_NEED_GRAPH_KERNELS();
  WEFT_NEED_FAKE(fake);
  if (*cuda::Device::count() < 2) GTEST_SKIP() << "this machine has one CUDA device";
  std::barrier both(2);
  std::atomic<int64_t> before{0};
  run_ranks(blocks(1, 2), [&](Rank& me) {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.device = me.rank;
    weftComm_t comm;
    WEFT_OK(weftCommSplit(me.comm, 0, me.rank, &comm, &config));
    {
      const DeviceStream stream(me.rank);
      DeviceArray<float> values(kLong, me.rank);
      for (int round = 0; round <= 50; ++round) {
        const cuda::Scope scope(**cuda::Device::open(me.rank));
        cuda::GraphHandle* graph = nullptr;
        void* executable = nullptr;
        CUDA_OK(driver().stream_begin_capture(stream.get(), cuda::kCaptureModeGlobal));
        WEFT_OK(all_reduce(values, values, kLong, comm, stream));
        CUDA_OK(driver().stream_end_capture(stream.get(), &graph));
        CUDA_OK(graph_functions().instantiate(&executable, graph, 0));
        values.set(given(me.rank, round, kLong));
        CUDA_OK(graph_functions().launch(executable, stream.get()));
        stream.synchronize();
        ASSERT_EQ(values.get(), sum_of(2, round, kLong)) << round;
        EXPECT_EQ(algorithm_of(comm), "direct_kernel") << round;
        CUDA_OK(graph_functions().destroy_executable(executable));
        CUDA_OK(driver().graph_destroy(graph));
        both.arrive_and_wait();
        if (round == 0) before = blocks_of_driver(fake);
        both.arrive_and_wait();
      }
      EXPECT_EQ(blocks_of_driver(fake), before.load());
      both.arrive_and_wait();
    }
    WEFT_OK(weftCommDestroy(comm));
  });
}

// Stale packets and flags of an older graph would let ranks read what nobody has sent.
TEST(PlanPathGraphs, ARootThatLaunchesMoreOftenThanItsPeersLeavesNothingForTheNextGraph) {
  WEFT_NEED_GRAPH_KERNELS();
  std::barrier both(2);
  run_ranks(
      blocks(1, 2),
      [&](Rank& me) {
        const DeviceStream stream;
        DeviceArray<float> values(kShort);
        for (int round = 0; round < 40; ++round) {
          Graph graph(stream);
          WEFT_OK(weftBroadcast(values.data(), values.data(), kShort, weftFloat, 0, me.comm, stream.weft()));
          ASSERT_EQ(graph.end(), cuda::kSuccess);
          values.set(given(me.rank, round, kShort));
          graph.launch();
          stream.synchronize();
          EXPECT_EQ(algorithm_of(me.comm), "one_hop_kernel") << round;
          ASSERT_EQ(values.get(), given(0, round, kShort)) << round;
          if (me.rank == 0 && round % 3 == 0) graph.launch();  // its packets wait in the peer's slots
          stream.synchronize();
          both.arrive_and_wait();
        }
      },
      on_device);
}

/// A rank that keeps its graphs keeps the sets from all ranks: both go step by step, and are right.
TEST(PlanPathGraphs, RanksAgreeWhereOneDestroysItsGraphsLater) {
  WEFT_NEED_GRAPH_KERNELS();
  run_ranks(
      blocks(1, 2),
      [](Rank& me) {
        const DeviceStream stream;
        DeviceArray<float> values(kShort);
        std::list<Graph> kept;
        for (int round = 0; round < 40; ++round) {
          kept.emplace_back(stream);
          WEFT_OK(all_reduce(values, values, kShort, me.comm, stream));
          ASSERT_EQ(kept.back().end(), cuda::kSuccess);
          values.set(given(me.rank, round, kShort));
          kept.back().launch();
          stream.synchronize();
          ASSERT_EQ(values.get(), sum_of(2, round, kShort)) << round;
          if (me.rank == 1 || round % 20 == 19) kept.clear();
        }
      },
      on_device);
}

/// The graph is destroyed before its communicator, after it, or after an abort.
TEST(PlanPathGraphs, MemoryOfAGraphThatOutlivesItsCommunicatorIsGivenBack) {
  WEFT_NEED_GRAPH_KERNELS();
  WEFT_NEED_FAKE(fake);
  std::barrier both(2);
  run_ranks(
      blocks(1, 2),
      [&](Rank& me) {
        const DeviceStream stream;
        DeviceArray<float> values(kLong);
        WEFT_OK(all_reduce(values, values, kLong, me.comm, stream));
        stream.synchronize();
        both.arrive_and_wait();
        const int64_t before = blocks_of_driver(fake);
        both.arrive_and_wait();
        for (const bool aborts : {false, true}) {
          weftComm_t comm;
          WEFT_OK(weftCommSplit(me.comm, 0, me.rank, &comm, nullptr));
          std::optional<Graph> graph(stream);
          WEFT_OK(all_reduce(values, values, kLong, comm, stream));
          ASSERT_EQ(graph->end(), cuda::kSuccess);
          graph->launch();
          stream.synchronize();
          both.arrive_and_wait();
          if (aborts) (void)weftCommAbort(comm);
          else WEFT_OK(weftCommDestroy(comm));
          both.arrive_and_wait();
          for (int launch = 0; launch < 3; ++launch) graph->launch();  // pass by
          stream.synchronize();
          std::this_thread::sleep_for(std::chrono::milliseconds(150));
          EXPECT_EQ(blocks_of_driver(fake), before + 2);
          both.arrive_and_wait();
          if (me.rank == 0) graph->launch();  // it is destroyed while it runs
          graph.reset();
          both.arrive_and_wait();
          EXPECT_TRUE(eventually([&] { return blocks_of_driver(fake) == before; }))
              << blocks_of_driver(fake) - before << " blocks more";
          both.arrive_and_wait();
        }
      },
      on_device);
}

// ---- Lifetimes and failures

TEST(PlanPathGraphs, AGraphThatIsDestroyedWhileItRunsEnds) {
  WEFT_NEED_GRAPH_KERNELS();
  std::barrier both(2);
  run_ranks(
      blocks(1, 2),
      [&](Rank& me) {
        const DeviceStream stream;
        const DeviceArray<float> mine(given(me.rank, 0, kLong)), sum(kLong);
        {
          Graph graph(stream);
          WEFT_OK(all_reduce(mine, sum, kLong, me.comm, stream));
          ASSERT_EQ(graph.end(), cuda::kSuccess);
          if (me.rank == 0) graph.launch();
          both.arrive_and_wait();
          if (me.rank == 1) graph.launch();
        }
        stream.synchronize();
        EXPECT_EQ(sum.get(), sum_of(2, 0, kLong));
      },
      on_device);
}

/// Nobody can tell the CPU of a launch, so the kernel keeps the deadline.
TEST(PlanPathGraphs, ARankThatDoesNotLaunchIsNamedAndTheStreamGoesOn) {
  WEFT_NEED_GRAPH_KERNELS();
  std::barrier both(2);
  run_ranks(
      blocks(1, 2),
      [&](Rank& me) {
        const DeviceStream stream;
        const DeviceArray<float> values(Values(kShort, 1));
        Graph graph(stream);
        WEFT_OK(all_reduce(values, values, kShort, me.comm, stream));
        ASSERT_EQ(graph.end(), cuda::kSuccess);
        if (me.rank == 0) {
          graph.launch();
          stream.synchronize();
          EXPECT_EQ(async_failure_of(me.comm), weftTimeout);
          expect_reason(me.comm, "waited too long for rank 1");
          graph.launch();  // is left out
          stream.synchronize();
          EXPECT_NE(all_reduce(values, values, kShort, me.comm, stream), weftSuccess);
        }
        abort_together(me, both);
      },
      on_device_for_a_second);
}

// The call and weftCommFinalize succeeded, and the peer was not told.
TEST(PlanPathGraphs, AfterATimeoutTheNextCallFailsAndFinalizeToo) {
  WEFT_NEED_GRAPH_KERNELS();
  for (const bool finalizes : {false, true}) {
    std::barrier both(2);
    run_ranks(
        blocks(1, 2),
        [&](Rank& me) {
          const DeviceStream stream;
          const DeviceArray<float> values(Values(kShort, 1));
          Graph graph(stream);
          WEFT_OK(all_reduce(values, values, kShort, me.comm, stream));
          ASSERT_EQ(graph.end(), cuda::kSuccess);
          if (me.rank == 0) {
            graph.launch();
            stream.synchronize();
            EXPECT_EQ(
                finalizes ? weftCommFinalize(me.comm) : all_reduce(values, values, kShort, me.comm, stream),
                weftTimeout);
          } else {
            EXPECT_NE(async_failure_of(me.comm), weftSuccess);
          }
          abort_together(me, both);
        },
        on_device_for_a_second);
  }
}

// Both kernels ended well, with wrong results.
TEST(PlanPathGraphs, RanksThatCaptureSomethingElseAreTold) {
  WEFT_NEED_GRAPH_KERNELS();
  for (const bool other_type : {false, true}) {
    std::barrier both(2);
    run_ranks(
        blocks(1, 2),
        [&](Rank& me) {
          const DeviceStream stream;
          const DeviceArray<float> values(Values(kShort, 1));
          Graph graph(stream);
          const auto call = [&](weftDataType_t type, weftRedOp_t op) {
            return weftAllReduce(values.data(), values.data(), kShort, type, op, me.comm, stream.weft());
          };
          if (me.rank == 0) WEFT_OK(call(weftFloat, weftSum));
          both.arrive_and_wait();
          if (me.rank == 1) {
            EXPECT_NE(other_type ? call(weftInt32, weftSum) : call(weftFloat, weftMax), weftSuccess);
            expect_reason(me.comm, "rank 0 has captured another call");
          }
          ASSERT_EQ(graph.end(), cuda::kSuccess);
          EXPECT_NE(async_failure_of(me.comm), weftSuccess);
          graph.launch();
          stream.synchronize();
          EXPECT_EQ(values.get(), Values(kShort, 1));
          abort_together(me, both);
        },
        on_device);
  }
}

// The second kernel stood behind the first, which waited for it.
TEST(PlanPathGraphs, TwoRanksOnOneCapturedStreamAreTold) {
  WEFT_NEED_GRAPH_KERNELS();
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
    const DeviceArray<float> a(Values(kShort, 1)), b(Values(kShort, 1));
    Graph graph(stream);
    WEFT_OK(weftGroupStart());
    WEFT_OK(all_reduce(a, a, kShort, comms[0], stream));
    WEFT_OK(all_reduce(b, b, kShort, comms[1], stream));
    EXPECT_EQ(weftGroupEnd(), weftInvalidUsage);
    expect_reason(nullptr, "rank 0 has called it on the same CUDA stream");
    ASSERT_EQ(graph.end(), cuda::kSuccess);
    graph.launch();
    stream.synchronize();  // it goes on
  }
  for (weftComm_t comm : comms) (void)weftCommAbort(comm);
}

// A rank that could not have a capture counted it. Its next one was matched with another one of its peers.
TEST(PlanPathGraphs, ACaptureThatOneRankCannotHaveFailsTheCommunicator) {
  WEFT_NEED_GRAPH_KERNELS();
  WEFT_NEED_FAKE(fake);
  std::barrier both(2);
  run_ranks(
      blocks(1, 2),
      [&](Rank& me) {
        const DeviceStream stream;
        const DeviceArray<float> values(Values(kShort, 1));
        both.arrive_and_wait();
        if (me.rank == 0) {
          Graph graph(stream);
          fake.fail_after("cuEventCreate", 0, cuda::kLaunchFailed);
          EXPECT_NE(all_reduce(values, values, kShort, me.comm, stream), weftSuccess);
          ASSERT_EQ(graph.end(), cuda::kSuccess);
        }
        EXPECT_NE(async_failure_of(me.comm), weftSuccess);
        abort_together(me, both);
      },
      on_device);
}

TEST(PlanPathGraphs, AnAbortLetsALaunchGoOnAndLaterOnesPassBy) {
  WEFT_NEED_GRAPH_KERNELS();
  std::barrier both(2);
  run_ranks(
      blocks(1, 2),
      [&](Rank& me) {
        const DeviceStream stream;
        const DeviceArray<float> values(Values(kLong, 1));
        Graph graph(stream);
        WEFT_OK(all_reduce(values, values, kLong, me.comm, stream));
        ASSERT_EQ(graph.end(), cuda::kSuccess);
        if (me.rank == 0) {
          graph.launch();
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          WEFT_OK(weftCommAbort(me.comm));
          stream.synchronize();
        }
        both.arrive_and_wait();
        if (me.rank == 1) (void)weftCommAbort(me.comm);
        me.comm = nullptr;
        graph.launch();
        stream.synchronize();
      },
      on_device);
}

}  // namespace
}  // namespace weft::testing::graph_kernels_test
