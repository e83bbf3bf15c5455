// When help with a reading is taken, waited for and declined, with pieces that take as long as the test says.
#include "engine/source_reading.h"

#include <gtest/gtest.h>

#include <thread>

namespace weft::engine {
namespace {

struct Log {
  int fetched = 0, taken = 0, worth = 0, in_vain = 0;
};

/// Every piece is there at once, until help was in vain twice; a fetch takes `fetch_us`, bringing
/// `bringing_us`.
class FakeReading final : public transport::Reading {
 public:
  FakeReading(Log& log, int fetch_us, int bringing_us)
      : log_(log), fetch_us_(fetch_us), bringing_us_(bringing_us) {}
  uint64_t piece() const override { return 1; }
  const std::byte* ready() const override { return log_.in_vain < 2 ? &byte_ : nullptr; }
  int64_t bringing_ns() const override { return bringing_us_ * 1000; }
  void take() override { ++log_.taken; }
  Status fetch(void*) override {
    ++log_.fetched;
    std::this_thread::sleep_for(std::chrono::microseconds(fetch_us_));
    return {};
  }
  bool judge(bool worth) override {
    ++(worth ? log_.worth : log_.in_vain);
    return log_.in_vain < 2;
  }

 private:
  Log& log_;
  const int fetch_us_, bringing_us_;
  std::byte byte_{};
};

Log read(int pieces, int fetch_us, int bringing_us) {
  Log log;
  SourceReading reading(0, std::make_unique<FakeReading>(log, fetch_us, bringing_us));
  std::byte bounce;
  for (int i = 0; i < pieces; ++i) {
    const Deadline soon = Deadline::in_seconds(1);
    while (!reading.may_go_on() && !soon.passed()) {
    }
    EXPECT_TRUE(reading.start(&bounce).ok());
    reading.finish(1);
  }
  return log;
}

TEST(SourceReading, TheFirstPieceIsReadWithoutHelp) {
  const Log log = read(20, 1000, 1);
  EXPECT_EQ(log.fetched, 1);
  EXPECT_EQ(log.taken, 20);
  EXPECT_EQ(log.worth, 2);
  EXPECT_EQ(log.in_vain, 0);
}

/// Cores that are far apart: the owner took 30 us to write into lines that the reader's cache had.
TEST(SourceReading, HelpThatTakesLongerIsInVain) {
  const Log log = read(20, 100, 1'000'000);
  EXPECT_EQ(log.in_vain, 2);
  EXPECT_EQ(log.taken, 20);
  EXPECT_EQ(log.fetched, 4);
}

/// A reduction may find that it cannot have another source's piece.
TEST(SourceReading, APieceThatIsStartedAgainIsTheSame) {
  Log log;
  SourceReading reading(0, std::make_unique<FakeReading>(log, 1, 1));
  std::byte bounce;
  ASSERT_TRUE(reading.start(&bounce).ok());
  ASSERT_TRUE(reading.start(&bounce).ok());
  EXPECT_EQ(log.taken, 0);
  reading.finish(1);
  EXPECT_EQ(log.taken, 1);
}

/// Two sources that are read together take twice as long as one, which says nothing about help.
TEST(SourceReading, OfPiecesThatAreUsedTogetherEachCountsItsPart) {
  for (const int together : {1, 3}) {
    Log log;
    SourceReading reading(0, std::make_unique<FakeReading>(log, 3000, 3000));
    std::byte bounce;
    for (int i = 0; i < 9; ++i) {
      ASSERT_TRUE(reading.start(&bounce).ok());
      reading.finish(together);
    }
    EXPECT_EQ(log.in_vain, together == 1 ? 0 : 1) << "3 ms alone for " << together << ", 3 to bring one";
  }
}

TEST(SourceReading, AfterHelpHasEndedNothingIsWaitedFor) {
  Log log;
  SourceReading reading(0, std::make_unique<FakeReading>(log, 100, 1'000'000));
  std::byte bounce;
  for (int i = 0; i < 17; ++i) {
    ASSERT_TRUE(reading.may_go_on());
    ASSERT_TRUE(reading.start(&bounce).ok());
    reading.finish(1);
  }
  ASSERT_EQ(log.in_vain, 2);
  EXPECT_TRUE(reading.may_go_on());
}

TEST(SourceReading, AFewPiecesTellNothing) {
  const Log log = read(8, 100, 1'000'000);
  EXPECT_EQ(log.worth + log.in_vain, 0);
  EXPECT_EQ(log.taken, 8);
}

}  // namespace
}  // namespace weft::engine
