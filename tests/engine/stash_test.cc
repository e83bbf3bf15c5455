#include "engine/context/stash.h"

#include <gtest/gtest.h>

#include <string>

#include "allocations.h"

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
  EXPECT_TRUE(stash.keeps_of(1) && stash.keeps_of(2) && !stash.keeps_of(0) && !stash.keeps_of(3));
  const auto taken = stash.take(7, 3, -1);
  EXPECT_TRUE(!stash.keeps_of(1) && stash.keeps_of(2));
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

#ifdef WEFT_COUNTS_ALLOCATIONS
/// What a burst of early messages of so many operations allocates: all are here before the first is taken.
int64_t allocations_of_burst(Stash& stash, OpNumber operations, uint32_t bytes) {
  const std::string payload(bytes, 'x');
  testing::AllocationCounter::begin();
  for (OpNumber number = 0; number < operations; ++number)
    for (const int peer : {1, 2}) EXPECT_TRUE(stash.keep(peer, envelope(7, number, bytes), payload.data()));
  for (OpNumber number = 0; number < operations; ++number) stash.recycle(stash.take(7, number, -1));
  return testing::AllocationCounter::end().all();
}

TEST(Stash, ABurstBeyondFourMebibytesAllocatesNothingAgain) {
  Stash stash(64 << 20);
  EXPECT_GT(allocations_of_burst(stash, 60, 48 << 10), 0);
  EXPECT_EQ(allocations_of_burst(stash, 60, 48 << 10), 0);
}

TEST(Stash, ShortMessagesAfterABurstOfLongOnesComeToAllocateNothing) {
  Stash stash(64 << 20);
  allocations_of_burst(stash, 60, 48 << 10);
  allocations_of_burst(stash, 300, 8);
  EXPECT_EQ(allocations_of_burst(stash, 300, 8), 0);
  EXPECT_EQ(allocations_of_burst(stash, 60, 48 << 10), 0);
}

TEST(Stash, MoreMessagesThanSparesAtFirstComeToAllocateNothing) {
  Stash stash(64 << 20);
  allocations_of_burst(stash, 5000, 8);
  EXPECT_EQ(allocations_of_burst(stash, 5000, 8), 0);
}
#endif

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
