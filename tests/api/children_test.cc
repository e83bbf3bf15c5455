// Making communicators where more goes on: several of one parent, calls on the parent, groups that are wrong,
// aborts that come before the communicator.
#include <fstream>
#include <latch>
#include <nlohmann/json.hpp>

#include "api/processes.h"
#include "base/clock.h"
#include "base/settings.h"

namespace weft::testing {
namespace {

constexpr weftConfig_t not_blocking() {
  weftConfig_t config = WEFT_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

/// What a communicator has come to that is made or finalized without blocking.
weftResult_t settled(weftComm_t comm) {
  weftResult_t state = weftInProgress;
  while (state == weftInProgress) {
    EXPECT_EQ(weftCommGetAsyncError(comm, &state), weftSuccess) << weftGetLastError(nullptr);
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return state;
}

/// The sum of what the ranks of `comm` pass.
float sum(float value, weftComm_t comm) {
  EXPECT_EQ(weftAllReduce(&value, &value, 1, weftFloat, weftSum, comm, nullptr), weftSuccess)
      << weftGetLastError(comm);
  return value;
}

uint64_t operations_of(weftComm_t comm) {
  weftCommStats_t stats = WEFT_COMM_STATS_INITIALIZER;
  EXPECT_EQ(weftCommGetStats(comm, &stats), weftSuccess);
  return stats.operations;
}

/// The last `count` calls on a communicator, oldest first.
std::vector<std::string> last_calls(weftComm_t comm, size_t count) {
  const std::string path = ::testing::TempDir() + "calls." + std::to_string(getpid()) + "." +
                           std::to_string(reinterpret_cast<uintptr_t>(comm));
  EXPECT_EQ(weftCommDump(comm, path.c_str()), weftSuccess);
  const auto dump = nlohmann::json::parse(std::ifstream(path));
  unlink(path.c_str());
  std::vector<std::string> calls;
  for (const auto& row : dump["operations"]) calls.push_back(row["call"]);
  if (calls.size() > count) calls.erase(calls.begin(), calls.end() - static_cast<ptrdiff_t>(count));
  return calls;
}

// Ranks match them by their order, which was that of threads.
TEST(Children, OfOneParentInOneGroupHaveTheRightMembers) {
  run_ranks(blocks(1, 4), [](Rank& me) {
    const int row = me.rank / 2, column = me.rank % 2;
    for (int round = 0; round < 60; ++round) {
      weftComm_t in_row = nullptr, in_column = nullptr, turned = nullptr;
      WEFT_OK(weftGroupStart());
      WEFT_OK(weftCommSplit(me.comm, row, me.rank, &in_row, nullptr));
      WEFT_OK(weftCommSplit(me.comm, 10 + column, me.rank, &in_column, nullptr));
      WEFT_OK(weftCommSplit(me.comm, row, -me.rank, &turned, nullptr));
      WEFT_OK(weftGroupEnd());
      ASSERT_EQ(sum(static_cast<float>(me.rank), in_row), static_cast<float>(4 * row + 1)) << round;
      ASSERT_EQ(sum(static_cast<float>(me.rank), in_column), static_cast<float>(2 + 2 * column)) << round;
      int rank = -1;
      WEFT_OK(weftCommUserRank(turned, &rank));
      ASSERT_EQ(rank, 1 - column);
      for (weftComm_t comm : {in_row, in_column, turned}) WEFT_OK(weftCommDestroy(comm));
    }
  });
}

TEST(Children, MadeInTheBackgroundHaveTheirPlaceAmongTheParentsCalls) {
  run_ranks(blocks(1, 4), [](Rank& me) {
    const weftConfig_t config = not_blocking();
    for (int round = 0; round < 20; ++round) {
      weftComm_t child = nullptr, rest = nullptr;
      ASSERT_EQ(weftCommSplit(me.comm, me.rank % 2, 0, &child, &config), weftInProgress);
      ASSERT_EQ(sum(1, me.comm), 4.f) << round;
      ASSERT_EQ(last_calls(me.comm, 2), (std::vector<std::string>{"Split", "AllReduce of 1 float (sum)"}));
      ASSERT_EQ(settled(child), weftSuccess);
      ASSERT_EQ(sum(1, child), 2.f);
      ASSERT_EQ(weftCommShrink(child, nullptr, 0, &rest, &config, WEFT_SHRINK_DEFAULT), weftInProgress);
      ASSERT_EQ(settled(rest), weftSuccess);
      ASSERT_EQ(sum(1, rest), 2.f);
      for (weftComm_t comm : {rest, child}) WEFT_OK(weftCommDestroy(comm));
    }
  });
}

// In a group, too, where both kinds are in one order.
TEST(Children, OfAGroupAreNotBegunBeforeItsEnd) {
  run_ranks(blocks(1, 2), [](Rank& me) {
    const weftConfig_t config = not_blocking();
    weftComm_t first = nullptr, second = nullptr;
    WEFT_OK(weftGroupStart());
    ASSERT_EQ(weftCommSplit(me.comm, 0, me.rank, &first, &config), weftInProgress);
    WEFT_OK(weftCommSplit(me.comm, 0, -me.rank, &second, nullptr));
    EXPECT_EQ(last_calls(me.comm, 9).size(), 0u);
    WEFT_OK(weftGroupEnd());
    ASSERT_EQ(settled(first), weftSuccess);
    int rank = -1;
    WEFT_OK(weftCommUserRank(first, &rank));
    EXPECT_EQ(rank, me.rank);
    WEFT_OK(weftCommUserRank(second, &rank));
    EXPECT_EQ(rank, 1 - me.rank);
    for (weftComm_t comm : {first, second}) WEFT_OK(weftCommDestroy(comm));
  });
}

TEST(Children, ThatARankIsNotInAreNullAtOnceIfItDoesNotBlock) {
  run_ranks(blocks(1, 3), [](Rank& me) {
    const weftConfig_t config = not_blocking();
    for (const bool grouped : {false, true}) {
      weftComm_t pair = me.comm;  // not null
      if (grouped) WEFT_OK(weftGroupStart());
      const int color = me.rank == 1 ? WEFT_SPLIT_NOCOLOR : 0;
      const weftResult_t begun = weftCommSplit(me.comm, color, me.rank, &pair, &config);
      if (grouped) WEFT_OK(weftGroupEnd());
      if (me.rank == 1) {
        EXPECT_EQ(begun, weftSuccess);
        EXPECT_EQ(pair, nullptr);
      } else {
        ASSERT_EQ(begun, weftInProgress);
        ASSERT_EQ(settled(pair), weftSuccess);
        EXPECT_EQ(sum(1, pair), 2.f);
        WEFT_OK(weftCommDestroy(pair));
      }
    }
    EXPECT_EQ(sum(1, me.comm), 3.f);
  });
}

// The others have theirs then, and would wait in it.
TEST(Children, AbortedBeforeTheyAreThereAreToldToTheOthers) {
  std::latch told(3);
  run_ranks(
      blocks(1, 3),
      [&](Rank& me) {
        weftComm_t child = nullptr;
        if (me.rank == 1) {
          const weftConfig_t config = not_blocking();
          ASSERT_EQ(weftCommSplit(me.comm, 0, 0, &child, &config), weftInProgress);
          WEFT_OK(weftCommAbortWithReason(child, "nobody wants it"));
          weftResult_t state = weftSuccess;
          EXPECT_EQ(weftCommGetAsyncError(child, &state), weftInvalidComm);
        } else {
          WEFT_OK(weftCommSplit(me.comm, 0, 0, &child, nullptr));
          float value = 1;
          EXPECT_EQ(weftAllReduce(&value, &value, 1, weftFloat, weftSum, child, nullptr), weftRemoteError);
          const std::string why = weftGetLastError(child);
          EXPECT_NE(why.find("was aborted: nobody wants it"), std::string::npos) << why;
          WEFT_OK(weftCommDestroy(child));
        }
        told.arrive_and_wait();
      },
      [](weftConfig_t& config) { config.timeoutSeconds = 10; });
}

// The abort used to wait for WEFT_INIT_TIMEOUT_S.
TEST(Communicators, AbortedWhileTheyWaitForRanksAreGoneBeforeTheDeadline) {
  weftUniqueId id;
  WEFT_OK(weftGetUniqueId(&id));
  const weftConfig_t config = not_blocking();
  const int64_t begin_ns = now_ns();
  weftComm_t comm = nullptr;
  ASSERT_EQ(weftCommInitRankConfig(&comm, 2, id, 0, &config), weftInProgress);  // rank 1 never comes
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  weftResult_t state = weftSuccess;
  WEFT_OK(weftCommGetAsyncError(comm, &state));
  EXPECT_EQ(state, weftInProgress);
  WEFT_OK(weftCommAbort(comm));
  EXPECT_EQ(weftCommGetAsyncError(comm, &state), weftInvalidComm);
  EXPECT_LT(us_since(begin_ns), settings().init_timeout_s * 1e6 / 2);
}

TEST(Children, ThatCannotBeMadeLeaveNoHandle) {
  run_ranks(blocks(1, 1), [](Rank& me) {
    const auto leaves_none = [&](const auto& make) {
      weftComm_t made = me.comm;
      EXPECT_NE(make(&made), weftSuccess);
      EXPECT_EQ(made, nullptr) << weftGetLastError(nullptr);
    };
    leaves_none([&](weftComm_t* made) { return weftCommSplit(me.comm, -7, 0, made, nullptr); });
    leaves_none([&](weftComm_t* made) { return weftCommSplit(nullptr, 0, 0, made, nullptr); });
    const auto shrink = [&](const int* list, int count, int flags) {
      leaves_none(
          [=, &me](weftComm_t* made) { return weftCommShrink(me.comm, list, count, made, nullptr, flags); });
    };
    shrink(nullptr, -1, WEFT_SHRINK_DEFAULT);
    shrink(nullptr, 1, WEFT_SHRINK_DEFAULT);
    shrink(nullptr, 0, 99);
    EXPECT_EQ(weftCommSplit(me.comm, -7, 0, nullptr, nullptr), weftInvalidPointer);
  });
}

// It was called an AllGather of 2 int32, and matched one.
TEST(Children, AreNotMistakenForAnotherCall) {
  std::latch told(2);
  run_ranks(
      blocks(1, 2),
      [&](Rank& me) {
        weftComm_t child = nullptr;
        int32_t mine[2] = {}, all[4] = {};
        const weftResult_t result = me.rank == 0 ? weftCommSplit(me.comm, 0, 0, &child, nullptr)
                                                 : weftAllGather(mine, all, 2, weftInt32, me.comm, nullptr);
        EXPECT_TRUE(result == weftMismatch || result == weftRemoteError) << result;
        const std::string why = weftGetLastError(me.comm);
        EXPECT_NE(why.find("called Split"), std::string::npos) << why;
        told.arrive_and_wait();
      },
      [](weftConfig_t& config) { config.timeoutSeconds = 10; });
}

// One creation that is wrong spoils its group like any other call; what was right in it must not wait for
// ranks that may never come.
TEST(Groups, WithACreationThatIsWrongStartNothing) {
  run_ranks(blocks(1, 1), [](Rank& me) {
    const weftConfig_t config = not_blocking();
    weftUniqueId id;
    WEFT_OK(weftGetUniqueId(&id));
    const int nobody = 7;
    weftComm_t wrong = nullptr;
    const std::pair<weftResult_t, std::function<weftResult_t()>> mistakes[] = {
        {weftInvalidRoot, [&] { return weftCommInitRank(&wrong, 1, id, 5); }},
        {weftInvalidPointer, [&] { return weftCommInitEnv(nullptr); }},
        {weftInvalidArgument, [&] { return weftCommInitAll(&wrong, 0, nullptr); }},
        {weftInvalidArgument, [&] { return weftCommSplit(me.comm, -7, 0, &wrong, nullptr); }},
        {weftInvalidArgument, [&] { return weftCommShrink(me.comm, &nobody, 1, &wrong, nullptr, 9); }}};
    for (const auto& [code, mistake] : mistakes) {
      weftComm_t made = nullptr, quick = nullptr, kept = nullptr;
      float value = 1;
      WEFT_OK(weftGroupStart());
      WEFT_OK(weftCommInitRank(&made, 1, id, 0));
      EXPECT_EQ(weftCommInitRankConfig(&quick, 1, id, 0, &config), weftInProgress);
      kept = quick;
      EXPECT_EQ(mistake(), code);
      WEFT_OK(weftAllReduce(&value, &value, 1, weftFloat, weftSum, me.comm, nullptr));
      EXPECT_EQ(weftGroupEnd(), code);
      EXPECT_EQ(made, nullptr);
      EXPECT_EQ(quick, nullptr);
      EXPECT_EQ(settled(kept), code);
      WEFT_OK(weftCommDestroy(kept));
      EXPECT_EQ(operations_of(me.comm), 0u);
    }
  });
}

}  // namespace
}  // namespace weft::testing
