// What is made of rows of measured latencies, on made-up ones.
#include "model/measure.h"

#include <gtest/gtest.h>

namespace weft::model {
namespace {

using Rows = std::vector<std::vector<double>>;

// Most of a row as long as said, a few as one that was interrupted.
std::vector<double> row(double us, double interrupted_us = 50) {
  std::vector<double> times(20, us);
  times[3] = times[11] = us + interrupted_us;
  times[7] = us * 1.1;
  return times;
}

TEST(Agree, TakesTheQuickestOfRowsThatAreAboutAsLong) {
  const Latency latency = agree(Rows{row(4.2), row(3.9), row(5), row(4)}, Rows{row(14), row(15)}, false);
  EXPECT_DOUBLE_EQ(latency.us, 3.9);
  EXPECT_EQ(latency.doubt, "");
}

TEST(Agree, DoesWithoutTheRowsInWhichARankLostItsCore) {
  const Latency latency = agree(Rows{row(2900), row(4), row(2100), row(4.4)}, Rows{row(14), row(15)}, false);
  EXPECT_DOUBLE_EQ(latency.us, 4);
  EXPECT_EQ(latency.doubt, "");
}

TEST(Agree, DoubtsARowThatIsAlone) {
  const Latency latency = agree(Rows{row(2900), row(4), row(2100), row(3000)}, Rows{row(14)}, false);
  EXPECT_DOUBLE_EQ(latency.us, 4);
  EXPECT_EQ(latency.doubt, "rows of messages took 4 to 3e+03 µs each");
}

// Two ranks that take turns on one core are slow in every row; asleep they are not.
TEST(Agree, DoubtsRanksThatAreQuickerAsleep) {
  const Rows spun{row(2150), row(2140), row(2500), row(2160)}, slept{row(25), row(12)};
  const Latency latency = agree(spun, slept, false);
  EXPECT_DOUBLE_EQ(latency.us, 12);
  EXPECT_EQ(latency.doubt, "a message took 2.14e+03 µs between ranks that spun, 12 between sleeping ones");
  EXPECT_EQ(agree(spun, slept, true).doubt, "") << "there is one core, and it will always be so";
  EXPECT_DOUBLE_EQ(agree(spun, slept, true).us, 12);
}

TEST(Agree, BelievesALongWay) {
  const Latency latency =
      agree(Rows{row(40'100), row(40'000), row(40'300), row(40'200)}, Rows{row(40'010), row(39'900)}, false);
  EXPECT_DOUBLE_EQ(latency.us, 39'900);
  EXPECT_EQ(latency.doubt, "");
}

TEST(Agree, BelievesWhatAClockHardlyTellsApart) {
  EXPECT_EQ(agree(Rows{row(0.1), row(0.9), row(0.8), row(0.9)}, Rows{row(6)}, false).doubt, "");
}

TEST(Agree, HasNothingToSayOfNoRows) {
  EXPECT_EQ(agree(Rows{}, Rows{}, false).us, 0);
  EXPECT_EQ(agree(Rows{{}, {}}, Rows{{}}, false).doubt, "");
}

}  // namespace
}  // namespace weft::model
