// Communicators themselves: what configurations say of them, names, forks, and ends that meet.
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <latch>
#include <nlohmann/json.hpp>
#include <set>

#include "api/processes.h"
#include "base/clock.h"

namespace weft::testing {
namespace {

weftResult_t sum(weftComm_t comm, std::vector<float>& data) {
  data.assign(10, 1.f);
  return weftAllReduce(data.data(), data.data(), data.size(), weftFloat, weftSum, comm, nullptr);
}

TEST(Communicators, AbortedWhileTheyAreFinalizedAreGone) {
  std::latch aborted(2);
  run_ranks(blocks(1, 2), [&](Rank& me) {
    if (me.rank == 1) return aborted.arrive_and_wait();
    float value = 1;
    weftStream_t stream = nullptr;
    WEFT_OK(weftStreamCreate(&stream));
    WEFT_OK(weftAllReduce(&value, &value, 1, weftFloat, weftSum, me.comm, stream));
    std::thread finalizer([&] { EXPECT_EQ(weftCommFinalize(me.comm), weftAborted); });
    weftResult_t state = weftSuccess;
    while (state != weftInProgress) WEFT_OK(weftCommGetAsyncError(me.comm, &state));
    WEFT_OK(weftCommAbort(me.comm));
    finalizer.join();
    int size = 0;
    EXPECT_EQ(weftCommGetAsyncError(me.comm, &state), weftInvalidComm);
    EXPECT_EQ(weftCommCount(me.comm, &size), weftInvalidComm);
    EXPECT_EQ(weftCommDestroy(me.comm), weftInvalidComm);
    EXPECT_EQ(weftStreamSynchronize(stream), weftAborted);
    WEFT_OK(weftStreamDestroy(stream));
    me.comm = nullptr;
    aborted.arrive_and_wait();
  });
}

// The name is in the recorder, in the trace, and in what other ranks are told.
TEST(Communicators, WithNamesThatAreNotUtf8AreWrittenDown) {
  const std::string folder = ::testing::TempDir() + "names." + std::to_string(getpid());
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  const auto statuses = run_processes(
      blocks(1, 2),
      [&](Rank& me) {
        weftConfig_t config = WEFT_CONFIG_INITIALIZER;
        config.commName = "\xff\xfename";
        weftComm_t named = nullptr;
        if (weftCommSplit(me.comm, 0, me.rank, &named, &config) != weftSuccess) return 1;
        std::vector<float> data;
        if (sum(named, data) != weftSuccess) return 2;
        const std::string path = folder + "/dump." + std::to_string(me.rank);
        if (weftCommDump(named, path.c_str()) != weftSuccess) return 3;
        const auto dump = nlohmann::json::parse(std::ifstream(path), nullptr, false);
        unlink(path.c_str());
        if (dump.is_discarded() || dump["communicator"] != "\ufffd\ufffdname") return 4;
        return weftCommDestroy(named) == weftSuccess && weftCommDestroy(me.comm) == weftSuccess ? 0 : 5;
      },
      [&](int) { setenv("WEFT_TRACE", (folder + "/trace").c_str(), 1); });
  for (int status : statuses) EXPECT_TRUE(exited_with(status, 0)) << status;
  std::filesystem::remove_all(folder);
}

// The child has a copy of the parent's communicator and progress engine, but none of its threads.
TEST(Communicators, OfAForkedChildAreItsOwn) {
  const auto statuses = run_processes(blocks(1, 2), [](Rank& me) {
    std::vector<float> data;
    if (sum(me.comm, data) != weftSuccess) return 1;
    const pid_t child = fork();
    if (child == 0) {
      alarm(15);  // ends it, if it hangs
      weftComm_t pair[2] = {};
      weftStream_t stream = nullptr;
      std::vector<float> one(10, 1.f), other(10, 2.f);
      if (weftCommInitAll(pair, 2, nullptr) != weftSuccess) _exit(1);
      if (weftStreamCreate(&stream) != weftSuccess) _exit(2);
      weftGroupStart();
      weftAllReduce(one.data(), one.data(), 10, weftFloat, weftSum, pair[0], stream);
      weftAllReduce(other.data(), other.data(), 10, weftFloat, weftSum, pair[1], nullptr);
      if (weftGroupEnd() != weftSuccess || weftStreamSynchronize(stream) != weftSuccess) _exit(3);
      if (one[9] != 3.f || other[9] != 3.f) _exit(4);
      for (weftComm_t comm : pair)
        if (weftCommDestroy(comm) != weftSuccess) _exit(5);
      _exit(0);
    }
    int status = -1;
    if (waitpid(child, &status, 0) != child || !exited_with(status, 0)) return 10 + WEXITSTATUS(status);
    return sum(me.comm, data) == weftSuccess && data[0] == 2.f ? 0 : 2;
  });
  for (int status : statuses) EXPECT_TRUE(exited_with(status, 0)) << status;
}

// WEFT_STRICT is a default: 0 in the configuration overrides it, for that communicator alone.
TEST(Communicators, AreNotStrictIfTheConfigurationSaysSoWhateverTheSetting) {
  const auto statuses = run_processes(
      blocks(1, 2),
      [](Rank& me) {
        weftConfig_t config = WEFT_CONFIG_INITIALIZER;
        config.strict = 0;
        weftComm_t child = nullptr;
        if (weftCommSplit(me.comm, 0, me.rank, &child, &config) != weftSuccess) return 1;
        const std::string path = ::testing::TempDir() + "strict." + std::to_string(getpid());
        for (const auto& [comm, said] : {std::pair{me.comm, "(sum, strict order)"}, {child, "(sum)"}}) {
          std::vector<float> data;
          if (sum(comm, data) != weftSuccess || weftCommDump(comm, path.c_str()) != weftSuccess) return 2;
          const auto dump = nlohmann::json::parse(std::ifstream(path));
          unlink(path.c_str());
          const std::string call = dump["operations"].back()["call"];
          if (!call.ends_with(said)) return 3;
        }
        return 0;
      },
      [](int) { setenv("WEFT_STRICT", "1", 1); });
  for (int status : statuses) EXPECT_TRUE(exited_with(status, 0)) << status;
}

TEST(Groups, WithACallThatCannotBeDoneStartNone) {
  run_ranks(blocks(1, 2), [](Rank& me) {
    float one = 1, other = 0;
    WEFT_OK(weftGroupStart());
    WEFT_OK(weftAllReduce(&one, &one, 1, weftFloat, weftSum, me.comm, nullptr));
    WEFT_OK(weftSend(&one, 1, weftFloat, me.rank, me.comm, nullptr));  // to itself, and nobody receives it
    EXPECT_EQ(weftGroupEnd(), weftInvalidUsage);
    weftCommStats_t stats = WEFT_COMM_STATS_INITIALIZER;
    WEFT_OK(weftCommGetStats(me.comm, &stats));
    EXPECT_EQ(stats.operations, 0u);
    EXPECT_EQ(one, 1.f);
    // Without the one it is done.
    WEFT_OK(weftAllReduce(&one, &other, 1, weftFloat, weftSum, me.comm, nullptr));
    EXPECT_EQ(other, 2.f);
  });
}

/// In shared memory, and over the network.
class Ahead : public ::testing::TestWithParam<bool> {
 protected:
  static std::vector<std::string> ranks(int number) {
    return GetParam() ? blocks(number, 1) : blocks(1, number);
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, Ahead, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "network" : "node"; });

// Rank 1 kept all that rank 0 sent, while it waited for rank 2 to take something, until its communicator
// failed: half of all rows of 150000 with eight ranks on two cores, and over loopback one of a million
// with four.
TEST_P(Ahead, BroadcastsInARowWaitForWhoIsBehind) {
  for (const char* algorithm : {"ring", "binomial"}) {
    const auto statuses = run_processes(
        ranks(3),
        [](Rank& me) {
          constexpr size_t kBytes = 8 << 10;  // which goes without asking, whatever the transport
          std::vector<uint8_t> data(kBytes);
          for (int call = 0; call < 8000; ++call) {
            if (me.rank == 2 && call % 2000 == 0) usleep(100'000);
            if (me.rank == 0) data.front() = data.back() = static_cast<uint8_t>(call);
            if (weftBroadcast(data.data(), data.data(), kBytes, weftUint8, 0, me.comm, nullptr) !=
                weftSuccess)
              return 1;
            if (data.front() != static_cast<uint8_t>(call) || data.back() != data.front()) return 2;
          }
          return weftCommDestroy(me.comm) == weftSuccess ? 0 : 3;
        },
        [&](int) {
          setenv("WEFT_ALGO", (std::string("broadcast=") + algorithm).c_str(), 1);
          setenv("WEFT_EARLY_BYTES", "8M", 1);
        });
    for (const int status : statuses) EXPECT_TRUE(exited_with(status, 0)) << algorithm << ": " << status;
  }
}

// What both send before either receives has to be kept, however much less is taken from those who are ahead.
TEST_P(Ahead, TransfersOfTwoWhoSendMuchBeforeTheyReceiveArrive) {
  const auto statuses = run_processes(ranks(2), [](Rank& me) {
    constexpr size_t kBytes = 8000;  // one message over every network
    constexpr int kMessages = 3000;  // 24 MiB each way
    std::vector<uint8_t> data(kBytes);
    const int peer = 1 - me.rank;
    for (int i = 0; i < kMessages; ++i) {
      data.front() = data.back() = static_cast<uint8_t>(i);
      if (weftSend(data.data(), kBytes, weftUint8, peer, me.comm, nullptr) != weftSuccess) return 1;
    }
    for (int i = 0; i < kMessages; ++i) {
      if (weftRecv(data.data(), kBytes, weftUint8, peer, me.comm, nullptr) != weftSuccess) return 2;
      if (data.front() != static_cast<uint8_t>(i) || data.back() != data.front()) return 3;
    }
    return weftCommDestroy(me.comm) == weftSuccess ? 0 : 4;
  });
  for (const int status : statuses) EXPECT_TRUE(exited_with(status, 0)) << status;
}

/// Perf tools simulated a call after each row, on cores that ranks needed which were not done.
TEST(Stats, SayWhatTheLastOperationWasToTake) {
  run_ranks(blocks(2, 2), [](Rank& me) {
    const auto last_us = [&] {
      weftCommStats_t stats = WEFT_COMM_STATS_INITIALIZER;
      EXPECT_EQ(weftCommGetStats(me.comm, &stats), weftSuccess);
      return stats.lastPredictedTime;
    };
    EXPECT_EQ(last_us(), WEFT_UNDEF_FLOAT);
    float previous_us = 0;
    for (const size_t count : {size_t{1}, size_t{1} << 20}) {
      std::vector<float> data(count, 1.f);
      const auto reduce = [&] {
        WEFT_OK(weftAllReduce(data.data(), data.data(), count, weftFloat, weftSum, me.comm, nullptr));
      };
      reduce();
      weftSimInfo_t info = WEFT_SIM_INFO_INITIALIZER;
      WEFT_OK(weftGroupStart());
      reduce();
      WEFT_OK(weftGroupSimulateEnd(&info));
      EXPECT_FLOAT_EQ(last_us(), info.estimatedTime);
      EXPECT_GT(last_us(), previous_us);
      previous_us = last_us();
    }
  });
}

/// Uneven calls counted as 0.
TEST(Groups, AnUnevenCallIsEstimatedAsTheEvenOneThatMovesAsMuch) {
  run_ranks(blocks(1, 2), [](Rank& me) {
    constexpr size_t kCount = 1 << 16;
    std::vector<float> own(2 * kCount), all(2 * kCount);
    const auto estimated_us = [&](auto&& call) {
      weftSimInfo_t info = WEFT_SIM_INFO_INITIALIZER;
      EXPECT_EQ(weftGroupStart(), weftSuccess);
      EXPECT_EQ(call(), weftSuccess);
      EXPECT_EQ(weftGroupSimulateEnd(&info), weftSuccess);
      return info.estimatedTime;
    };
    const float even_us = estimated_us(
        [&] { return weftAllGather(own.data(), all.data(), kCount, weftFloat, me.comm, nullptr); });
    EXPECT_GT(even_us, 0);
    const size_t counts[] = {kCount / 2, kCount + kCount / 2};
    EXPECT_FLOAT_EQ(estimated_us([&] {
                      return weftAllGatherV(own.data(), all.data(), counts, nullptr, weftFloat, me.comm,
                                            nullptr);
                    }),
                    even_us);
  });
}

TEST(Groups, ThatStartNothingLeaveNoCommunicatorsThatAreStillBeingCreated) {
  run_ranks(blocks(1, 1), [](Rank& me) {
    for (const bool simulated : {false, true}) {
      weftUniqueId id;
      WEFT_OK(weftGetUniqueId(&id));
      weftComm_t made = nullptr, kept = nullptr;
      WEFT_OK(weftGroupStart());
      WEFT_OK(weftCommInitRank(&made, 1, id, 0));
      kept = made;
      ASSERT_NE(kept, nullptr);
      if (simulated) {
        weftSimInfo_t info = WEFT_SIM_INFO_INITIALIZER;
        WEFT_OK(weftGroupSimulateEnd(&info));
      } else {
        EXPECT_EQ(weftAllReduce(nullptr, nullptr, 4, weftFloat, weftSum, me.comm, nullptr),
                  weftInvalidPointer);
        EXPECT_EQ(weftGroupEnd(), weftInvalidPointer);
      }
      EXPECT_EQ(made, nullptr);
      weftResult_t health = weftSuccess;
      WEFT_OK(weftCommGetAsyncError(kept, &health));
      EXPECT_EQ(health, simulated ? weftInvalidUsage : weftInvalidPointer);
      WEFT_OK(weftCommDestroy(kept));
    }
  });
}

// Only who writes a trace has anything to tell the others before.
TEST(Communicators, MeetWhereSomeRanksWriteATrace) {
  for (const int tracing : {0, 1}) {
    const std::string file = ::testing::TempDir() + "weft-trace-" + std::to_string(getpid()) + ".json";
    const double begin_us = static_cast<double>(now_ns()) / 1e3;
    const auto statuses = run_processes(
        blocks(1, 2),
        [&](Rank& me) {
          float one = 1;
          for (int i = 0; i < 3; ++i)  // from the second on an operation is taken up again
            if (weftAllReduce(&one, &one, 1, weftFloat, weftSum, me.comm, nullptr) != weftSuccess) return 1;
          return one == 8.f && weftCommDestroy(me.comm) == weftSuccess ? 0 : 2;
        },
        [&](int rank) {
          if (rank == tracing) setenv("WEFT_TRACE", file.c_str(), 1);
        });
    for (const int status : statuses) EXPECT_TRUE(exited_with(status, 0)) << status;
    const std::string trace((std::istreambuf_iterator<char>(std::ifstream(file).rdbuf())), {});
    EXPECT_TRUE(trace.starts_with("["));
    EXPECT_NE(trace.find("AllReduce"), std::string::npos) << trace;
    const std::string ts = "\"ts\":";
    for (size_t at = trace.find(ts); at != std::string::npos; at = trace.find(ts, at + 1))
      EXPECT_GT(std::stod(trace.substr(at + ts.size())), begin_us - 1000) << trace.substr(at, 200);
    unlink(file.c_str());
  }
}

// Each node's first rank started it afresh, over what others had written.
TEST(Communicators, OfSeveralNodesShareATrace) {
  const std::string path = ::testing::TempDir() + "weft-trace-" + std::to_string(getpid()) + ".json";
  std::ofstream(path) << "of an earlier job";
  const auto statuses = run_processes(
      blocks(3, 2), [](Rank& me) { return weftCommDestroy(me.comm) == weftSuccess ? 0 : 1; },
      [&](int) { setenv("WEFT_TRACE", path.c_str(), 1); });
  for (const int status : statuses) EXPECT_TRUE(exited_with(status, 0)) << status;
  std::ifstream file(path);
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  EXPECT_EQ(line, "[");
  std::set<int> named;
  while (std::getline(file, line)) {
    ASSERT_TRUE(line.ends_with(",")) << line;
    const auto event = nlohmann::json::parse(line.substr(0, line.size() - 1), nullptr, false);
    ASSERT_TRUE(event.is_object()) << line;
    if (event["name"] == "process_name") named.insert(event["pid"].get<int>());
  }
  EXPECT_EQ(named.size(), 6u);
  unlink(path.c_str());
}

// Rank 0 said that its file cannot be made; the others, that it had gone.
TEST(Communicators, AllSayWhyATraceCannotBeWritten) {
  const std::string said = ::testing::TempDir() + "weft-said-" + std::to_string(getpid()) + ".";
  const auto statuses = run_processes(
      blocks(1, 3), [](Rank&) { return 0; },
      [&](int rank) {
        setenv("WEFT_TRACE", "/nowhere/trace.json", 1);
        if (!freopen((said + std::to_string(rank)).c_str(), "w", stderr)) _exit(97);
        setvbuf(stderr, nullptr, _IONBF, 0);  // ranks end by _exit()
      });
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(exited_with(statuses[rank], 98)) << statuses[rank];
    std::ifstream file(said + std::to_string(rank));
    const std::string text(std::istreambuf_iterator<char>(file), {});
    EXPECT_NE(text.find("WEFT_TRACE: cannot write to /nowhere/trace.json: No such file or directory"),
              std::string::npos)
        << "rank " << rank << ": " << text;
    unlink((said + std::to_string(rank)).c_str());
  }
}

}  // namespace
}  // namespace weft::testing
