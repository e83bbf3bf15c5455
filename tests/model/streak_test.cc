// Back-to-back calls, worked out by hand: what a call takes where ranks are ahead of others.
#include <gtest/gtest.h>

#include "model/plans_by_hand.h"
#include "transport/message_burst.h"

namespace weft::model {
namespace {

using plan::Builder;
using plan::Plan;
using plan::Space;
using topology::Layout;

/// A machine on which a message takes its CPUs 2 µs and its way 10.
Machine busy_machine() {
  Machine machine = plain_machine();
  machine.inter.overhead_us = 2;
  return machine;
}

Simulation run_streak(const std::vector<Plan>& plans, const Machine& machine, int calls = kStreakCalls) {
  const Result<Simulation> result =
      simulate(plans, Layout::blocks(static_cast<int>(plans.size()), 1), machine, kLimits, {.calls = calls});
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? *result : Simulation{};
}

/// Rank 0 notifies all others.
std::vector<Plan> star(int ranks) {
  return plans_of(ranks, [=](Builder& b) {
    if (b.rank() > 0) b.wait(0, 0, 0);
    for (int peer = 1; b.rank() == 0 && peer < ranks; ++peer) b.signal(0, peer, 0);
  });
}

/// Each rank passes `bytes` on to the next, in so many puts; 0 are a notification.
std::vector<Plan> chain(int ranks, uint64_t bytes = 0, uint32_t puts = 1) {
  return plans_of(ranks, [=](Builder& b) {
    for (uint32_t i = 0; i < puts; ++i) {
      const int next = b.rank() + 1;
      if (b.rank() > 0) b.wait(0, b.rank() - 1, i);
      if (next < ranks) b.put(0, next, b.output(bytes * i), at(next, Space::output, bytes * i), bytes, i);
    }
  });
}

TEST(Streak, OfOneCallIsThatCall) {
  const Simulation one = run_streak(star(4), busy_machine(), 1);
  EXPECT_DOUBLE_EQ(one.total_us, 3 * 2 + 10 + 2);
  EXPECT_DOUBLE_EQ(one.call_us, one.total_us);
}

TEST(Streak, OfAStarTakesItsRootsWork) {
  Machine machine = busy_machine();
  EXPECT_DOUBLE_EQ(run_streak(star(4), machine).call_us, 3 * 2)
      << "the others are done 12 µs later, each time";
  EXPECT_DOUBLE_EQ(run_streak(star(4), machine).total_us, kStreakCalls * 6 + 12);
  machine.call_us = 1;
  EXPECT_DOUBLE_EQ(run_streak(star(4), machine).call_us, 1 + 3 * 2) << "each call is paid for";
}

TEST(Streak, OfAChainTakesOneRanksWork) {
  for (const int ranks : {3, 4, 9}) {
    EXPECT_DOUBLE_EQ(run_streak(chain(ranks), busy_machine()).call_us, 2 + 2)
        << ranks << " ranks: in and out";
    EXPECT_DOUBLE_EQ(run_streak(chain(ranks), busy_machine(), 1).total_us, (ranks - 1) * 14) << "alone";
  }
}

TEST(Streak, OfCallsInWhichAllWaitForAllTakesTheirLatency) {
  const double alone_us = run_streak(ring(8, 500), busy_machine(), 1).total_us;
  EXPECT_NEAR(run_streak(ring(8, 500), busy_machine()).call_us, alone_us, 0.05 * alone_us);
}

TEST(Streak, MessagesOfLaterCallsWaitForThem) {
  // Rank 0 is ahead of rank 1, which copies for 50 µs before it looks at what rank 0 sent.
  const auto plans = plans_of(2, [](Builder& b) {
    if (b.rank() == 0) return void(b.signal(0, 1, 0));
    b.copy(0, b.input(), b.output(), 50'000);
    b.wait(0, 0, 0);
  });
  const Simulation streak = run_streak(plans, busy_machine());
  EXPECT_DOUBLE_EQ(streak.finish_us[0], kStreakCalls * 2);
  EXPECT_DOUBLE_EQ(streak.finish_us[1], kStreakCalls * (50 + 2));
}

TEST(Streak, OfPutsGoesAtTheInterfacesSpeed) {
  Machine machine = plain_machine();  // 100 bytes/µs
  EXPECT_DOUBLE_EQ(run_streak(chain(2, 1000), machine).call_us, 10)
      << "the next call's put leaves 10 µs later";
  machine.nic_bytes_per_us = 50;
  EXPECT_DOUBLE_EQ(run_streak(chain(2, 1000), machine).call_us, 20);
  EXPECT_DOUBLE_EQ(run_streak(chain(5, 1000), machine).call_us, 20) << "however long the chain";
}

TEST(Streak, WhatTheKernelHasTakenNobodyWaitsFor) {
  Machine machine = plain_machine();
  machine.inter.by_cpu = true;
  machine.inter.bytes_per_us = 1000;
  const Simulation streak = run_streak(chain(2, 1000), machine);
  EXPECT_DOUBLE_EQ(streak.finish_us[0], kStreakCalls * 1) << "written, and on its way";
  EXPECT_DOUBLE_EQ(streak.call_us, 10) << "the interface, which the receiver waits for";
  const uint64_t longer = 1 << 20;  // more than the kernel keeps
  EXPECT_GT(run_streak(chain(2, longer), machine, 1).finish_us[0], (longer - (256 << 10)) / 100.0 - 1e-6);
}

TEST(Streak, AMessageThatWasThereFirstCostsNoSwitch) {
  const auto plans = plans_of(2, [](Builder& b) {
    if (b.rank() == 0) return void(b.signal(0, 1, 0));
    b.wait(0, 0, 0);
    b.copy(0, b.input(), b.output(), 3000);
  });
  Machine machine = plain_machine();
  machine.cores = 1;
  machine.switch_us = 5;
  const Result<Simulation> streak =
      simulate(plans, Layout::blocks(1, 2), machine, kLimits, {.calls = kStreakCalls});
  ASSERT_TRUE(streak.ok()) << streak.status().message();
  EXPECT_DOUBLE_EQ(streak->finish_us[1], 5 + kStreakCalls * 3.0) << "the first call waits, the others do not";
}

TEST(Streak, OfBroadcastsOnSharedCoresPaysOneSwitchForManyMessages) {
  const auto plans = plans_of(4, [](Builder& b) {
    if (b.rank() > 0) return void(b.wait(0, 0, 0));
    for (int peer = 1; peer < 4; ++peer) b.signal(0, peer, 0);
  });
  Machine machine = plain_machine();
  machine.cores = 2;
  machine.switch_us = 5;
  machine.call_us = 1;
  const auto streak = simulate(plans, Layout::blocks(1, 4), machine, kLimits, {.calls = kStreakCalls});
  ASSERT_TRUE(streak.ok()) << streak.status().message();
  EXPECT_DOUBLE_EQ(streak->total_us, 1 + 5 + kStreakCalls + 5 + (kStreakCalls - 1))
      << "a rank waits in its first call, the other one has all calls in one turn, and so has then the first";
  EXPECT_DOUBLE_EQ(streak->call_us, 2) << "both ranks of a core";
}

// Its rank gave its core away behind each put, though the kernel had taken that: Broadcasts down a chain of
// nodes that share cores were predicted two to three times too long.
TEST(Streak, WhosePutsTheKernelHasTakenKeepsItsCore) {
  Machine machine = plain_machine();
  machine.inter = {.alpha_us = 0, .overhead_us = 2, .bytes_per_us = 1e6, .by_cpu = true};
  machine.nic_bytes_per_us = 1e6;
  machine.cores = 0.25;  // one for all four
  machine.switch_us = 10;
  const Simulation streak = run_streak(chain(4, 8), machine);
  EXPECT_NEAR(streak.total_us, kStreakCalls * 6 * 2 * kSameCore + 3 * 10, 0.01)
      << "six ends of messages a call, and a turn for each rank behind the first";
}

// Of what has come together only the first costs a look.
TEST(Streak, MessagesOfOneSenderAreReadTogether) {
  Machine machine = plain_machine();
  machine.inter = {
      .alpha_us = 0, .overhead_us = 4, .sending_us = 2, .behind_us = 1, .bytes_per_us = 100, .by_cpu = true};
  const auto after_a_copy = [](Builder& b) {
    if (b.rank() == 1) b.copy(0, b.input(), b.output(), 20000);
    for (uint32_t i = 0; i < 4; ++i) {
      if (b.rank() == 0) b.signal(0, 1, i);
      else b.wait(0, 0, i);
    }
  };
  const auto plans = plans_of(2, after_a_copy);
  EXPECT_DOUBLE_EQ(run_streak(plans, machine, 1).total_us, 20 + 6 + 3 * 1)
      << "all are there when it has copied";
  machine.inter.behind_us = 0;
  EXPECT_DOUBLE_EQ(run_streak(plans, machine, 1).total_us, 20 + 4 * 6);
}

// The first messages go by themselves (transport/message_burst.h); those that follow share writes, each of
// which takes what comes in its wait, or so many bytes.
TEST(Streak, MessagesOfABurstShareWrites) {
  constexpr double kSending = 2, kGathered = 0.5, kWaitUs = transport::tcp::kBurstWaitNs / 1e3;
  constexpr uint32_t kFirst = transport::tcp::kBeforeBurst, kOthers = 100;
  Machine machine = plain_machine();
  machine.inter = {.alpha_us = 0,
                   .overhead_us = 1.5,
                   .sending_us = kSending,
                   .behind_us = 0.1,
                   .gathered_us = kGathered,
                   .bytes_per_us = 1e9,
                   .by_cpu = true};
  machine.nic_bytes_per_us = 1e9;
  const auto sent_us = [&](uint32_t messages, uint64_t bytes = 0) {
    const auto plans = plans_of(2, [=](Builder& b) {
      for (uint32_t i = 0; i < messages; ++i) {
        if (b.rank() == 1) b.wait(0, 0, i);
        else if (bytes == 0) b.signal(0, 1, i);
        else b.put(0, 1, b.input(), {1, Space::output, 0}, bytes, i);
      }
    });
    return run_streak(plans, machine, 1).finish_us.front();
  };
  EXPECT_NEAR(sent_us(kFirst), kFirst * kSending, 0.1);
  EXPECT_NEAR(sent_us(kFirst + kOthers) - sent_us(kFirst), kOthers * kGathered * (1 + kSending / kWaitUs), 1);
  const double of_queue = (4096 + 64.0) / transport::tcp::kCoalescedWriteBytes;
  EXPECT_NEAR(sent_us(kFirst + kOthers, 4096) - sent_us(kFirst, 4096),
              kOthers * (kGathered + kSending * of_queue), 1);
  EXPECT_NEAR(sent_us(kOthers, 4097), kOthers * kSending, 1) << "too long to wait";
  machine.inter.gathered_us = 0;
  EXPECT_NEAR(sent_us(kOthers), kOthers * kSending, 0.1);
}

TEST(Streak, IsAsLongAsAFifoHasRoomWhereARootIsAheadInItsTurn) {
  Machine machine = plain_machine();
  plan::Request request{.collective = plan::Collective::broadcast, .count = 8, .element_bytes = 1};
  const plan::Limits limits{.eager_intra_bytes = 16 << 10};
  EXPECT_EQ(streak_calls(request, Layout::blocks(1, 4), machine, limits), kStreakCalls) << "a core each";
  machine.cores = 2;
  EXPECT_EQ(streak_calls(request, Layout::blocks(1, 4), machine, limits), 64);
  EXPECT_EQ(streak_calls(request, Layout::blocks(2, 4), machine, limits), 64) << "through a network, too";
  machine.cores = 4;
  machine.inter.gathered_us = 0.2;
  EXPECT_EQ(streak_calls(request, Layout::blocks(2, 4), machine, limits), 64)
      << "so that messages share writes";
  EXPECT_EQ(streak_calls(request, Layout::blocks(1, 4), machine, limits), kStreakCalls)
      << "which is between nodes";
  machine.cores = 2;
  request.count = 4 << 10;
  EXPECT_EQ(streak_calls(request, Layout::blocks(1, 4), machine, limits), 16);
  request.count = 1 << 20;
  EXPECT_EQ(streak_calls(request, Layout::blocks(1, 4), machine, limits), kStreakCalls);
  request = {.collective = plan::Collective::all_reduce, .count = 8, .element_bytes = 1};
  EXPECT_EQ(streak_calls(request, Layout::blocks(1, 4), machine, limits), kStreakCalls) << "all wait for all";
}

TEST(Streak, OfTooManyOrTooFewCallsIsRefused) {
  for (const int calls : {0, -1, kMostCalls + 1}) {
    const auto result = simulate(star(2), Layout::blocks(2, 1), plain_machine(), kLimits, {.calls = calls});
    EXPECT_EQ(result.status().message(), fmt::format("simulate: {} calls, must be in [1, 255]", calls));
  }
  const auto kept =
      simulate(star(2), Layout::blocks(2, 1), plain_machine(), kLimits, {.keep_steps = true, .calls = 2});
  EXPECT_EQ(kept.status().code(), Code::invalid_argument);
  EXPECT_EQ(run_streak(star(2), busy_machine(), kMostCalls).call_us, 2);
}

}  // namespace
}  // namespace weft::model
