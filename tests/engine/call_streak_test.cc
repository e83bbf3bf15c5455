// How long rows of calls are expected to be.
#include "engine/run/call_streak.h"

#include <gtest/gtest.h>

#include <vector>

namespace weft::engine {
namespace {

using plan::Collective;

/// What is expected of each of so many calls.
std::vector<int> expectations(CallStreak& row, Collective collective, int root, int calls) {
  std::vector<int> expected;
  for (int i = 0; i < calls; ++i) {
    expected.push_back(row.expected(collective, root));
    row.add(collective, root);
  }
  return expected;
}

TEST(CallStreak, IsExpectedToGoOnForTwiceAsLongAsItHasLasted) {
  CallStreak row;
  const std::vector<int> expected = expectations(row, Collective::broadcast, 3, 40'000);
  for (int i = 0; i < 40'000; ++i) {
    int longest = 1;
    while (4 * longest <= i && longest < 4096) longest *= 4;
    ASSERT_EQ(expected[i], i < 4 ? 1 : 2 * longest) << i;
  }
}

TEST(CallStreak, EndsWithACallOfAnotherKindOrRoot) {
  CallStreak row;
  expectations(row, Collective::broadcast, 0, 100);
  EXPECT_EQ(row.expected(Collective::broadcast, 0), 128);
  EXPECT_EQ(row.expected(Collective::broadcast, 1), 1);
  EXPECT_EQ(row.expected(Collective::reduce, 0), 1);
  row.add(Collective::all_reduce, 0);
  EXPECT_EQ(row.expected(Collective::broadcast, 0), 1);
}

TEST(CallStreak, WhereAllWaitForAllNothingIsExpected) {
  CallStreak row;
  for (const int expected : expectations(row, Collective::all_reduce, 0, 1000)) ASSERT_EQ(expected, 1);
}

}  // namespace
}  // namespace weft::engine
