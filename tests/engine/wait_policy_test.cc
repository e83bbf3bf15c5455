// When a thread that waits stops looking.
#include "engine/context/wait_policy.h"

#include <gtest/gtest.h>

namespace weft::engine {
namespace {

constexpr int64_t kUs = 1000, kMs = 1'000'000;
constexpr WaitPolicy::Limits kUsual{.spin_ns = 20 * kUs, .yield_ns = 2 * kMs, .crowded = false};

/// Looks in vain from `now_ns` on, one look a microsecond, until patience is over; returns when.
int64_t look_until_over(WaitPolicy& patience, int64_t now_ns, bool rings = true) {
  for (const int64_t limit = now_ns + 100 * kMs; now_ns < limit; now_ns += kUs) {
    if (!patience.found_nothing()) continue;
    patience.tell(now_ns, rings);
    if (patience.over()) break;
  }
  return now_ns;
}

TEST(WaitPolicy, LastsAsLongAsTheSettingsSayAtFirst) {
  WaitPolicy patience(kUsual);
  const int64_t over = look_until_over(patience, kMs, /*rings=*/false);
  EXPECT_GT(over, kMs + 2 * kMs);
  EXPECT_LT(over, kMs + 2 * kMs + 300 * kUs);
}

TEST(WaitPolicy, LastsAQuarterOfThatWhereNoNewsCome) {
  WaitPolicy patience(kUsual);
  const int64_t over = look_until_over(patience, kMs);
  EXPECT_GT(over, kMs + 500 * kUs);
  EXPECT_LT(over, kMs + 800 * kUs);
}

TEST(WaitPolicy, SpinsThenGivesWay) {
  WaitPolicy patience(kUsual);
  EXPECT_TRUE(patience.spins());
  for (int look = 0; look < 64; ++look) patience.found_nothing();
  patience.tell(kMs, true);
  for (int look = 0; look < 64; ++look) patience.found_nothing();
  patience.tell(kMs + 21 * kUs, true);
  EXPECT_FALSE(patience.spins());
  patience.found();
  EXPECT_TRUE(patience.spins());
}

TEST(WaitPolicy, NeverSpinsWhereRanksShareCores) {
  WaitPolicy patience({.spin_ns = 0, .yield_ns = 2 * kMs, .crowded = true});
  EXPECT_FALSE(patience.spins());
}

// What follows after news that came `every_ns` for 10 ms.
int64_t lingers_after(int64_t every_ns, bool rings = true) {
  WaitPolicy patience(kUsual);
  int64_t now = kMs;
  for (int64_t end = now + 10 * kMs; now < end; patience.found())
    for (const int64_t next = now + every_ns; now < next; now += kUs)
      if (patience.found_nothing()) patience.tell(now, rings);
  return look_until_over(patience, now, rings) - now;
}

// Thousands of looks in vain between the pieces of a stream, 6 for each that found one, took two thirds of
// the CPU time of an AllGather on a slow network.
TEST(WaitPolicy, IsASingleLookWhereNewsComeSeldom) {
  EXPECT_EQ(0, lingers_after(500 * kUs));
  EXPECT_GT(lingers_after(70 * kUs), 2 * kMs);
}

// An AlltoAll of short messages over a long way went to sleep between the first one and the others, and took
// a fifth longer than one that had looked on.
TEST(WaitPolicy, LingersBehindTheFirstNewsOfAShortOperation) {
  WaitPolicy::Limits brief = kUsual;
  brief.linger_ns = 100 * kUs;
  WaitPolicy patience(brief);
  int64_t now = look_until_over(patience, kMs);
  EXPECT_LT(now, kMs + 800 * kUs) << "it has slept when the first one comes";
  patience.found();
  const int64_t over = look_until_over(patience, now);
  EXPECT_GE(over - now, 100 * kUs);
  EXPECT_LT(over - now, 120 * kUs);
}

TEST(WaitPolicy, DoesNotLingerWhereTheSettingsSayToSleep) {
  WaitPolicy patience({.spin_ns = 0, .yield_ns = 0, .looks = 1, .linger_ns = 100 * kUs});
  int64_t now = look_until_over(patience, kMs);
  patience.found();
  now += kMs;
  EXPECT_LE(look_until_over(patience, now) - now, 2 * kUs);
}

TEST(WaitPolicy, IsLongWhereNobodyRings) { EXPECT_GT(lingers_after(500 * kUs, false), 2 * kMs); }

// After ten seconds of a slow stream a progress thread slept at every look for as long again.
TEST(WaitPolicy, ForgetsThatNewsCameSeldom) {
  WaitPolicy patience(kUsual);
  int64_t now = kMs;
  const auto news = [&](int64_t every_ns, int64_t for_ns) {
    for (const int64_t end = now + for_ns; now < end; patience.found())
      for (const int64_t next = now + every_ns; now < next; now += kUs)
        if (patience.found_nothing()) patience.tell(now, true);
  };
  news(1000 * kUs, 1000 * kMs);
  EXPECT_EQ(0, look_until_over(patience, now) - now);
  news(20 * kUs, 40 * kMs);
  EXPECT_GT(look_until_over(patience, now) - now, kMs);
}

// A progress thread looks for what a device does, and naps: it had looked its fill before the first nap.
TEST(WaitPolicy, BeginsAnewAfterASleep) {
  WaitPolicy patience(kUsual);
  const int64_t over = look_until_over(patience, kMs, /*rings=*/false);
  EXPECT_GT(patience.idle_ns(), 2 * kMs);
  patience.slept();
  EXPECT_FALSE(patience.over());
  EXPECT_GT(look_until_over(patience, over, /*rings=*/false) - over, 2 * kMs);
}

TEST(WaitPolicy, IsLongAtTheBeginningOfAWait) {
  WaitPolicy patience(kUsual);
  int64_t now = kMs;
  for (int look = 0; look < 300; ++look, now += kUs)  // 0.3 ms
    if (patience.found_nothing()) patience.tell(now, true);
  patience.found();
  EXPECT_GT(look_until_over(patience, now) - now, 100 * kUs);
}

}  // namespace
}  // namespace weft::engine
