#include "base/biased_mutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <mutex>
#include <thread>
#include <vector>

#include "base/membarrier.h"

namespace weft {

/// The two halves of an owner's way in, between which it may be stopped.
class BiasedMutexTest : public ::testing::Test {
 protected:
  using Seat = BiasedMutex::Seat;
  static Seat* first_half(BiasedMutex& mutex) { return mutex.own_seat(); }
  static bool second_half(BiasedMutex& mutex, Seat* seat) { return mutex.sit_down(*seat); }
};

namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool kMayBias = false;
#else
constexpr bool kMayBias = true;
#endif

/// Takes it up to `most` times; whether this thread has the bias then.
bool earn_bias(BiasedMutex& mutex, int most) {
  for (int i = 0; i < most; ++i) {
    const std::lock_guard guard(mutex);
    if (mutex.biased()) return true;
  }
  return false;
}

/// Nobody else gets in before this thread, which has it, lets go; it has not afterwards.
void expect_others_kept_out(BiasedMutex& mutex) {
  std::atomic<bool> in{false};
  std::thread other([&] {
    const std::lock_guard guard(mutex);
    in = true;
  });
  for (int i = 0; i < 200; ++i) std::this_thread::yield();
  EXPECT_FALSE(in);
  mutex.unlock();
  other.join();
  EXPECT_TRUE(in);
}

TEST(BiasedMutex, FavoursWhoTakesItInARow) {
  if (!kMayBias || !has_membarrier()) GTEST_SKIP() << "no membarrier(2) here, or a sanitizer without it";
  BiasedMutex mutex;
  EXPECT_FALSE(earn_bias(mutex, 64));
  EXPECT_TRUE(earn_bias(mutex, 2));
  std::thread([&] {
    EXPECT_FALSE(mutex.try_lock()) << "the bias is another's";
    const std::lock_guard guard(mutex);
    EXPECT_FALSE(mutex.biased());
  }).join();
  EXPECT_FALSE(earn_bias(mutex, 128)) << "it costs more the second time";
  EXPECT_TRUE(earn_bias(mutex, 2));
}

TEST(BiasedMutex, WhoHasTheBiasKeepsOthersOut) {
  BiasedMutex mutex;
  earn_bias(mutex, 100);
  mutex.lock();
  expect_others_kept_out(mutex);
}

// The late "I am out" of an owner that has lost the bias is not its successor's.
TEST_F(BiasedMutexTest, AnOwnerThatWasStoppedOnItsWayInDoesNotLetOthersIn) {
  if (!kMayBias || !has_membarrier()) GTEST_SKIP() << "no membarrier(2) here, or a sanitizer without it";
  BiasedMutex mutex;
  std::latch stopped(2), goes_on(2), over(2);
  std::thread owner([&] {
    ASSERT_TRUE(earn_bias(mutex, 100));
    Seat* const seat = first_half(mutex);
    stopped.arrive_and_wait();
    goes_on.arrive_and_wait();
    EXPECT_FALSE(second_half(mutex, seat));
    over.arrive_and_wait();
  });
  stopped.arrive_and_wait();
  ASSERT_TRUE(earn_bias(mutex, 200));
  mutex.lock();
  goes_on.arrive_and_wait();
  over.arrive_and_wait();
  expect_others_kept_out(mutex);
  owner.join();
}

TEST(BiasedMutex, ThreadsBeyondThoseWithASeatDoWithoutTheBias) {
  BiasedMutex mutex;
  int biased = 0;
  std::latch all(6);
  std::vector<std::thread> threads;  // at once, so that none has the address of an earlier one
  std::mutex one_after_the_other;
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&] {
      {
        const std::lock_guard turn(one_after_the_other);
        biased += earn_bias(mutex, 64 << 6);
      }
      all.arrive_and_wait();
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(biased, kMayBias && has_membarrier() ? 4 : 0);
}

// Every thread has the bias now and then, and is disturbed in it; two numbers that are always alike show
// whether anybody else was in.
TEST(BiasedMutex, OneAtATimeWhoeverHasTheBias) {
  constexpr int kThreads = 3, kRounds = 300, kInARow = 700;
  BiasedMutex mutex;
  int64_t first = 0, second = 0;
  bool torn = false;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < kRounds; ++round) {
        for (int i = 0; i < kInARow; ++i) {
          if (i % 7 != t || !mutex.try_lock()) mutex.lock();
          torn |= first != second;
          ++first;
          ++second;
          mutex.unlock();
        }
        std::this_thread::yield();
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(torn);
  EXPECT_EQ(first, int64_t{kThreads} * kRounds * kInARow);
}

}  // namespace
}  // namespace weft
