#include "base/gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

namespace weft {
namespace {

TEST(Gate, DrainsAtOnceWhereNobodyIsInside) {
  Gate gate;
  gate.drain();
  { const Gate::Pass pass(&gate), again(&gate); }
  { const Gate::Pass nothing(nullptr); }
  gate.drain();
}

// More threads than have seats.
TEST(Gate, WaitsForAllWhoAreInside) {
  constexpr int kThreads = 7;
  Gate gate;
  std::latch inside(kThreads + 1), goes_on(kThreads + 1);
  std::atomic<int> left{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      const Gate::Pass pass(&gate), nested(&gate);
      inside.arrive_and_wait();
      goes_on.arrive_and_wait();
      ++left;
    });
  inside.arrive_and_wait();
  std::atomic<bool> drained{false};
  std::thread closes([&] {
    gate.drain();
    EXPECT_EQ(left, kThreads);
    drained = true;
  });
  for (int i = 0; i < 200; ++i) std::this_thread::yield();
  EXPECT_FALSE(drained);
  goes_on.arrive_and_wait();
  for (std::thread& thread : threads) thread.join();
  closes.join();
}

// Whoever has seen that it was open uses what is behind it before that is taken away.
TEST(Gate, NobodyIsInsideAnymoreWhenWhatIsBehindItGoes) {
  constexpr int kThreads = 2, kRounds = 2000;
  for (int round = 0; round < kRounds; ++round) {
    Gate gate;
    std::atomic<bool> open{true};
    auto behind = std::make_unique<std::atomic<int>>(0);
    std::latch all(kThreads + 1);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&] {
        all.arrive_and_wait();
        for (;;) {
          const Gate::Pass pass(&gate);
          if (!open.load(std::memory_order_acquire)) return;
          ++*behind;
        }
      });
    all.arrive_and_wait();
    open.store(false);
    gate.drain();
    behind.reset();
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace weft
