// When things break: dead ranks, mismatched calls, ranks that never come, aborts; and going on with the
// survivors.
#include <cstring>
#include <fstream>
#include <latch>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/processes.h"

namespace weft::testing {
namespace {

using ::testing::Values;

weftResult_t sum(weftComm_t comm, size_t count, std::vector<float>& data) {
  data.assign(count, 1.f);
  return weftAllReduce(data.data(), data.data(), count, weftFloat, weftSum, comm, nullptr);
}

struct DeadRank : ::testing::TestWithParam<std::pair<Nodes, size_t>> {};

TEST_P(DeadRank, IsNamedToEverySurvivorWhoThenShrinkAndGoOn) {
  const auto& [nodes, count] = GetParam();
  const int victim = 1;
  Arrivals finished;
  const auto statuses = run_processes(nodes, [&finished, victim, count = count](Rank& me) {
    std::vector<float> data;
    for (int i = 0; i < 10; ++i)
      if (sum(me.comm, count, data) != weftSuccess) return 1;
    finished.arrive();
    if (me.rank == victim) {
      finished.wait_for(me.size);
      raise(SIGKILL);
    }
    const auto begin = std::chrono::steady_clock::now();
    weftResult_t result = weftSuccess;
    while (result == weftSuccess) result = sum(me.comm, count, data);
    const std::string why = weftGetLastError(me.comm);
    if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(20)) return 2;
    if (result != weftRemoteError || why.find("rank 1") == std::string::npos) {
      fprintf(stderr, "rank %d: result %d: %s\n", me.rank, result, why.c_str());
      return 3;
    }
    weftComm_t rest = nullptr;
    if (weftCommShrink(me.comm, &victim, 1, &rest, nullptr, WEFT_SHRINK_ABORT) != weftSuccess) return 4;
    for (int i = 0; i < 10; ++i) {
      if (sum(rest, count, data) != weftSuccess) return 5;
      if (data[count / 2] != static_cast<float>(me.size - 1)) return 6;
    }
    if (weftCommDestroy(rest) != weftSuccess || weftCommDestroy(me.comm) != weftSuccess) return 7;
    return 0;
  });
  for (int rank = 0; rank < static_cast<int>(nodes.size()); ++rank) {
    if (rank == victim) EXPECT_TRUE(WIFSIGNALED(statuses[rank]));
    else EXPECT_TRUE(exited_with(statuses[rank], 0)) << "rank " << rank << " status " << statuses[rank];
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, DeadRank,
                         Values(std::pair{blocks(1, 3), size_t{4}}, std::pair{blocks(1, 3), size_t{1} << 20},
                                std::pair{blocks(3, 1), size_t{4}}, std::pair{blocks(3, 1), size_t{1} << 20},
                                std::pair{blocks(2, 2), size_t{1} << 18}));

TEST(Failure, ARankThatExitsWithoutDestroyingIsNoFailureOfWhatItHadFinished) {
  const auto statuses = run_processes(blocks(2, 2), [](Rank& me) {
    std::vector<float> data;
    for (size_t count : {size_t{10}, size_t{1} << 18})
      if (sum(me.comm, count, data) != weftSuccess || data[0] != 4.f) return 1;
    return 0;  // and out, each at its own time
  });
  for (int status : statuses) EXPECT_TRUE(exited_with(status, 0)) << status;
}

// Rank 0 hears of it while it receives, from a rank that hears of it at the same time and then sends.
TEST(Failure, ADeathDuringAnOperationThatSucceedsIsToldAllTheSame) {
  const auto statuses = run_processes(blocks(1, 3), [](Rank& me) {
    weftComm_t pair = nullptr;
    if (weftCommSplit(me.comm, me.rank < 2 ? 0 : 1, me.rank, &pair, nullptr) != weftSuccess) return 1;
    std::vector<float> data;
    if (sum(me.comm, 1, data) != weftSuccess) return 2;
    if (me.rank == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));  // rank 0 has begun to receive
      raise(SIGKILL);
    }
    const auto hears = [&] {
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      weftResult_t health = weftSuccess;
      while (health == weftSuccess && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (weftCommGetAsyncError(me.comm, &health) != weftSuccess) return false;
      }
      return health == weftRemoteError;
    };
    float value = 7;
    if (me.rank == 1) {
      if (!hears()) return 3;
      if (weftSend(&value, 1, weftFloat, 0, pair, nullptr) != weftSuccess) return 4;
      // Not gone before rank 0 has heard: that would be another death.
      return weftRecv(&value, 1, weftFloat, 0, pair, nullptr) == weftSuccess ? 0 : 5;
    }
    if (weftRecv(&value, 1, weftFloat, 1, pair, nullptr) != weftSuccess) return 6;
    if (!hears()) return 7;
    return weftSend(&value, 1, weftFloat, 1, pair, nullptr) == weftSuccess ? 0 : 8;
  });
  EXPECT_TRUE(exited_with(statuses[0], 0)) << statuses[0];
  EXPECT_TRUE(exited_with(statuses[1], 0)) << statuses[1];
}

