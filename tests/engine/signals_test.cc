#include "engine/run/signals.h"

#include <gtest/gtest.h>

namespace weft::engine {
namespace {

constexpr SignalName kName{3, 1};

uint64_t missing(Signals& signals, uint64_t count) {
  AwaitedSignals awaited{1, kName, count};
  signals.claim(awaited);
  return signals.missing(awaited);
}

TEST(Signals, CountWhenAllPutsBeforeThemHaveEnded) {
  Signals signals(2);
  AwaitedSignals awaited{1, kName, 2};
  signals.claim(awaited);
  EXPECT_FALSE(signals.ended(1, 2, kName));
  EXPECT_FALSE(signals.ended(1, 1, std::nullopt));
  EXPECT_EQ(signals.missing(awaited), 2u);
  EXPECT_TRUE(signals.ended(1, 0, kName));
  EXPECT_TRUE(signals.have_come(awaited));
  EXPECT_TRUE(signals.ended(1, 3, kName));
  EXPECT_EQ(missing(signals, 2), 1u);  // the fourth put's is one of them
}

TEST(Signals, OfOtherRanksAndNamesAreOthers) {
  Signals signals(3);
  signals.ended(2, 0, kName);
  signals.ended(1, 0, SignalName{3, 2});
  signals.ended(1, 1, std::nullopt);
  EXPECT_EQ(missing(signals, 1), 1u);
  signals.ended(1, 2, kName);
  EXPECT_EQ(missing(signals, 0), 0u);  // the one before waits for it
  EXPECT_EQ(missing(signals, 1), 1u);
}

TEST(Signals, NumbersOfPutsAreThoseOfTheirPeer) {
  Signals signals(3);
  EXPECT_EQ(signals.next_to(1), 0u);
  EXPECT_EQ(signals.next_to(1), 1u);
  EXPECT_EQ(signals.next_to(2), 0u);
}

}  // namespace
}  // namespace weft::engine
