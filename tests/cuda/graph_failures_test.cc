// Launches of CUDA graphs that go wrong: ranks that captured different calls, a driver's errors, aborts;
// graphs that outlive their communicator, and communicators that outlive their graphs.
#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "api/ranks.h"
#include "cuda/graphs.h"

namespace weft::testing::graph_failures_test {
namespace {

bool mentions(const char* text, const char* words) {
  return std::string(text).find(words) != std::string::npos;
}

TEST(GraphFailures, RanksThatCapturedDifferentCallsAreToldAndTheirStreamsGoOn) {
  WEFT_NEED_GRAPHS();
  run_ranks(
      blocks(1, 2),
      [](Rank& me) {
        const DeviceStream stream;
        const DeviceArray<float> send(200), recv(200);
        Graph graph(stream);
        WEFT_OK(all_reduce(send, recv, me.rank == 0 ? 100 : 200, me.comm, stream));
        ASSERT_EQ(graph.end(), cuda::kSuccess);
        graph.launch();
        stream.synchronize();
        const weftResult_t health = failure_of(me.comm);
        EXPECT_TRUE(health == weftMismatch || health == weftRemoteError) << health;
        EXPECT_TRUE(mentions(weftGetLastError(me.comm), "graph 1")) << weftGetLastError(me.comm);
        graph.launch();
        stream.synchronize();
        EXPECT_NE(all_reduce(send, recv, 100, me.comm, stream), weftSuccess);
      },
      on_device);
}

TEST(GraphFailures, ADriversErrorAtALaunchFailsTheCommunicatorAndLetsTheStreamGoOn) {
  WEFT_NEED_GRAPHS();
  WEFT_NEED_FAKE(fake);
  run_ranks(
      blocks(1, 1),
      [&](Rank& me) {
        const DeviceStream stream;
        const DeviceArray<float> send(100), recv(100);
        Graph graph(stream);
        WEFT_OK(all_reduce(send, recv, 100, me.comm, stream));
        ASSERT_EQ(graph.end(), cuda::kSuccess);
        fake.fail_after("cuMemcpyAsync", 0, cuda::kIllegalAddress);
        graph.launch();
        stream.synchronize();
        EXPECT_EQ(failure_of(me.comm), weftUnhandledCudaError);
        EXPECT_TRUE(mentions(weftGetLastError(me.comm), "illegal memory access"))
            << weftGetLastError(me.comm);
      },
      on_device);
}

TEST(GraphFailures, AnAbortLetsALaunchGoOnThatWaitsForAPeer) {
  WEFT_NEED_GRAPHS();
  run_ranks(
      blocks(2, 1),
      [](Rank& me) {
        const DeviceStream stream;
        const DeviceArray<float> send(1000), recv(1000);
        Graph graph(stream);
        WEFT_OK(all_reduce(send, recv, 1000, me.comm, stream));
        ASSERT_EQ(graph.end(), cuda::kSuccess);
        if (me.rank == 0) {  // the other never comes
          graph.launch();
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          WEFT_OK(weftCommAbort(me.comm));
          me.comm = nullptr;
          graph.launch();
          stream.synchronize();
        } else {
          EXPECT_EQ(failure_of(me.comm), weftRemoteError);
        }
      },
      on_device);
}

// ---- Lifetimes

TEST(GraphLifetimes, ALaunchAfterTheCommunicatorIsGonePassesBy) {
  WEFT_NEED_GRAPHS();
  run_ranks(
      blocks(1, 2),
      [](Rank& me) {
        const DeviceStream stream;
        DeviceArray<float> values(Values(100, 1.f));
        Graph graph(stream);
        WEFT_OK(all_reduce(values, values, 100, me.comm, stream));
        ASSERT_EQ(graph.end(), cuda::kSuccess);
        graph.launch();
        stream.synchronize();
        WEFT_OK(weftCommDestroy(me.comm));
        me.comm = nullptr;
        graph.launch();
        graph.launch();
        stream.synchronize();
        EXPECT_EQ(values.get(), Values(100, 2.f));
      },
      on_device);
}

TEST(GraphLifetimes, ACommunicatorThatIsDestroyedWaitsForLaunchesThatHaveComeToIt) {
  WEFT_NEED_GRAPHS();
  run_ranks(
      blocks(1, 2),
      [](Rank& me) {
        const DeviceStream stream, other;
        const DeviceArray<float> send(Values(100, 1.f)), recv(Values(100, 0.f)), after(Values(100, 1.f));
        Graph graph(stream);
        WEFT_OK(all_reduce(send, recv, 100, me.comm, stream));
        ASSERT_EQ(graph.end(), cuda::kSuccess);
        graph.launch();
        if (me.rank == 0) {  // an ordinary call that ends after the launch has come
          stream.synchronize();
        } else {
          weftCommStats_t stats = WEFT_COMM_STATS_INITIALIZER;
          while (stats.operations == 0) WEFT_OK(weftCommGetStats(me.comm, &stats));
        }
        WEFT_OK(weftCommDestroy(me.comm));
        me.comm = nullptr;
        stream.synchronize();
        EXPECT_EQ(recv.get(), Values(100, 2.f));
      },
      on_device);
}

std::string last_algorithm(const Rank& me) {
  weftCommStats_t stats = WEFT_COMM_STATS_INITIALIZER;
  EXPECT_EQ(weftCommGetStats(me.comm, &stats), weftSuccess);
  return stats.lastAlgorithm;
}

TEST(GraphLifetimes, WhatADestroyedGraphHeldIsGivenUpAtTheNextCapture) {
  WEFT_NEED_GRAPHS();
  const FakeControls fake;
  run_ranks(
      blocks(1, 2),
      [&](Rank& me) {
        const DeviceStream stream;
        const DeviceArray<float> mine(given(me.rank, 0, 10)), sum(10);
        const std::string path = ::testing::TempDir() + "weft_graphs." + std::to_string(me.rank);
        const auto dumped = [&] {
          EXPECT_EQ(weftCommDump(me.comm, path.c_str()), weftSuccess);
          std::stringstream text;
          text << std::ifstream(path).rdbuf();
          std::remove(path.c_str());
          return text.str();
        };
        for (int round = 1; round <= 3; ++round) {
          Graph graph(stream);
          WEFT_OK(all_reduce(mine, sum, 10, me.comm, stream));
          ASSERT_EQ(graph.end(), cuda::kSuccess);
          EXPECT_EQ(last_algorithm(me).empty(), round == 1);
          graph.launch();
          stream.synchronize();
          EXPECT_EQ(sum.get(), sum_of(2, 0, 10));
          EXPECT_FALSE(last_algorithm(me).empty());
          const std::string text = dumped();
          for (int other = 1; other <= 3; ++other) {
            if (other < round && !fake.valid()) continue;  // a driver gives up a graph when it likes
            EXPECT_EQ(mentions(text.c_str(), ("world graph " + std::to_string(other)).c_str()),
                      other == round);
          }
        }
        weftCommStats_t stats = WEFT_COMM_STATS_INITIALIZER;
        WEFT_OK(weftCommGetStats(me.comm, &stats));
        EXPECT_EQ(stats.operations, 3u);
      },
      on_device);
}

}  // namespace
}  // namespace weft::testing::graph_failures_test