// Two ranks die, and the survivors exclude one of them, after both deaths have been acted on.
TEST(Failure, ACommunicatorMadeAfterTheDeathOfAMemberFails) {
  const auto statuses = run_processes(blocks(1, 4), [](Rank& me) {
    weftComm_t with[4] = {};  // with[2] has one of those who die, with[3] the other
    for (int victim : {2, 3}) {
      const int color = me.rank < 2 || me.rank == victim ? 0 : WEFT_SPLIT_NOCOLOR;
      if (weftCommSplit(me.comm, color, me.rank, &with[victim], nullptr) != weftSuccess) return 1;
    }
    if (me.rank >= 2) raise(SIGKILL);
    for (int victim : {2, 3}) {
      weftResult_t health = weftSuccess;
      while (health == weftSuccess)
        if (weftCommGetAsyncError(with[victim], &health) != weftSuccess) return 2;
    }
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.timeoutSeconds = 3;
    const int excluded = 3;
    weftComm_t rest = nullptr;
    if (weftCommShrink(me.comm, &excluded, 1, &rest, &config, WEFT_SHRINK_ABORT) != weftSuccess) return 3;
    std::vector<float> data;
    if (sum(rest, 1, data) != weftRemoteError) return 4;
    const std::string why = weftGetLastError(rest);
    if (why.find("rank 2 of communicator") == std::string::npos) return 5;
    for (weftComm_t comm : {rest, with[2], with[3], me.comm})  // so that leaving is not one more death
      if (weftCommDestroy(comm) != weftSuccess) return 6;
    return 0;
  });
  for (int survivor : {0, 1}) EXPECT_TRUE(exited_with(statuses[survivor], 0)) << statuses[survivor];
}

// The news may come between a rank's part in making the communicator and its having it.
TEST(Failure, NewsThatComeBeforeTheCommunicatorAreNotLost) {
  run_ranks(blocks(1, 3), [](Rank& me) {
    for (int round = 0; round < 100; ++round) {
      weftComm_t child = nullptr;
      weftConfig_t config = WEFT_CONFIG_INITIALIZER;
      config.timeoutSeconds = 10;
      ASSERT_EQ(weftCommSplit(me.comm, 0, me.rank, &child, &config), weftSuccess);
      if (me.rank == 0) {
        EXPECT_EQ(weftCommAbort(child), weftSuccess);
        continue;
      }
      float data = 1;
      EXPECT_EQ(weftAllReduce(&data, &data, 1, weftFloat, weftSum, child, nullptr), weftRemoteError)
          << round << ": " << weftGetLastError(child);
      EXPECT_EQ(weftCommDestroy(child), weftSuccess);
    }
  });
}

// ---- mismatched calls
// -----------------------------------------------------------------------------------------------

struct Mismatch {
  const char* name;
  std::function<weftResult_t(Rank&, std::vector<float>&)> first;   // rank 0's call
  std::function<weftResult_t(Rank&, std::vector<float>&)> second;  // everybody else's
  std::string said;                                                // appears in somebody's error
};

