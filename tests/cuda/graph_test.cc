// Operations in CUDA graphs: captured, launched again and again, mixed with ordinary calls in another order
// on each rank; calls that a capture refuses. What goes wrong at a launch is in graph_failures_test.cc.
#include <vector>

#include "api/ranks.h"
#include "cuda/graphs.h"

namespace weft::testing::graph_test {
namespace {

bool mentions(const char* text, const char* words) {
  return std::string(text).find(words) != std::string::npos;
}

Values gathered(int size, int round, size_t count) {
  Values v;
  for (int r = 0; r < size; ++r) {
    const Values part = given(r, round, count);
    v.insert(v.end(), part.begin(), part.end());
  }
  return v;
}

// ---- What is captured is done at every launch

struct GraphLayouts : ::testing::TestWithParam<Nodes> {
  void SetUp() override { WEFT_NEED_GRAPHS(); }
};

TEST_P(GraphLayouts, CollectivesAreDoneAnewAtEveryLaunchBesideOrdinaryCalls) {
  run_ranks(
      GetParam(),
      [](Rank& me) {
        const DeviceStream stream, beside;
        for (size_t count : {size_t{5}, size_t{40001}}) {
          const size_t all = count * static_cast<size_t>(me.size);
          DeviceArray<float> mine(count), summed(count), own(count), everything(all), part(count),
              other(count), aside(count);
          Graph graph(stream);
          WEFT_OK(all_reduce(mine, summed, count, me.comm, stream));
          WEFT_OK(weftAllGather(mine.data(), everything.data(), count, weftFloat, me.comm, stream.weft()));
          WEFT_OK(weftReduceScatter(everything.data(), part.data(), count, weftFloat, weftSum, me.comm,
                                    stream.weft()));
          WEFT_OK(weftBcast(own.data(), count, weftFloat, me.size - 1, me.comm, stream.weft()));
          ASSERT_EQ(graph.end(), cuda::kSuccess);
          for (int round = 0; round < 3; ++round) {
            mine.set(given(me.rank, round, count));
            own.set(given(me.rank, round, count));
            other.set(given(me.rank, round + 9, count));
            // Which comes first differs from rank to rank: a captured operation has no place among the
            // others.
            if (me.rank % 2 == 0) graph.launch();
            WEFT_OK(all_reduce(other, aside, count, me.comm, beside));
            if (me.rank % 2 == 1) graph.launch();
            stream.synchronize();
            beside.synchronize();
            ASSERT_EQ(summed.get(), sum_of(me.size, round, count)) << round;
            ASSERT_EQ(everything.get(), gathered(me.size, round, count)) << round;
            Values times = given(me.rank, round, count);
            for (float& x : times) x *= static_cast<float>(me.size);
            ASSERT_EQ(part.get(), times) << round;
            ASSERT_EQ(own.get(), given(me.size - 1, round, count)) << round;
            ASSERT_EQ(aside.get(), sum_of(me.size, round + 9, count)) << round;
          }
        }
      },
      on_device);
}

TEST_P(GraphLayouts, AGroupsTransfersAndACopyToItselfRunTogetherAtEveryLaunch) {
  run_ranks(
      GetParam(),
      [](Rank& me) {
        const DeviceStream stream;
        const size_t count = 3000;
        DeviceArray<float> mine(count), received(count), own(count), in_place(count);
        const int next = (me.rank + 1) % me.size, previous = (me.rank + me.size - 1) % me.size;
        Graph graph(stream);
        WEFT_OK(weftGroupStart());
        WEFT_OK(weftSend(mine.data(), count, weftFloat, next, me.comm, stream.weft()));
        WEFT_OK(weftRecv(received.data(), count, weftFloat, previous, me.comm, stream.weft()));
        WEFT_OK(weftSend(mine.data(), count, weftFloat, me.rank, me.comm, stream.weft()));
        WEFT_OK(weftRecv(own.data(), count, weftFloat, me.rank, me.comm, stream.weft()));
        WEFT_OK(all_reduce(in_place, in_place, count, me.comm, stream));
        WEFT_OK(weftGroupEnd());
        ASSERT_EQ(graph.end(), cuda::kSuccess);
        for (int round = 0; round < 3; ++round) {
          mine.set(given(me.rank, round, count));
          in_place.set(given(me.rank, round, count));
          graph.launch();
          stream.synchronize();
          ASSERT_EQ(received.get(), given(previous, round, count)) << round;
          ASSERT_EQ(own.get(), given(me.rank, round, count)) << round;
          ASSERT_EQ(in_place.get(), sum_of(me.size, round, count)) << round;
        }
        weftCommStats_t stats = WEFT_COMM_STATS_INITIALIZER;
        WEFT_OK(weftCommGetStats(me.comm, &stats));
        EXPECT_EQ(stats.operations, me.size == 1 ? 3 * 3u : 3 * 4u);
      },
      on_device);
}

INSTANTIATE_TEST_SUITE_P(Nodes, GraphLayouts,
                         ::testing::Values(blocks(1, 3), blocks(2, 2), Nodes{"a", "b", "a"}),
                         [](const auto& info) {
                           std::string name;
                           for (const auto& node : info.param) name += node.back();
                           return name;
                         });

TEST(Graphs, ForkedStreamsOfOneCaptureRunBesideEachOther) {
  WEFT_NEED_GRAPHS();
  run_ranks(
      blocks(1, 3),
      [](Rank& me) {
        const DeviceStream stream, forked;
        const size_t count = 5000;
        DeviceArray<float> a(count), b(count), sum_a(count), sum_b(count), twice(count);
        Graph graph(stream);
        follow(forked, stream);
        WEFT_OK(all_reduce(a, sum_a, count, me.comm, stream));
        WEFT_OK(all_reduce(b, sum_b, count, me.comm, forked));
        follow(stream, forked);
        WEFT_OK(all_reduce(sum_b, twice, count, me.comm, stream));
        ASSERT_EQ(graph.end(), cuda::kSuccess);
        for (int round = 0; round < 10; ++round) {
          a.set(given(me.rank, round, count));
          b.set(given(me.rank, round + 1, count));
          graph.launch();
          stream.synchronize();
          ASSERT_EQ(sum_a.get(), sum_of(me.size, round, count)) << round;
          Values times = sum_of(me.size, round + 1, count);
          ASSERT_EQ(sum_b.get(), times) << round;
          for (float& x : times) x *= 3;
          ASSERT_EQ(twice.get(), times) << round;
        }
      },
      on_device);
}

TEST(Graphs, TwoOfACommunicatorMayBeLaunchedInAnotherOrderOnEachRank) {
  WEFT_NEED_GRAPHS();
  run_ranks(
      blocks(2, 1),
      [](Rank& me) {
        const DeviceStream streams[2];
        const size_t count = 1000;
        const DeviceArray<float> mine(given(me.rank, 0, count)), sum(count), all(2 * count);
        Graph first(streams[0]);
        WEFT_OK(all_reduce(mine, sum, count, me.comm, streams[0]));
        ASSERT_EQ(first.end(), cuda::kSuccess);
        Graph second(streams[1]);
        WEFT_OK(weftAllGather(mine.data(), all.data(), count, weftFloat, me.comm, streams[1].weft()));
        ASSERT_EQ(second.end(), cuda::kSuccess);
        for (int round = 0; round < 5; ++round) {
          (me.rank == 0 ? first : second).launch();
          (me.rank == 0 ? second : first).launch();
        }
        for (const DeviceStream& stream : streams) stream.synchronize();
        EXPECT_EQ(sum.get(), sum_of(2, 0, count));
        EXPECT_EQ(all.get(), gathered(2, 0, count));
      },
      on_device);
}

TEST(Graphs, LaunchesOfTwoExecutablesOfOneGraphMayOverlap) {
  WEFT_NEED_GRAPHS();
  run_ranks(
      blocks(1, 2),
      [](Rank& me) {
        const DeviceStream stream, other;
        const size_t count = 1000;
        const DeviceArray<float> mine(given(me.rank, 0, count)), sum(count);
        Graph graph(stream);
        WEFT_OK(all_reduce(mine, sum, count, me.comm, stream));
        ASSERT_EQ(graph.end(), cuda::kSuccess);
        ASSERT_EQ(graph.instantiate(), cuda::kSuccess);
        for (int round = 0; round < 10; ++round) {
          graph.launch(stream);
          graph.launch(other, 1);
        }
        stream.synchronize();
        other.synchronize();
        EXPECT_EQ(sum.get(), sum_of(2, 0, count));
      },
      on_device);
}

TEST(Graphs, OneThreadCapturesAllRanksOnOneStreamInAGroup) {
  WEFT_NEED_GRAPHS();
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
    const size_t count = 100;
    DeviceArray<float> a(count), b(count);
    Graph graph(stream);
    WEFT_OK(weftGroupStart());
    WEFT_OK(all_reduce(a, a, count, comms[0], stream));
    WEFT_OK(all_reduce(b, b, count, comms[1], stream));
    WEFT_OK(weftGroupEnd());
    ASSERT_EQ(graph.end(), cuda::kSuccess);
    for (int round = 0; round < 3; ++round) {
      a.set(given(0, round, count));
      b.set(given(1, round, count));
      graph.launch();
      stream.synchronize();
      ASSERT_EQ(a.get(), sum_of(2, round, count));
      ASSERT_EQ(b.get(), sum_of(2, round, count));
    }
  }
  for (weftComm_t comm : comms) WEFT_OK(weftCommDestroy(comm));
}

TEST(GraphCalls, AScalarOfTheDeviceIsReadAtEveryLaunch) {
  WEFT_NEED_GRAPHS();
  run_ranks(
      blocks(2, 2),
      [](Rank& me) {
        const DeviceStream stream;
        const float own = static_cast<float>(me.rank + 1);
        DeviceArray<float> values(Values(1000, 2.f)), sum(1000), scalar(Values{own});
        weftRedOp_t op;
        WEFT_OK(weftRedOpCreatePreMulSum(&op, scalar.data(), weftFloat, weftScalarDevice, me.comm));
        Graph graph(stream);
        WEFT_OK(weftAllReduce(values.data(), sum.data(), 1000, weftFloat, op, me.comm, stream.weft()));
        ASSERT_EQ(graph.end(), cuda::kSuccess);
        for (const float factor : {1.f, 3.f}) {
          scalar.set(Values{factor * own});
          graph.launch();
          stream.synchronize();
          EXPECT_EQ(sum.get(), Values(1000, factor * 2 * (1 + 2 + 3 + 4)));
        }
      },
      on_device);
}

// ---- Calls that a capture refuses

TEST(GraphCalls, ARefusedCallLeavesTheCaptureAsItIs) {
  WEFT_NEED_GRAPHS();
  run_ranks(
      blocks(1, 1),
      [](Rank& me) {
        const DeviceStream stream;
        const DeviceArray<float> values(Values(10, 2.f));
        float three = 3;
        weftRedOp_t from_device, from_host;
        WEFT_OK(weftRedOpCreatePreMulSum(&from_device, &three, weftFloat, weftScalarDevice, me.comm));
        WEFT_OK(weftRedOpCreatePreMulSum(&from_host, &three, weftFloat, weftScalarHostImmediate, me.comm));
        Graph graph(stream);
        const auto reduce = [&](const void* send, weftRedOp_t op) {
          return weftAllReduce(send, values.data(), 10, weftFloat, op, me.comm, stream.weft());
        };
        Values on_host(10);
        EXPECT_EQ(reduce(on_host.data(), weftSum), weftInvalidPointer);
        EXPECT_EQ(reduce(values.data(), from_device), weftUnsupported);
        EXPECT_TRUE(mentions(weftGetLastError(nullptr), "weftScalarHostImmediate"))
            << weftGetLastError(nullptr);
        WEFT_OK(reduce(values.data(), from_host));
        ASSERT_EQ(graph.end(), cuda::kSuccess);
        graph.launch();
        graph.launch();
        stream.synchronize();
        EXPECT_EQ(values.get(), Values(10, 18.f));
      },
      on_device);
}

TEST(GraphCalls, ASpoiledCaptureAndTheDefaultStreamAreToldByName) {
  WEFT_NEED_FAKE(fake);
  run_ranks(
      blocks(1, 1),
      [&](Rank& me) {
        const DeviceStream stream;
        const DeviceArray<float> send(Values(100, 2.f)), recv(100);
        Graph graph(stream);
        {
          const cuda::Scope scope(**cuda::Device::open(0));
          EXPECT_NE(driver().stream_synchronize(stream.get()), cuda::kSuccess);
        }
        EXPECT_EQ(all_reduce(send, recv, 100, me.comm, stream), weftInvalidUsage);
        EXPECT_TRUE(mentions(weftGetLastError(nullptr), "cudaStreamEndCapture")) << weftGetLastError(nullptr);
        EXPECT_NE(graph.end(), cuda::kSuccess);
        fake.fail_after("cuStreamIsCapturing", 0, cuda::kStreamCaptureImplicit);
        EXPECT_EQ(all_reduce(send, recv, 100, me.comm, stream), weftUnsupported);
        EXPECT_TRUE(mentions(weftGetLastError(nullptr), "default stream")) << weftGetLastError(nullptr);
        WEFT_OK(all_reduce(send, recv, 100, me.comm, stream));
        stream.synchronize();
        EXPECT_EQ(recv.get(), Values(100, 2.f));
      },
      on_device);
}

TEST(GraphCalls, WhereAGraphCannotHoldThemTheyAreRefusedAndTheCaptureGoesOn) {
  WEFT_NEED_DEVICE();
  if ((*cuda::Device::open(0))->can_be_captured().ok()) GTEST_SKIP() << "graphs can hold operations here";
  run_ranks(
      blocks(1, 1),
      [](Rank& me) {
        const DeviceStream stream;
        const DeviceArray<float> send(Values(100, 2.f)), recv(100);
        Graph graph(stream);
        EXPECT_EQ(all_reduce(send, recv, 100, me.comm, stream), weftUnsupported);
        EXPECT_TRUE(mentions(weftGetLastError(nullptr), "between two graphs")) << weftGetLastError(nullptr);
        WEFT_OK(weftGroupStart());
        const weftResult_t in_group = all_reduce(send, recv, 100, me.comm, stream);
        const weftResult_t ended = weftGroupEnd();
        EXPECT_TRUE(in_group == weftUnsupported || ended == weftUnsupported) << in_group << " " << ended;
        EXPECT_EQ(graph.end(), cuda::kSuccess);
        WEFT_OK(all_reduce(send, recv, 100, me.comm, stream));
        stream.synchronize();
        EXPECT_EQ(recv.get(), Values(100, 2.f));
      },
      on_device);
}

TEST(GraphCalls, ACaptureOnAnotherStreamIsNotDisturbed) {
  WEFT_NEED_DEVICE();
  run_ranks(
      blocks(2, 1),
      [](Rank& me) {
        const DeviceStream captured, stream;
        Graph graph(captured);
        for (size_t count : {size_t{10}, size_t{3'000'000}}) {  // the longer one needs memory of its own
          const DeviceArray<float> send(Values(count, 2.f)), recv(count);
          WEFT_OK(all_reduce(send, recv, count, me.comm, stream));
          stream.synchronize();
          EXPECT_EQ(recv.get(), Values(count, 4.f));
        }
        EXPECT_EQ(graph.end(), cuda::kSuccess);
      },
      on_device);
}

}  // namespace
}  // namespace weft::testing::graph_test
