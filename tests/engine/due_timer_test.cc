// DueTimer, on made-up times: when the progress thread takes a turn, and when it need not look any more.
#include "engine/context/due_timer.h"

#include <gtest/gtest.h>

namespace weft::engine {
namespace {

constexpr int64_t kUs = 1000, kBegin = 1'000'000 * kUs;

/// A timer that has just been armed, and has taken its first turn.
struct Armed {
  Armed() {
    EXPECT_TRUE(timer.arm());
    EXPECT_TRUE(at(0)) << "there was no turn yet";
  }
  bool at(int64_t us) {
    return timer.is_due(kBegin + us * kUs, [this] { return due_us < 0 ? 0 : kBegin + due_us * kUs; });
  }
  DueTimer timer;
  int64_t due_us = -1;  // none
};

TEST(DueTimer, IsArmedOnce) {
  DueTimer timer;
  EXPECT_FALSE(timer.armed());
  EXPECT_TRUE(timer.arm());
  EXPECT_FALSE(timer.arm()) << "who finds it armed need wake nobody";
  timer.disarm();
  EXPECT_FALSE(timer.armed());
  EXPECT_TRUE(timer.arm());
}

TEST(DueTimer, ATurnIsDueOnceTheDueTimeHasPassed) {
  Armed armed;
  armed.due_us = 100;
  EXPECT_FALSE(armed.at(50));
  EXPECT_FALSE(armed.at(100));
  EXPECT_TRUE(armed.at(101));
}

TEST(DueTimer, NoTurnIsDueWhileTheDueTimeMovesOn) {
  Armed armed;
  for (int64_t us = 50; us < 1000; us += 50) {
    armed.due_us = us + 40;
    EXPECT_FALSE(armed.at(us)) << us;
  }
  armed.due_us = 1041;
  EXPECT_TRUE(armed.at(1001)) << "a millisecond after the last one, in any case";
  EXPECT_TRUE(armed.timer.armed());
}

TEST(DueTimer, DisarmsItselfOnceThereHasBeenNoDueTimeForAWhile) {
  Armed armed;
  EXPECT_FALSE(armed.at(100));
  EXPECT_TRUE(armed.timer.armed());
  EXPECT_FALSE(armed.at(399));
  EXPECT_TRUE(armed.timer.armed());
  EXPECT_FALSE(armed.at(401));
  EXPECT_FALSE(armed.timer.armed());
}

TEST(DueTimer, ADueTimeThatIsSetWhileItDisarmsItselfIsSeen) {
  Armed armed;
  EXPECT_FALSE(armed.at(100));
  int asked = 0;
  EXPECT_TRUE(armed.timer.is_due(kBegin + 600 * kUs, [&] { return asked++ == 0 ? 0 : kBegin + 640 * kUs; }));
  EXPECT_FALSE(armed.timer.armed());
}

}  // namespace
}  // namespace weft::engine
