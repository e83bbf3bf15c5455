#include "engine/failure/comm_health.h"

#include <gtest/gtest.h>

namespace weft::engine {
namespace {

const Status kGone = fail(Code::remote_error, "rank 1 is gone");
const Status kReport = fail(Code::remote_error, "rank 1 reports: out of memory");
const Status kTimeout = fail(Code::timeout, "not finished after 600 s");

TEST(CommHealth, TheFirstFailureStays) {
  CommHealth health;
  EXPECT_TRUE(health.ok());
  EXPECT_TRUE(health.fail(kTimeout, {}));
  EXPECT_FALSE(health.ok());
  EXPECT_FALSE(health.fail(kGone, {}));
  EXPECT_EQ(health.failure().message(), kTimeout.message());
  EXPECT_FALSE(health.by_report());
}

TEST(CommHealth, AReportSaysMoreThanThatARankIsGone) {
  CommHealth health;
  EXPECT_TRUE(health.fail(kGone, kReport));
  EXPECT_EQ(health.failure().message(), kReport.message());
  EXPECT_TRUE(health.by_report());
}

TEST(CommHealth, AReportDoesNotHideAFailureOfThisRank) {
  CommHealth health;
  EXPECT_TRUE(health.fail(kTimeout, kReport));
  EXPECT_EQ(health.failure().message(), kTimeout.message());
  EXPECT_FALSE(health.by_report());
}

TEST(CommHealth, ARankThatIsGoneWithoutAReportIsToldToOthers) {
  CommHealth health;
  EXPECT_TRUE(health.fail(kGone, {}));
  EXPECT_EQ(health.failure().message(), kGone.message());
  EXPECT_FALSE(health.by_report());
}

}  // namespace
}  // namespace weft::engine
