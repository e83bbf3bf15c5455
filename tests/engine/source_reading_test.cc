// When help with a reading is taken, waited for and declined, with pieces that take as long as the test says,
// by a clock of the test's.
#include "engine/run/source_reading.h"

#include <gtest/gtest.h>

namespace weft::engine {
namespace {

int64_t g_now_ns = 1;
int64_t now() { return g_now_ns; }

struct Log {
  int fetched = 0, taken = 0, worth = 0, in_vain = 0;
  int64_t alone_ns = 0;
};

/// Every piece is there at once, until help was in vain twice; a fetch takes `fetch_us`, the first one ten
/// times as long, bringing `bringing_us`.
class FakeReading final : public transport::Reading {
 public:
  FakeReading(Log& log, int fetch_us, int bringing_us)
      : log_(log), fetch_us_(fetch_us), bringing_us_(bringing_us) {}
  uint64_t piece() const override { return 1; }
  const std::byte* ready() const override { return log_.in_vain < 2 ? &byte_ : nullptr; }
  int64_t bringing_ns() const override { return bringing_us_ * 1000; }
  void take() override { ++log_.taken; }
  Status fetch(void*) override {
    const int times = log_.fetched++ == 0 ? 10 : 1;
    g_now_ns += times * fetch_us_ * 1000;
    return {};
  }
  bool judge(int64_t brought_ns, int64_t alone_ns) override {
    ++(brought_ns <= alone_ns * 3 / 2 ? log_.worth : log_.in_vain);
    log_.alone_ns = alone_ns;
    return log_.in_vain < 2;
  }

 private:
  Log& log_;
  const int fetch_us_, bringing_us_;
  std::byte byte_{};
};

Log read(int pieces, int fetch_us, int bringing_us) {
  Log log;
  SourceReading reading(0, std::make_unique<FakeReading>(log, fetch_us, bringing_us), now);
  std::byte bounce;
  for (int i = 0; i < pieces; ++i) {
    for (int polls = 0; !reading.may_go_on() && polls < 1000; ++polls) g_now_ns += 1000;
    EXPECT_TRUE(reading.start(&bounce).ok());
    reading.finish(1);
  }
  return log;
}

TEST(SourceReading, TheFirstPieceAndAFewOthersAreReadWithoutHelp) {
  const Log log = read(150, 1000, 1);
  EXPECT_EQ(log.fetched, 3) << "0, 16 and 144";
  EXPECT_EQ(log.taken, 150);
  EXPECT_EQ(log.worth, 147 / 8);
  EXPECT_EQ(log.in_vain, 0);
}

/// Cores that are far apart: the owner took 30 us to write into lines that the reader's cache had.
TEST(SourceReading, HelpThatTakesLongerIsInVain) {
  const Log log = read(20, 100, 1'000'000);
  EXPECT_EQ(log.in_vain, 2);
  EXPECT_EQ(log.taken, 20);
  EXPECT_EQ(log.fetched, 4);
}

/// AllGather of 256 MiB took 65 ms between cores that are apart, 45 without help: the first piece had taken
/// so long that help seemed to be as quick.
TEST(SourceReading, OfThePiecesThatWereReadAloneTheQuickestCounts) {
  EXPECT_EQ(read(15, 1000, 1).alone_ns, 10'000'000);
  EXPECT_EQ(read(40, 1000, 1).alone_ns, 1'000'000);
}

/// A reduction may find that it cannot have another source's piece.
TEST(SourceReading, APieceThatIsStartedAgainIsTheSame) {
  Log log;
  SourceReading reading(0, std::make_unique<FakeReading>(log, 1, 1), now);
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
    SourceReading reading(0, std::make_unique<FakeReading>(log, 300, 3000), now);
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
  SourceReading reading(0, std::make_unique<FakeReading>(log, 100, 1'000'000), now);
  std::byte bounce;
  for (int i = 0; i < 18; ++i) {
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
