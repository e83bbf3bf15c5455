#include "engine/failure/departures.h"

#include <gtest/gtest.h>

namespace weft::engine {
namespace {

constexpr int64_t kMs = 1'000'000;
const Status kWhy = fail(Code::remote_error, "gone");

TEST(Departures, ActAfterATimeInWhichNothingMoves) {
  Departures departures;
  departures.add(3, kWhy, 0, 10);
  EXPECT_TRUE(departures.due(50 * kMs, 10).empty());
  const auto due = departures.due(101 * kMs, 10);
  ASSERT_EQ(due.size(), 1u);
  EXPECT_EQ(due[0].rank, 3);
  EXPECT_EQ(departures.due(101 * kMs, 10).size(), 1u) << "they stay";
}

TEST(Departures, WaitWhileThingsMoveButNotForEver) {
  Departures departures;
  departures.add(3, kWhy, 0, 10);
  EXPECT_TRUE(departures.take_due(101 * kMs, 11).empty());
  EXPECT_TRUE(departures.take_due(202 * kMs, 12).empty());
  EXPECT_EQ(departures.take_due(1001 * kMs, 13).size(), 1u);
  EXPECT_TRUE(departures.empty());
}

}  // namespace
}  // namespace weft::engine
