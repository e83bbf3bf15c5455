#include "engine/failure/peer_losses.h"

#include <gtest/gtest.h>

#include "engine/run/operation.h"

namespace weft::engine::peer_losses_test {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr auto kDeath = PeerLosses::Kind::death, kConnection = PeerLosses::Kind::connection;
const Status kWhy = fail(Code::remote_error, "gone");

TEST(PeerLosses, AreDueAfterATimeInWhichNothingMoves) {
  PeerLosses losses;
  losses.add(kConnection, 3, kWhy, 0, 10);
  EXPECT_TRUE(losses.due(50 * kMs, 10).empty());
  const auto due = losses.due(101 * kMs, 10);
  ASSERT_EQ(due.size(), 1u);
  EXPECT_EQ(due[0].rank, 3);
  EXPECT_EQ(losses.due(101 * kMs, 10).size(), 1u) << "a connection that ended concerns later operations too";
  EXPECT_FALSE(losses.any_death());
  EXPECT_TRUE(losses.dead().empty());
}

TEST(PeerLosses, WaitWhileThingsMoveButNotForEver) {
  PeerLosses losses;
  losses.add(kDeath, 3, kWhy, 0, 10);
  EXPECT_TRUE(losses.due(101 * kMs, 11).empty());
  EXPECT_TRUE(losses.due(202 * kMs, 12).empty());
  EXPECT_TRUE(losses.any_death());
  EXPECT_EQ(losses.due(1001 * kMs, 13).size(), 1u);
  EXPECT_TRUE(losses.empty());
}

// A rank that has named the first death ends, too. Its own death must not be the reason that others give.
TEST(PeerLosses, ALaterDeathDoesNotOvertakeAnEarlierOne) {
  PeerLosses losses;
  losses.add(kDeath, 1, kWhy, 0, 10);
  losses.add(kDeath, 0, kWhy, 80 * kMs, 11);
  EXPECT_TRUE(losses.due(101 * kMs, 11).empty()) << "something has moved since the first";
  EXPECT_TRUE(losses.due(190 * kMs, 11).empty()) << "the first waits";
  const auto due = losses.due(202 * kMs, 11);
  ASSERT_EQ(due.size(), 2u);
  EXPECT_EQ(due[0].rank, 1);
  EXPECT_EQ(due[1].rank, 0);
}

TEST(PeerLosses, ADeathIsFinalOnceItsGraceIsOver) {
  PeerLosses losses;
  losses.add(kDeath, 3, kWhy, 0, 10);
  losses.add(kConnection, 3, kWhy, 0, 10);
  EXPECT_TRUE(losses.dead().empty());
  EXPECT_EQ(losses.due(INT64_MAX, 10).size(), 2u);
  ASSERT_TRUE(losses.dead().contains(3));
  EXPECT_EQ(losses.dead().at(3).message(), "gone");
  EXPECT_FALSE(losses.any_death());
  EXPECT_FALSE(losses.empty()) << "the report of the connection";
}

// Its operation ends with the reason that says more: the death of the peer that it could not reach.
TEST(PeerLosses, AnOperationThatCouldNotReachItsPeerIsDueAfterTheDeath) {
  PeerLosses losses;
  Operation op;
  losses.add(op, kWhy, 0, 10);
  losses.add(kDeath, 3, kWhy, 0, 10);
  EXPECT_TRUE(losses.due(50 * kMs, 10).empty());
  const auto due = losses.due(101 * kMs, 10);
  ASSERT_EQ(due.size(), 2u);
  EXPECT_EQ(due[0].rank, 3);
  EXPECT_EQ(due[1].op, &op);
  EXPECT_TRUE(losses.empty()) << "an operation is reported once";
}

}  // namespace
}  // namespace weft::engine::peer_losses_test
