// Communicators of some ranks of another one, which only those ranks make.
#include <atomic>

#include "api/ranks.h"

namespace weft::testing {
namespace {

/// The sum of the members' world ranks over the group of `ranks` with a tag.
void check_sum(Rank& me, const std::vector<int>& ranks, uint64_t tag) {
  weftComm_t group = nullptr;
  WEFT_OK(weftCommCreateGroup(me.comm, ranks.data(), static_cast<int>(ranks.size()), tag, &group, nullptr));
  int place = -1, size = 0, expected = 0;
  WEFT_OK(weftCommUserRank(group, &place));
  WEFT_OK(weftCommCount(group, &size));
  EXPECT_EQ(size, static_cast<int>(ranks.size()));
  EXPECT_EQ(ranks[static_cast<size_t>(place)], me.rank);
  for (const int rank : ranks) expected += rank;
  std::vector<int> x(3000, me.rank);
  WEFT_OK(weftAllReduce(x.data(), x.data(), x.size(), weftInt32, weftSum, group, nullptr));
  EXPECT_EQ(x.back(), expected);
  WEFT_OK(weftCommDestroy(group));
}

// Ranks make different numbers of groups: nothing but the tag tells them apart.
TEST(Groups, AreMadeByTheirMembersAlone) {
  run_ranks(blocks(2, 2), [](Rank& me) {
    if (me.rank != 3) check_sum(me, {0, 1, 2}, 1);
    if (me.rank == 0 || me.rank == 3) check_sum(me, {3, 0}, 2);
    if (me.rank >= 2) check_sum(me, {2, 3}, 3);
    check_sum(me, {3, 2, 1, 0}, 4);
    check_sum(me, {3, 2, 1, 0}, 5);
    if (me.rank == 1) check_sum(me, {1}, 6);
  });
}

// No connection is opened for one.
TEST(Groups, ShareTheTransportsOfTheirParent) {
  run_ranks(blocks(2, 1), [](Rank& me) {
    const int both[] = {0, 1};
    weftComm_t group = nullptr;
    WEFT_OK(weftCommCreateGroup(me.comm, both, 2, 1, &group, nullptr));
    std::vector<float> x(100'000, 1.f);
    weftCommStats_t before = WEFT_COMM_STATS_INITIALIZER, after = WEFT_COMM_STATS_INITIALIZER;
    WEFT_OK(weftCommGetStats(me.comm, &before));
    WEFT_OK(weftAllReduce(x.data(), x.data(), x.size(), weftFloat, weftSum, group, nullptr));
    WEFT_OK(weftCommGetStats(me.comm, &after));
    EXPECT_GT(after.interBytes, before.interBytes);  // that of the transports, of which there is one set
    // It outlives its parent.
    WEFT_OK(weftCommDestroy(me.comm));
    me.comm = nullptr;
    WEFT_OK(weftAllReduce(x.data(), x.data(), x.size(), weftFloat, weftSum, group, nullptr));
    EXPECT_EQ(x[0], 4.f);
    WEFT_OK(weftCommDestroy(group));
  });
}

TEST(Groups, DoNotShareFailures) {
  run_ranks(blocks(2, 1), [](Rank& me) {
    const int both[] = {0, 1};
    weftComm_t group = nullptr;
    WEFT_OK(weftCommCreateGroup(me.comm, both, 2, 1, &group, nullptr));
    WEFT_OK(weftCommAbort(group));
    float x = 1;
    WEFT_OK(weftAllReduce(&x, &x, 1, weftFloat, weftSum, me.comm, nullptr));
    EXPECT_EQ(x, 2.f);
  });
}

TEST(Groups, OfRanksThatMakeNoSenseAreRefused) {
  run_ranks(blocks(1, 2), [](Rank& me) {
    weftComm_t group = me.comm;
    const int outside[] = {0, 1, 2}, twice[] = {0, 1, 1}, others[] = {1 - me.rank};
    EXPECT_EQ(weftCommCreateGroup(me.comm, outside, 3, 1, &group, nullptr), weftInvalidRoot);
    EXPECT_EQ(group, nullptr);
    EXPECT_NE(std::string(weftGetLastError(nullptr)).find("names rank 2, must be in [0, 2)"),
              std::string::npos);
    EXPECT_EQ(weftCommCreateGroup(me.comm, twice, 3, 1, &group, nullptr), weftInvalidArgument);
    EXPECT_EQ(weftCommCreateGroup(me.comm, others, 1, 1, &group, nullptr), weftInvalidArgument);
    EXPECT_NE(std::string(weftGetLastError(nullptr)).find("lacks the calling rank"), std::string::npos);
    EXPECT_EQ(weftCommCreateGroup(me.comm, nullptr, 1, 1, &group, nullptr), weftInvalidArgument);
    EXPECT_EQ(weftCommCreateGroup(me.comm, others, 0, 1, &group, nullptr), weftInvalidArgument);
    EXPECT_EQ(weftCommCreateGroup(me.comm, others, 1, 1, nullptr, nullptr), weftInvalidPointer);
    EXPECT_EQ(weftCommCreateGroup(nullptr, others, 1, 1, &group, nullptr), weftInvalidComm);
  });
}

}  // namespace
}  // namespace weft::testing
