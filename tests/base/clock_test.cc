// Deadlines at the ends of what a clock counts.
#include "base/clock.h"

#include <gtest/gtest.h>

#include <limits>

namespace weft {
namespace {

TEST(Deadline, BeyondTheClockIsNever) {
  for (const double seconds : {1e10, 1e300, std::numeric_limits<double>::infinity()}) {
    const Deadline deadline = Deadline::in_seconds(seconds);
    EXPECT_FALSE(deadline.passed()) << seconds;
    EXPECT_EQ(deadline.remaining_ms(), -1) << seconds;
    EXPECT_EQ(deadline.remaining_ms(100), 100) << seconds;
  }
}

TEST(Deadline, OfAHundredYearsHasNotPassed) {
  const Deadline deadline = Deadline::in_seconds(3.2e9);
  EXPECT_FALSE(deadline.passed());
  EXPECT_EQ(deadline.remaining_ms(), INT32_MAX);
}

TEST(Deadline, InNoTimeHasPassed) { EXPECT_TRUE(Deadline::in_seconds(0).passed()); }

}  // namespace
}  // namespace weft
