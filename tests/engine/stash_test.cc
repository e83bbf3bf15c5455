#include "engine/context/stash.h"

#include <gtest/gtest.h>

#include <string>

namespace weft::engine {
namespace {

transport::Envelope envelope(uint32_t comm, OpNumber number, uint32_t bytes = 0) {
  transport::Envelope envelope{};
  envelope.comm = comm;
  envelope.op = number;
  envelope.bytes = bytes;
  return envelope;
}

TEST(Stash, GivesAnOperationItsMessagesInOrder) {
  Stash stash(1 << 20);
  const std::string first = "one", second = "three";
  ASSERT_TRUE(stash.keep(1, envelope(7, 3, 3), first.data()));
  ASSERT_TRUE(stash.keep(2, envelope(7, 4), nullptr));
  ASSERT_TRUE(stash.keep(1, envelope(7, 3, 5), second.data()));
  const auto taken = stash.take(7, 3, -1);
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].payload.size(), 3u);
  EXPECT_EQ(taken[1].payload.size(), 5u);
  EXPECT_TRUE(stash.take(7, 3, -1).empty());
  EXPECT_EQ(stash.take(7, 4, -1).size(), 1u);
  EXPECT_TRUE(stash.empty());
  EXPECT_EQ(stash.bytes(), 0u);
}

TEST(Stash, RecycledMemoryHoldsNothingOfBefore) {
  Stash stash(1 << 20);
  for (OpNumber number = 0; number < 200; ++number) {
    const std::string payload(1 + number % 50, static_cast<char>('a' + number % 26));
    ASSERT_TRUE(stash.keep(1, envelope(7, number, payload.size()), payload.data()));
    ASSERT_TRUE(stash.keep(2, envelope(7, number), nullptr));
    auto taken = stash.take(7, number, -1);
    ASSERT_EQ(taken.size(), 2u);
    const std::string got(reinterpret_cast<const char*>(taken[0].payload.data()), taken[0].payload.size());
    EXPECT_EQ(got, payload);
    EXPECT_TRUE(taken[1].payload.empty());
    stash.recycle(std::move(taken));
    EXPECT_TRUE(stash.empty());
    EXPECT_EQ(stash.bytes(), 0u);
  }
}

TEST(Stash, TransfersOfOtherPairsHaveTheSameNumber) {
  Stash stash(1 << 20);
  ASSERT_TRUE(stash.keep(1, envelope(7, 3), nullptr));
  ASSERT_TRUE(stash.keep(2, envelope(7, 3), nullptr));
  const auto taken = stash.take(7, 3, 2);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].peer, 2);
  EXPECT_EQ(stash.take(7, 3, 1).size(), 1u);
}

TEST(Stash, ForgetsACommunicatorAndWhatItTook) {
  Stash stash(1 << 20);
  ASSERT_TRUE(stash.keep(1, envelope(7, 3), nullptr));
  ASSERT_TRUE(stash.keep(1, envelope(8, 3), nullptr));
  stash.drop(7);
  EXPECT_TRUE(stash.take(7, 3, -1).empty());
  EXPECT_EQ(stash.take(8, 3, -1).size(), 1u);
  EXPECT_EQ(stash.bytes(), 0u);
}

TEST(Stash, KeepsNoMoreThanItsBudget) {
  const std::string payload(800, 'x');
  Stash stash(1000);
  EXPECT_TRUE(stash.keep(1, envelope(7, 1, 400), payload.data()));
  EXPECT_FALSE(stash.keep(1, envelope(7, 2, 800), payload.data()));
  EXPECT_LE(stash.bytes(), 1000u);
  EXPECT_EQ(stash.take(7, 1, -1).size(), 1u);
  EXPECT_TRUE(stash.keep(1, envelope(7, 2, 800), payload.data()));
}

}  // namespace
}  // namespace weft::engine
