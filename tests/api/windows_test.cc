// One-sided operations: puts into windows, signals, and waits for them.
#include <atomic>
#include <cstring>
#include <latch>
#include <numeric>

#include "api/processes.h"

namespace weft::testing {
namespace {

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::byte pattern(int from, int to, size_t i) { return static_cast<std::byte>(from * 31 + to * 7 + i * 13); }

weftResult_t put(const void* from, size_t bytes, int peer, weftWindow_t window, size_t offset, Rank& me,
                 weftStream_t stream = nullptr, int signal = 0) {
  return weftPutSignal(from, bytes, weftUint8, peer, window, offset, signal, 0, 0, me.comm, stream);
}

weftResult_t wait_for(int peer, int signals, Rank& me, weftStream_t stream = nullptr, int index = 0,
                      int context = 0) {
  const weftWaitSignalDesc_t awaited{signals, peer, index, context};
  return weftWaitSignal(1, &awaited, me.comm, stream);
}

/// A window of this rank, and its memory.
struct Opened {
  std::vector<std::byte> memory;
  weftWindow_t window = nullptr;
};

void open(Opened& opened, size_t bytes, Rank& me) {
  opened.memory.assign(bytes, std::byte{0});
  WEFT_OK(weftCommWindowRegister(me.comm, opened.memory.data(), bytes, &opened.window, WEFT_WIN_DEFAULT));
}

void close(Opened& opened, Rank& me) {
  float all = 1;  // no rank has puts on their way any more
  WEFT_OK(weftAllReduce(&all, &all, 1, weftFloat, weftSum, me.comm, nullptr));
  WEFT_OK(weftCommWindowDeregister(me.comm, opened.window));
}

struct Windows : ::testing::TestWithParam<Nodes> {};

// Every rank has a window of another size, and takes a block of every rank, also of itself.
TEST_P(Windows, TakeBlocksOfAllRanks) {
  run_ranks(GetParam(), [](Rank& me) {
    for (const size_t bytes : {size_t{1}, size_t{100}, size_t{5000}, size_t{70'001}, size_t{2'000'003}}) {
      Opened own;
      open(own, bytes * static_cast<size_t>(me.size) + static_cast<size_t>(me.rank) * 17, me);
      std::vector<std::vector<std::byte>> blocks;
      std::vector<weftWaitSignalDesc_t> awaited;
      for (int peer = 0; peer < me.size; ++peer) {
        blocks.emplace_back(bytes);
        for (size_t i = 0; i < bytes; ++i) blocks.back()[i] = pattern(me.rank, peer, i);
        WEFT_OK(put(blocks.back().data(), bytes, peer, own.window, static_cast<size_t>(me.rank) * bytes, me));
        awaited.push_back({1, peer, 0, 0});
      }
      WEFT_OK(weftWaitSignal(me.size, awaited.data(), me.comm, nullptr));
      for (int from = 0; from < me.size; ++from)
        for (size_t i = 0; i < bytes; ++i)
          ASSERT_EQ(own.memory[static_cast<size_t>(from) * bytes + i], pattern(from, me.rank, i))
              << "byte " << i << " of " << bytes << " from rank " << from << " to rank " << me.rank;
      close(own, me);
    }
  });
}

// Only the last of many puts signals: it must not be heard of before the others are there.
TEST_P(Windows, CountASignalOnlyAfterAllPutsBeforeIt) {
  run_ranks(GetParam(), [](Rank& me) {
    constexpr size_t kPuts = 150;
    const int to = (me.rank + 1) % me.size, from = (me.rank + me.size - 1) % me.size;
    std::vector<size_t> begins{0};
    for (size_t i = 0; i < kPuts; ++i)
      begins.push_back(begins.back() + (i % 10 == 3 ? 90'000 : i * 37 % 900));
    Opened own;
    open(own, begins.back(), me);
    std::vector<std::byte> source(begins.back());
    for (size_t i = 0; i < source.size(); ++i) source[i] = pattern(me.rank, to, i);
    weftStream_t streams[2];
    for (weftStream_t& stream : streams) WEFT_OK(weftStreamCreate(&stream));
    for (size_t i = 0; i < kPuts; ++i)
      WEFT_OK(put(source.data() + begins[i], begins[i + 1] - begins[i], to, own.window, begins[i], me,
                  streams[0], i + 1 == kPuts ? 0 : WEFT_SIGNAL_NONE));
    WEFT_OK(wait_for(from, 1, me, streams[1]));
    WEFT_OK(weftStreamSynchronize(streams[1]));
    for (size_t i = 0; i < source.size(); ++i) ASSERT_EQ(own.memory[i], pattern(from, me.rank, i)) << i;
    for (weftStream_t stream : streams) WEFT_OK(weftStreamDestroy(stream));
    close(own, me);
  });
}

// In a group a signal leaves together with the put before it, and overtakes that one's data. A count at the
// signal's arrival would be too early. That of a put to oneself was.
TEST_P(Windows, CountASignalThatOvertakesItsPutWhenThePutIsThere) {
  run_ranks(GetParam(), [](Rank& me) {
    constexpr size_t kBytes = 8 << 20;
    const int to = (me.rank + 1) % me.size, from = (me.rank + me.size - 1) % me.size;
    Opened own;
    open(own, kBytes, me);
    weftStream_t stream;
    WEFT_OK(weftStreamCreate(&stream));
    for (int round = 1; round <= 5; ++round) {
      const std::vector<std::byte> source(kBytes, static_cast<std::byte>(16 * round + me.rank));
      WEFT_OK(weftGroupStart());
      WEFT_OK(put(source.data(), kBytes, to, own.window, 0, me, stream, WEFT_SIGNAL_NONE));
      WEFT_OK(weftSignal(to, 0, 0, 0, me.comm, stream));
      WEFT_OK(weftGroupEnd());
      WEFT_OK(wait_for(from, 1, me));
      ASSERT_EQ(own.memory.back(), static_cast<std::byte>(16 * round + from)) << round;
      WEFT_OK(weftStreamSynchronize(stream));
      int all = 1;  // have looked at their windows
      WEFT_OK(weftAllReduce(&all, &all, 1, weftInt32, weftSum, me.comm, nullptr));
    }
    WEFT_OK(weftStreamDestroy(stream));
    close(own, me);
  });
}

// Over and over into the same place: each round is ordered by a signal back.
TEST_P(Windows, CarryAPingPong) {
  run_ranks(GetParam(), [](Rank& me) {
    if (me.size < 2) return;
    Opened own;
    open(own, sizeof(int), me);
    for (int round = 1; round <= 200 && me.rank < 2; ++round) {
      const int peer = 1 - me.rank;
      if (me.rank == 0) WEFT_OK(put(&round, sizeof round, peer, own.window, 0, me));
      WEFT_OK(wait_for(peer, 1, me));
      int came = 0;
      std::memcpy(&came, own.memory.data(), sizeof came);
      ASSERT_EQ(came, round);
      if (me.rank == 1) WEFT_OK(put(&round, sizeof round, peer, own.window, 0, me));
    }
    close(own, me);
  });
}

INSTANTIATE_TEST_SUITE_P(Nodes, Windows,
                         ::testing::Values(blocks(1, 1), blocks(1, 3), blocks(2, 1), blocks(2, 2),
                                           Nodes{"a", "a", "b"}),
                         [](const auto& info) {
                           std::string name;
                           for (const std::string& node : info.param) name += node.back();
                           return name;
                         });

TEST(OneSided, SignalsAreCountedBySenderIndexAndContext) {
  run_ranks(blocks(2, 1), [](Rank& me) {
    const int peer = 1 - me.rank;
    for (int i = 0; i < 3; ++i) WEFT_OK(weftSignal(peer, 5, 0, 0, me.comm, nullptr));
    WEFT_OK(weftSignal(peer, 5, 2, 0, me.comm, nullptr));
    WEFT_OK(weftSignal(me.rank, 7, 0, 0, me.comm, nullptr));
    const weftWaitSignalDesc_t awaited[] = {
        {2, peer, 5, 0}, {1, peer, 5, 2}, {1, me.rank, 7, 0}, {0, peer, 9, 9}};
    WEFT_OK(weftWaitSignal(4, awaited, me.comm, nullptr));
    WEFT_OK(wait_for(peer, 1, me, nullptr, 5, 0));  // the third
    WEFT_OK(weftWaitSignal(0, nullptr, me.comm, nullptr));
  });
}

// The peer calls nothing, and waits for the outcome by other means.
TEST(OneSided, ARankThatCallsNothingTakesPuts) {
  for (const Nodes& nodes : {blocks(1, 2), blocks(2, 1)}) {
    std::latch put_is_over(2);
    run_ranks(nodes, [&](Rank& me) {
      constexpr size_t kBytes = 20 << 20;
      Opened own;
      open(own, kBytes, me);
      if (me.rank == 0) {
        const std::vector<std::byte> source(kBytes, std::byte{42});
        WEFT_OK(put(source.data(), kBytes, 1, own.window, 0, me));
      }
      put_is_over.arrive_and_wait();
      if (me.rank == 1) {
        WEFT_OK(wait_for(0, 1, me));
        EXPECT_EQ(own.memory.back(), std::byte{42});
      }
      close(own, me);
    });
  }
}

TEST(OneSided, WrongArgumentsAreRefusedBeforeAnythingIsSent) {
  run_ranks(blocks(2, 1), [](Rank& me) {
    Opened own, other;
    open(own, me.rank == 0 ? 100 : 40, me);
    open(other, me.rank == 0 ? 0 : 8, me);
    const int peer = 1 - me.rank;
    char data[100] = {};
    const auto refused = [&](weftResult_t result, weftResult_t expected, const std::string& part) {
      EXPECT_EQ(result, expected) << part;
      EXPECT_TRUE(mentions(weftGetLastError(nullptr), part)) << weftGetLastError(nullptr);
    };
    if (me.rank == 0) {
      refused(put(data, 41, 1, own.window, 0, me), weftInvalidArgument,
              "window of rank 1, which has 40 bytes");
      refused(put(data, 1, 1, own.window, 40, me), weftInvalidArgument,
              "peerWinOffset is 40: 1 bytes from there do not fit");
      refused(weftPutSignal(data, 10, weftFloat, 1, own.window, 4, 0, 0, 0, me.comm, nullptr),
              weftInvalidArgument, "40 bytes from there");
      refused(put(data, SIZE_MAX, 1, own.window, 0, me), weftInvalidCount, "count is");
      refused(put(data, 1, 2, own.window, 0, me), weftInvalidRoot, "peer is 2");
      refused(put(nullptr, 1, 1, own.window, 0, me), weftInvalidPointer, "localbuff is NULL");
      refused(put(data, 1, 1, nullptr, 0, me), weftInvalidArgument, "none of this communicator");
      refused(put(data, 1, 1, own.window, 0, me, nullptr, WEFT_NUM_SIGNALS), weftInvalidArgument,
              "sigIdx is");
      refused(weftSignal(1, 0, -1, 0, me.comm, nullptr), weftInvalidArgument, "ctx is -1");
      refused(weftSignal(1, 0, 0, 1, me.comm, nullptr), weftInvalidArgument, "flags is");
      refused(wait_for(1, -1, me), weftInvalidArgument, "signalDescs[0]: opCnt is -1");
      refused(wait_for(5, 1, me), weftInvalidRoot, "peer is 5");
      refused(weftWaitSignal(1, nullptr, me.comm, nullptr), weftInvalidPointer, "signalDescs is NULL");
      refused(weftCommWindowRegister(me.comm, data, 1, nullptr, 0), weftInvalidPointer, "win is NULL");
      weftWindow_t window = nullptr;
      refused(weftCommWindowRegister(me.comm, nullptr, 1, &window, 0), weftInvalidPointer, "buff is NULL");
      refused(weftCommWindowRegister(me.comm, data, 1, &window, 8), weftInvalidArgument, "winFlags is 0x8");
    }
    refused(put(data, 1, 0, other.window, 0, me), weftInvalidArgument, "which has 0 bytes");
    WEFT_OK(weftSignal(peer, 0, 0, 0, me.comm, nullptr));
    WEFT_OK(wait_for(peer, 1, me));
    for (const std::byte b : own.memory) EXPECT_EQ(b, std::byte{0});
    close(own, me);
    refused(put(data, 1, peer, own.window, 0, me), weftInvalidArgument, "deregistered");
    refused(weftCommWindowDeregister(me.comm, own.window), weftInvalidArgument, "deregistered");
    WEFT_OK(wait_for(peer, 0, me));
  });
}

TEST(OneSided, ManyWindowsAreToldApart) {
  run_ranks(Nodes{"a", "a", "b"}, [](Rank& me) {
    constexpr int kWindows = 60;
    std::vector<Opened> all(kWindows);
    for (Opened& each : all) open(each, sizeof(int), me);
    const int to = (me.rank + 1) % me.size, from = (me.rank + me.size - 1) % me.size;
    std::vector<int> values(kWindows);
    std::iota(values.begin(), values.end(), me.rank * 1000);
    for (int w = 0; w < kWindows; ++w) WEFT_OK(put(&values[w], sizeof(int), to, all[w].window, 0, me));
    WEFT_OK(wait_for(from, kWindows, me));
    for (int w = 0; w < kWindows; ++w) {
      int value = 0;
      std::memcpy(&value, all[w].memory.data(), sizeof value);
      EXPECT_EQ(value, from * 1000 + w);
    }
    for (Opened& each : all) close(each, me);
  });
}

// One thread is all ranks: it has to register and to put inside groups.
TEST(OneSided, AGroupIsStartedTogether) {
  weftComm_t comms[2];
  WEFT_OK(weftCommInitAll(comms, 2, nullptr));
  std::vector<float> memory[2] = {std::vector<float>(50'000), std::vector<float>(50'000)};
  weftWindow_t windows[2] = {};
  WEFT_OK(weftGroupStart());
  for (int r = 0; r < 2; ++r)
    WEFT_OK(weftCommWindowRegister(comms[r], memory[r].data(), memory[r].size() * 4, &windows[r], 0));
  WEFT_OK(weftGroupEnd());
  const std::vector<float> source(50'000, 3.5f);
  WEFT_OK(weftGroupStart());
  for (int r = 0; r < 2; ++r) {
    const weftWaitSignalDesc_t awaited{1, 1 - r, 0, 0};
    WEFT_OK(weftWaitSignal(1, &awaited, comms[r], nullptr));
    WEFT_OK(weftPutSignal(source.data(), source.size(), weftFloat, 1 - r, windows[r], 0, 0, 0, 0, comms[r],
                          nullptr));
  }
  WEFT_OK(weftGroupEnd());
  for (const auto& each : memory) EXPECT_EQ(each, source);
  for (weftComm_t comm : comms) WEFT_OK(weftCommDestroy(comm));
}

TEST(OneSided, AWaitTellsAtItsDeadlineWhoHasSentHowManySignals) {
  std::latch told(2);
  run_ranks(
      blocks(2, 1),
      [&](Rank& me) {
        if (me.rank == 1) {
          for (int i = 0; i < 2; ++i) WEFT_OK(weftSignal(0, 3, 1, 0, me.comm, nullptr));
          return told.arrive_and_wait();
        }
        EXPECT_EQ(wait_for(1, 3, me, nullptr, 3, 1), weftTimeout);
        const std::string why = weftGetLastError(me.comm);
        EXPECT_TRUE(mentions(why, "WaitSignal on communicator")) << why;
        EXPECT_TRUE(mentions(why, "not finished after 1 s: rank 1 has sent 2 of 3 signals (sigIdx 3, ctx 1)"))
            << why;
        told.arrive_and_wait();
      },
      [](weftConfig_t& config) { config.timeoutSeconds = 1; });
}

TEST(OneSided, AnAbortEndsAWaitHereAndThere) {
  run_ranks(Nodes{"a", "a", "b"}, [](Rank& me) {
    weftResult_t result = weftSuccess;
    std::thread waits([&] { result = wait_for((me.rank + 1) % 3, 1, me); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (me.rank == 0) {
      WEFT_OK(weftCommAbort(me.comm));
      me.comm = nullptr;
    }
    waits.join();
    if (me.rank == 0) EXPECT_TRUE(result == weftAborted || result == weftInvalidComm) << result;
    else EXPECT_EQ(result, weftRemoteError);
  });
}

TEST(OneSided, ADeadPeerEndsAWaitAndIsNamed) {
  for (const Nodes& nodes : {blocks(1, 3), blocks(3, 1)}) {
    Arrivals registered;
    const auto statuses = run_processes(nodes, [&](Rank& me) {
      std::vector<char> memory(1000);
      weftWindow_t window = nullptr;
      if (weftCommWindowRegister(me.comm, memory.data(), memory.size(), &window, 0) != weftSuccess) return 1;
      registered.arrive();
      if (me.rank == 1) {
        registered.wait_for(me.size);
        raise(SIGKILL);
      }
      if (wait_for(1, 1, me) != weftRemoteError) return 2;
      if (!mentions(weftGetLastError(me.comm), "rank 1 of communicator world is gone")) return 3;
      return 0;
    });
    EXPECT_TRUE(WIFSIGNALED(statuses[1]));
    EXPECT_TRUE(exited_with(statuses[0], 0)) << statuses[0];
    EXPECT_TRUE(exited_with(statuses[2], 0)) << statuses[2];
  }
}

TEST(OneSided, APutIntoAWindowThatWasDeregisteredFailsTheCommunicator) {
  std::latch closed(2);
  run_ranks(blocks(2, 1), [&](Rank& me) {
    Opened own;
    open(own, 100, me);
    if (me.rank == 1) WEFT_OK(weftCommWindowDeregister(me.comm, own.window));
    closed.arrive_and_wait();
    char data[10] = {};
    if (me.rank == 0) (void)put(data, 10, 1, own.window, 0, me);
    const weftResult_t result = wait_for(1 - me.rank, 1, me);
    EXPECT_EQ(result, me.rank == 1 ? weftInvalidUsage : weftRemoteError);
    const std::string why = weftGetLastError(me.comm);
    EXPECT_TRUE(mentions(why, "rank 0 put 10 elements into a window that rank 1 has deregistered")) << why;
  });
}

// The first signal of a communicator may come before the communicator itself.
TEST(OneSided, ASignalWaitsForItsCommunicator) {
  std::latch sent(2);
  run_ranks(blocks(2, 1), [&](Rank& me) {
    const int both[] = {0, 1};
    weftComm_t group = nullptr;
    weftStream_t stream = nullptr;
    WEFT_OK(weftStreamCreate(&stream));
    if (me.rank == 1) sent.arrive_and_wait();
    WEFT_OK(weftCommCreateGroup(me.comm, both, 2, 1, &group, nullptr));
    Rank in_group{me.rank, 2, group};
    if (me.rank == 0) {
      WEFT_OK(weftSignal(1, 0, 0, 0, group, stream));
      (void)weftStreamWait(stream, 1, 0.05);  // over libfabric it may need the peer to go on
      sent.arrive_and_wait();
    } else {
      WEFT_OK(wait_for(0, 1, in_group));
    }
    WEFT_OK(weftStreamDestroy(stream));
    WEFT_OK(weftCommDestroy(group));
  });
}

// Collectives and transfers among puts keep their own order and their own matches.
TEST(OneSided, MixWithCollectivesAndTransfers) {
  run_ranks(blocks(2, 2), [](Rank& me) {
    Opened own;
    open(own, 4096, me);
    const int to = (me.rank + 1) % me.size, from = (me.rank + me.size - 1) % me.size;
    for (int round = 0; round < 50; ++round) {
      std::vector<std::byte> block(4096, static_cast<std::byte>(round + me.rank));
      WEFT_OK(put(block.data(), block.size(), to, own.window, 0, me));
      int sent = round * 10 + me.rank, received = -1, all = 1;
      WEFT_OK(weftGroupStart());
      WEFT_OK(weftSend(&sent, 1, weftInt32, to, me.comm, nullptr));
      WEFT_OK(weftRecv(&received, 1, weftInt32, from, me.comm, nullptr));
      WEFT_OK(weftGroupEnd());
      EXPECT_EQ(received, round * 10 + from);
      WEFT_OK(wait_for(from, 1, me));
      EXPECT_EQ(own.memory.back(), static_cast<std::byte>(round + from));
      WEFT_OK(weftAllReduce(&all, &all, 1, weftInt32, weftSum, me.comm, nullptr));
      EXPECT_EQ(all, me.size);
    }
    close(own, me);
  });
}

}  // namespace
}  // namespace weft::testing