class MismatchTest : public ::testing::TestWithParam<Mismatch> {};

TEST_P(MismatchTest, IsReportedAndHangsNobody) {
  const Mismatch& m = GetParam();
  for (const Nodes& nodes : {blocks(1, 2), blocks(2, 1), blocks(2, 2)}) {
    std::mutex mutex;
    bool named = false;
    run_ranks(
        nodes,
        [&](Rank& me) {
          std::vector<float> data(4096 * 8, 1.f);
          weftResult_t result = me.rank == 0 ? m.first(me, data) : m.second(me, data);
          // A rank whose part was over before the difference showed learns of it at one of its next calls.
          const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
          while (result == weftSuccess && std::chrono::steady_clock::now() < end)
            result = weftAllReduce(data.data(), data.data(), 1, weftFloat, weftSum, me.comm, nullptr);
          EXPECT_TRUE(result == weftMismatch || result == weftRemoteError) << result;
          const std::string why = weftGetLastError(me.comm);
          std::lock_guard guard(mutex);
          // Of a rank that has left before it was asked, no more can be said.
          named = named || why.find(m.said) != std::string::npos ||
                  why.find("called it with another operation, count, type, operator or root") !=
                      std::string::npos;
          if (!named && me.rank == 0) std::cerr << why << "\n";
        },
        [](weftConfig_t& config) { config.timeoutSeconds = 20; });
    EXPECT_TRUE(named) << "nobody said: " << m.said;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Calls, MismatchTest,
    Values(Mismatch{"operation",
                    [](Rank& me, std::vector<float>& d) {
                      return weftAllReduce(d.data(), d.data(), 8, weftFloat, weftSum, me.comm, nullptr);
                    },
                    [](Rank& me, std::vector<float>& d) {
                      return weftAllGather(d.data(), d.data() + 100, 8, weftFloat, me.comm, nullptr);
                    },
                    "called AllGather of 8 float"},
           Mismatch{"count",
                    [](Rank& me, std::vector<float>& d) {
                      return weftAllReduce(d.data(), d.data(), 8, weftFloat, weftSum, me.comm, nullptr);
                    },
                    [](Rank& me, std::vector<float>& d) {
                      return weftAllReduce(d.data(), d.data(), 9, weftFloat, weftSum, me.comm, nullptr);
                    },
                    "called AllReduce of 9 float"},
           Mismatch{"type",
                    [](Rank& me, std::vector<float>& d) {
                      return weftAllReduce(d.data(), d.data(), 8, weftFloat, weftSum, me.comm, nullptr);
                    },
                    [](Rank& me, std::vector<float>& d) {
                      return weftAllReduce(d.data(), d.data(), 8, weftInt32, weftSum, me.comm, nullptr);
                    },
                    "called AllReduce of 8 int32"},
           Mismatch{"op",
                    [](Rank& me, std::vector<float>& d) {
                      return weftAllReduce(d.data(), d.data(), 8, weftFloat, weftSum, me.comm, nullptr);
                    },
                    [](Rank& me, std::vector<float>& d) {
                      return weftAllReduce(d.data(), d.data(), 8, weftFloat, weftMax, me.comm, nullptr);
                    },
                    "(max)"},
           Mismatch{"root",
                    [](Rank& me, std::vector<float>& d) {
                      return weftBcast(d.data(), 8, weftFloat, 0, me.comm, nullptr);
                    },
                    [](Rank& me, std::vector<float>& d) {
                      return weftBcast(d.data(), 8, weftFloat, 1, me.comm, nullptr);
                    },
                    "from root 1"},
           Mismatch{"bytes",
                    [](Rank& me, std::vector<float>& d) {
                      return weftAllReduce(d.data(), d.data(), 30000, weftFloat, weftSum, me.comm, nullptr);
                    },
                    [](Rank& me, std::vector<float>& d) {
                      return weftAllReduce(d.data(), d.data(), 1, weftFloat, weftSum, me.comm, nullptr);
                    },
                    "of 1 float"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Failure, StrictOrderOnOneRankIsReported) {
  std::atomic<int> created = 0, named = 0;
  run_ranks(
      blocks(1, 2),
      [&](Rank& me) {
        float data[8] = {};
        weftResult_t result = weftSuccess;
        for (int i = 0; i < 100 && result == weftSuccess; ++i)
          result = weftAllReduce(data, data, 8, weftFloat, weftSum, me.comm, nullptr);
        EXPECT_TRUE(result == weftMismatch || result == weftRemoteError) << result;
        named += std::string(weftGetLastError(me.comm)).find("(sum, strict order)") != std::string::npos;
      },
      [&](weftConfig_t& config) { config.strict = created++ == 0; });
  EXPECT_GT(named, 0);
}

TEST(Failure, AlltoAllInPlaceOnSomeRanksOnlyIsNamedAsThat) {
  std::latch told(2);
  run_ranks(blocks(1, 2), [&](Rank& me) {
    float data[4] = {};
    EXPECT_NE(weftAlltoAll(data, me.rank == 0 ? data : data + 2, 1, weftFloat, me.comm, nullptr),
              weftSuccess);
    const std::string why = weftGetLastError(me.comm);
    EXPECT_NE(why.find("AlltoAll of 1 float in place"), std::string::npos) << why;
    told.arrive_and_wait();  // so that each can be asked
  });
}

TEST(Failure, ASettingThatDiffersIsNamedWithBothValues) {
  ::testing::internal::CaptureStderr();
  const auto statuses = run_processes(
      blocks(2, 2), [](Rank&) { return 0; },
      [](int rank) {
        if (rank == 2) setenv("WEFT_SLICE_BYTES", "64K", 1);
      });
  const std::string said = ::testing::internal::GetCapturedStderr();
  for (int status : statuses) EXPECT_TRUE(exited_with(status, 98)) << status;
  const std::string sentence =
      "WEFT_SLICE_BYTES is '0' on rank 0 and '64K' on rank 2: set it alike on all ranks";
  EXPECT_NE(said.find(sentence), std::string::npos) << said;
}

TEST(Failure, SendAndRecvOfDifferentCounts) {
  run_ranks(blocks(2, 1), [](Rank& me) {
    std::vector<float> data(100);
    const weftResult_t result = me.rank == 0 ? weftSend(data.data(), 10, weftFloat, 1, me.comm, nullptr)
                                             : weftRecv(data.data(), 11, weftFloat, 0, me.comm, nullptr);
    if (me.rank == 1) {
      EXPECT_EQ(result, weftMismatch);
      EXPECT_NE(std::string(weftGetLastError(me.comm)).find("rank 0"), std::string::npos);
    }
  });
}

// A wrong argument had code 12, and for its sentence the communicator's failure.
TEST(Failure, ARefusalOnAFailedCommunicatorHasASentenceOfItsOwn) {
  run_ranks(blocks(1, 2), [](Rank& me) {
    float one = 1;
    const auto sentence = [&](weftComm_t comm) { return std::string(weftGetLastError(comm)); };
    if (me.rank == 0) {
      EXPECT_EQ(weftSend(&one, 1, weftFloat, 1, me.comm, nullptr), weftSuccess);
    }
    const weftResult_t failed = me.rank == 0
                                    ? weftAllReduce(&one, &one, 1, weftFloat, weftSum, me.comm, nullptr)
                                    : weftRecv(&one, 2, weftFloat, 0, me.comm, nullptr);
    EXPECT_NE(failed, weftSuccess);
    const std::string why = sentence(me.comm);
    EXPECT_EQ(weftSend(&one, 1, weftFloat, 9, me.comm, nullptr), weftInvalidRoot);
    EXPECT_EQ(sentence(me.comm), "weftSend: peer is 9, must be in [0, 2)");
    EXPECT_EQ(sentence(nullptr), "weftSend: peer is 9, must be in [0, 2)");
    EXPECT_EQ(weftCommCount(me.comm, nullptr), weftInvalidPointer);
    EXPECT_EQ(sentence(me.comm), "weftCommCount: count is NULL");
    std::thread([&] { EXPECT_EQ(sentence(me.comm), why) << "of a thread that was refused nothing"; }).join();
    weftResult_t state = weftSuccess;
    EXPECT_EQ(weftCommGetAsyncError(me.comm, &state), weftSuccess);
    EXPECT_NE(state, weftSuccess);
    EXPECT_EQ(sentence(me.comm), why) << "whose code was given last";
  });
}

// The commonest mistake of programs: a rank has fewer steps than the others.
TEST(Failure, ARankThatLeavesItsNodeIsNoticedBeforeTheDeadline) {
  for (const int ranks : {2, 3}) {
    const auto body = [](Rank& me) {
      float value = 1;
      weftResult_t result = weftAllReduce(&value, &value, 1, weftFloat, weftSum, me.comm, nullptr);
      if (result != weftSuccess) return 1;
      if (me.rank == 1) return weftCommDestroy(std::exchange(me.comm, nullptr)) == weftSuccess ? 0 : 3;
      result = weftAllReduce(&value, &value, 1, weftFloat, weftSum, me.comm, nullptr);
      const std::string why = weftGetLastError(me.comm);
      const bool named = why.find("rank 1 has gone: ") != std::string::npos;
      if (!named) fprintf(stderr, "rank %d: %s\n", me.rank, why.c_str());
      return result == weftRemoteError && named ? 0 : 2;
    };
    const auto statuses = run_processes(blocks(1, ranks), body, [](int) {
      setenv("WEFT_STALL_CHECK_S", "0.1", 1);
      setenv("WEFT_TIMEOUT_S", "20", 1);
    });
    for (int status : statuses) EXPECT_TRUE(exited_with(status, 0)) << ranks << " ranks";
  }
}

TEST(Failure, ARankThatLeavesASplitAndLivesOnIsNoticedBeforeTheDeadline) {
  for (const Nodes& nodes : {blocks(1, 2), blocks(2, 1)}) {
    const auto body = [](Rank& me) {
      float value = 1;
      weftComm_t half = nullptr;
      if (weftCommSplit(me.comm, 0, me.rank, &half, nullptr) != weftSuccess) return 1;
      if (weftAllReduce(&value, &value, 1, weftFloat, weftSum, half, nullptr) != weftSuccess) return 2;
      if (me.rank == 0) {
        if (weftAllReduce(&value, &value, 1, weftFloat, weftSum, half, nullptr) != weftRemoteError) return 3;
        const std::string why = weftGetLastError(half);
        if (why.find("rank 1 has gone: it has destroyed its communicator") == std::string::npos) return 4;
      }
      if (weftCommDestroy(half) != weftSuccess) return 5;
      // The parent goes on.
      value = 1;
      if (weftAllReduce(&value, &value, 1, weftFloat, weftSum, me.comm, nullptr) != weftSuccess) return 6;
      if (value != 2) return 7;
      return weftCommDestroy(me.comm) == weftSuccess ? 0 : 8;
    };
    const auto statuses = run_processes(nodes, body, [](int) {
      setenv("WEFT_STALL_CHECK_S", "0.2", 1);
      setenv("WEFT_TIMEOUT_S", "60", 1);
    });
    for (int status : statuses) EXPECT_TRUE(exited_with(status, 0)) << WEXITSTATUS(status);
  }
}

// With nothing to send or to receive an end does not wait for the other; and where the receiver of a few
// waits for the data itself, and the sender of many for its leave, both wait.
TEST(Failure, TransfersOfNothingAndOfSomethingAreToldApart) {
  const std::pair<int, int> counts[] = {{0, 10}, {10, 0}, {1000000, 0}, {1000000, 10}, {0, 1000000}};
  for (const auto& [sent, received] : counts)
    for (const Nodes& nodes : {blocks(1, 2), blocks(2, 1)}) {
      const auto body = [sent, received](Rank& me) {
        std::vector<float> data(1000000);
        weftResult_t result = me.rank == 0 ? weftSend(data.data(), sent, weftFloat, 1, me.comm, nullptr)
                                           : weftRecv(data.data(), received, weftFloat, 0, me.comm, nullptr);
        // A rank whose part was over before the difference showed learns of it at its next call.
        if (result == weftSuccess)
          result = weftAllReduce(data.data(), data.data(), 1, weftFloat, weftSum, me.comm, nullptr);
        if (result != weftMismatch && result != weftRemoteError) return 1;
        const std::string why = weftGetLastError(me.comm);
        const bool named = why.find("Send of " + std::to_string(sent) + " float") != std::string::npos &&
                           why.find("Recv of " + std::to_string(received) + " float") != std::string::npos;
        // Whoever has been told ends at once, and that may come sooner to the other than the reason: what
        // waits for it tells of its connection, the communicator of its death.
        const bool told_of_end =
            why.find(" has gone: ") != std::string::npos || why.find(" is gone: ") != std::string::npos;
        const bool other_has_ended = result == weftRemoteError && told_of_end;
        if (!named) fprintf(stderr, "rank %d: %s\n", me.rank, why.c_str());
        return named || other_has_ended ? 0 : 2;
      };
      const auto statuses = run_processes(nodes, body, [](int) { setenv("WEFT_STALL_CHECK_S", "0.1", 1); });
      for (int status : statuses) EXPECT_TRUE(exited_with(status, 0)) << sent << " to " << received;
    }
}

TEST(Transfers, OfNothingGoWithTheOthersInTheOrderOfTheCalls) {
  for (const Nodes& nodes : {blocks(1, 2), blocks(2, 1)})
    run_ranks(nodes, [](Rank& me) {
      for (int count : {0, 3, 0, 0, 5}) {
        std::vector<float> data(5, static_cast<float>(me.rank == 0 ? count : -1));
        EXPECT_EQ(me.rank == 0
                      ? weftSend(data.data(), count, weftFloat, 1, me.comm, nullptr)
                      : weftRecv(count ? data.data() : nullptr, count, weftFloat, 0, me.comm, nullptr),
                  weftSuccess);
        EXPECT_EQ(data[0], static_cast<float>(count > 0 || me.rank == 0 ? count : -1));
      }
    });
}

// ---- ranks that do not come, aborts
// ---------------------------------------------------------------------------------

TEST(Failure, ADeadlineNamesTheRankThatDidNotArrive) {
  for (const Nodes& nodes : {blocks(1, 3), blocks(3, 1)}) {
    std::latch told(3);  // rank 2 stays, and stays silent, until the others have their errors
    run_ranks(
        nodes,
        [&told](Rank& me) {
          std::vector<float> data;
          EXPECT_EQ(sum(me.comm, 10, data), weftSuccess);
          if (me.rank == 2) return told.arrive_and_wait();
          const weftResult_t result = sum(me.comm, 10, data);
          EXPECT_TRUE(result == weftTimeout || result == weftRemoteError) << result;
          const std::string why = weftGetLastError(me.comm);
          EXPECT_NE(why.find("rank 2 has not arrived, its last operation is 1"), std::string::npos) << why;
          EXPECT_NE(why.find("operation 2"), std::string::npos) << why;
          told.arrive_and_wait();
        },
        [](weftConfig_t& config) { config.timeoutSeconds = 1; });
  }
}

TEST(Failure, ATimeoutLongerThanTheClockCanCountIsNotOverAtOnce) {
  for (const double timeout : {1e10, 1e300, std::numeric_limits<double>::infinity()})
    run_ranks(
        blocks(1, 2),
        [](Rank& me) {
          if (me.rank == 1)
            std::this_thread::sleep_for(std::chrono::milliseconds(400));  // deadlines are seen
          std::vector<float> data;
          EXPECT_EQ(sum(me.comm, 10, data), weftSuccess) << weftGetLastError(me.comm);
        },
        [timeout](weftConfig_t& config) { config.timeoutSeconds = timeout; });
  for (const double timeout : {0.0, -2.0, std::numeric_limits<double>::quiet_NaN()}) {
    weftUniqueId id;
    WEFT_OK(weftGetUniqueId(&id));
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.timeoutSeconds = timeout;
    weftComm_t comm = nullptr;
    EXPECT_EQ(weftCommInitRankConfig(&comm, 1, id, 0, &config), weftInvalidArgument);
    EXPECT_NE(std::string(weftGetLastError(nullptr)).find("must be greater than 0"), std::string::npos);
  }
}

// Transfers are numbered by pair: both Recvs have the same number, and each is asked about in its turn.
TEST(Failure, ADeadlineOfOneTransferIsKeptBesideAnotherOfTheSameNumber) {
  const auto statuses = run_processes(
      blocks(1, 3),
      [](Rank& me) {
        float data[2] = {};
        weftResult_t result = weftSuccess;
        if (me.rank == 0) {
          weftGroupStart();
          weftRecv(data, 1, weftFloat, 1, me.comm, nullptr);
          weftRecv(data + 1, 1, weftFloat, 2, me.comm, nullptr);
          result = weftGroupEnd();
          const std::string why = weftGetLastError(me.comm);
          if (why.find("rank 2 has not called the matching Send") == std::string::npos) {
            fprintf(stderr, "%s\n", why.c_str());
            return 1;
          }
          return result == weftTimeout ? 0 : 2;
        }
        // Rank 2 has called one of that number, too, but with rank 1.
        if (me.rank == 2) result = weftSend(data, 1, weftFloat, 1, me.comm, nullptr);
        if (me.rank == 1) {
          result = weftRecv(data, 1, weftFloat, 2, me.comm, nullptr);
          std::this_thread::sleep_for(std::chrono::seconds(1));  // in which both of rank 0 are asked about
          if (result == weftSuccess) result = weftSend(data, 1, weftFloat, 0, me.comm, nullptr);
        }
        while (result == weftSuccess) {
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
          weftCommGetAsyncError(me.comm, &result);
        }
        return result == weftRemoteError ? 0 : 3;
      },
      [](int) {
        setenv("WEFT_STALL_CHECK_S", "0.05", 1);
        setenv("WEFT_TIMEOUT_S", "2", 1);
      });
  for (int status : statuses) EXPECT_TRUE(exited_with(status, 0)) << status;
}

TEST(Failure, AbortReturnsWhileOthersWaitAndTellsThem) {
  for (size_t count : {size_t{10}, size_t{1} << 20}) {
    for (const Nodes& nodes : {blocks(1, 2), blocks(2, 1)})
      run_ranks(nodes, [count](Rank& me) {
        std::vector<float> data(count, 1.f);
        if (me.rank == 0) {
          weftStream_t stream;
          WEFT_OK(weftStreamCreate(&stream));
          WEFT_OK(weftAllReduce(data.data(), data.data(), count, weftFloat, weftSum, me.comm, stream));
          WEFT_OK(weftAllReduce(data.data(), data.data(), count, weftFloat, weftSum, me.comm, stream));
          const auto begin = std::chrono::steady_clock::now();
          const bool says_why = count == 10;
          WEFT_OK(says_why ? weftCommAbortWithReason(me.comm, "the shuttle is stuck")
                           : weftCommAbort(me.comm));
          EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
          EXPECT_EQ(weftStreamSynchronize(stream), weftAborted);
          WEFT_OK(weftStreamDestroy(stream));
          EXPECT_EQ(weftAllReduce(data.data(), data.data(), 1, weftFloat, weftSum, me.comm, nullptr),
                    weftInvalidComm);
          me.comm = nullptr;
        } else {
          std::this_thread::sleep_for(std::chrono::milliseconds(200));
          weftResult_t result = weftSuccess;
          for (int i = 0; i < 3 && result == weftSuccess; ++i)
            result = weftAllReduce(data.data(), data.data(), count, weftFloat, weftSum, me.comm, nullptr);
          EXPECT_EQ(result, weftRemoteError);
          const std::string why = weftGetLastError(me.comm);
          const char* words = count == 10 ? "was aborted: the shuttle is stuck" : "was aborted";
          EXPECT_NE(why.find(words), std::string::npos) << why;
        }
      });
  }
}

TEST(Failure, AbortFromAnotherThreadEndsABlockingCall) {
  for (int round = 0; round < 5; ++round)
    run_ranks(blocks(1, 2), [](Rank& me) {
      if (me.rank == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        return;
      }
      std::vector<float> data(1000, 1.f);
      weftResult_t result = weftSuccess;
      std::thread blocked([&] {
        result = weftAllReduce(data.data(), data.data(), data.size(), weftFloat, weftSum, me.comm, nullptr);
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      WEFT_OK(weftCommAbort(me.comm));
      blocked.join();
      EXPECT_TRUE(result == weftAborted || result == weftInvalidComm)
          << result;  // the latter if it had not begun
      me.comm = nullptr;
    });
}

/// A watchdog's abort while the program waits in weftCommDestroy. The address sanitizer sees memory that goes
/// too early.
TEST(Failure, AbortFromAnotherThreadEndsADestroyThatWaits) {
  run_ranks(blocks(1, 2), [](Rank& me) {
    if (me.rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      return;
    }
    weftStream_t stream;
    WEFT_OK(weftStreamCreate(&stream));
    std::vector<float> data(1000);
    WEFT_OK(weftRecv(data.data(), data.size(), weftFloat, 1, me.comm, stream));
    weftResult_t destroyed = weftSuccess;
    std::thread waiting([&] { destroyed = weftCommDestroy(me.comm); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(weftCommAbort(me.comm), weftSuccess);
    waiting.join();
    EXPECT_TRUE(destroyed == weftSuccess || destroyed == weftInvalidComm) << "the latter if it came second";
    EXPECT_EQ(weftStreamSynchronize(stream), weftAborted);
    EXPECT_EQ(weftCommDestroy(me.comm), weftInvalidComm);
    WEFT_OK(weftStreamDestroy(stream));
    me.comm = nullptr;
  });
}

TEST(Failure, AbortFromAnotherThreadEndsLoopsThatRegister) {
  run_ranks(blocks(1, 1), [](Rank& me) {
    std::array<char, 4096> buffer;
    std::vector<std::thread> loops;
    for (int i = 0; i < 3; ++i)
      loops.emplace_back([&] {
        void* handle = nullptr;
        float two = 2;
        weftRedOp_t twice;
        while (weftCommRegister(me.comm, buffer.data(), buffer.size(), &handle) == weftSuccess &&
               weftRedOpCreatePreMulSum(&twice, &two, weftFloat, weftScalarHostImmediate, me.comm) ==
                   weftSuccess &&
               weftRedOpDestroy(twice, me.comm) == weftSuccess &&
               weftCommDeregister(me.comm, handle) == weftSuccess) {
        }
      });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(weftCommAbort(me.comm), weftSuccess);
    for (std::thread& loop : loops) loop.join();
    me.comm = nullptr;
  });
}

TEST(Recorder, TellsTheLastOperations) {
  run_ranks(blocks(1, 2), [](Rank& me) {
    std::vector<float> data;
    WEFT_OK(sum(me.comm, 10, data));
    WEFT_OK(sum(me.comm, 77, data));
    const std::string path =
        ::testing::TempDir() + "recorder." + std::to_string(getpid()) + "." + std::to_string(me.rank);
    WEFT_OK(weftCommDump(me.comm, path.c_str()));
    const auto dump = nlohmann::json::parse(std::ifstream(path));
    unlink(path.c_str());
    ASSERT_EQ(dump["operations"].size(), 2u);
    EXPECT_EQ(dump["operations"][1]["call"], "AllReduce of 77 float (sum)");
    EXPECT_EQ(dump["operations"][1]["result"], "success");
    EXPECT_EQ(dump["operations"][1]["bytes"], 308);
    EXPECT_LE(dump["operations"][1]["started_us"], dump["operations"][1]["done_us"]);
    EXPECT_EQ(dump["failure"], nullptr);
  });
}

}  // namespace
}  // namespace weft::testing
