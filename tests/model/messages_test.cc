// What messages take on their way, worked out by hand: CPUs at both ends, interfaces, rails.
#include "model/messages.h"

#include <gtest/gtest.h>

#include "model/plans_by_hand.h"

namespace weft::model {
namespace {

using plan::Builder;
using plan::Space;
using topology::Layout;

TEST(Simulate, OnePutTakesAlphaAndBytes) {
  const Simulation between = run(one_put(1000), Layout::blocks(2, 1));
  EXPECT_DOUBLE_EQ(between.total_us, 10 + 1000 / 100.0);
  EXPECT_DOUBLE_EQ(between.finish_us[0], 10) << "the source may be reused once the bytes have gone";
  EXPECT_EQ(between.inter.bytes, 1000u);
  EXPECT_EQ(between.inter.messages, 1u);
  EXPECT_EQ(between.intra.messages, 0u);
  EXPECT_DOUBLE_EQ(between.critical.inter_us, between.total_us);

  const Simulation inside = run(one_put(1000), Layout::blocks(1, 2));
  EXPECT_DOUBLE_EQ(inside.total_us, 1000 / 100.0 + 1);
  EXPECT_EQ(inside.intra.bytes, 1000u);
}

TEST(Simulate, EagerPutIsCopiedTwice) {
  plan::Limits eager = kLimits;
  eager.eager_intra_bytes = 1000;
  EXPECT_DOUBLE_EQ(run(one_put(1000), Layout::blocks(1, 2), plain_machine(), eager).total_us, 10 + 1 + 10);
}

TEST(Simulate, OverheadsAreTheCpusOnBothSides) {
  Machine machine = plain_machine();
  machine.inter.overhead_us = 2;
  machine.step_us = 0.5;
  EXPECT_DOUBLE_EQ(run(one_put(1000), Layout::blocks(2, 1), machine).total_us, 2.5 + 10 + 10 + 2.5);
}

TEST(Simulate, BytesThatCpusMoveStreamThroughBoth) {
  Machine machine = plain_machine();
  machine.inter.by_cpu = true;
  const Simulation result = run(one_put(1000), Layout::blocks(2, 1), machine);
  EXPECT_DOUBLE_EQ(result.total_us, 10 + 10) << "both CPUs and both interfaces work on it at the same time";
  // But a CPU that sends and receives does one after the other.
  const auto both_ways = plans_of(2, [](Builder& b) {
    b.put(0, 1 - b.rank(), b.input(), at(1 - b.rank(), Space::output), 1000, 0);
    b.wait(0, 1 - b.rank(), 0);
  });
  EXPECT_DOUBLE_EQ(run(both_ways, Layout::blocks(2, 1), machine).total_us, 10 + 10 + 0.0)
      << "the receiver's work begins when sending, 10 µs, is over, just as the first byte comes in";
  EXPECT_DOUBLE_EQ(run(both_ways, Layout::blocks(2, 1)).total_us, 10 + 10) << "interfaces are full duplex";
}

/// Over loopback receiving costs a third of sending: what both ranks do at once was predicted twice too long.
TEST(Simulate, ReceivingTakesItsOwnTime) {
  const auto exchange = plans_of(2, [](Builder& b) {
    b.put(0, 1 - b.rank(), b.input(), at(1 - b.rank(), Space::output), 1000, 0);
    b.wait(0, 1 - b.rank(), 0);
  });
  Machine machine = plain_machine();
  machine.nic_bytes_per_us = 1e6;
  machine.inter = {.alpha_us = 0, .overhead_us = 0, .bytes_per_us = 100, .by_cpu = true};
  SimulateOptions options;
  const auto total_us = [&] {
    const auto result = simulate(exchange, Layout::blocks(2, 1), machine, kLimits, options);
    EXPECT_TRUE(result.ok());
    return result.ok() ? result->total_us : 0;
  };
  EXPECT_NEAR(total_us(), 10 + 10, 0.1) << "as long as sending, if nothing is said";
  machine.inter.received_bytes_per_us = 400;
  EXPECT_NEAR(total_us(), 10 + 2.5, 0.1);
  options.working_set_bytes = 64 << 20;
  EXPECT_NEAR(total_us(), 10 + 2.5, 0.1) << "as in the cache, if nothing is said";
  machine.inter.sent_large_bytes_per_us = 50;
  machine.inter.received_large_bytes_per_us = 200;
  EXPECT_NEAR(total_us(), 20 + 5, 0.1);
  options.working_set_bytes = 4 << 20;
  EXPECT_NEAR(total_us(), (10 + 2.5) * 4 / 3, 0.1) << "a third of the way from 2 to 16 MiB";
}

/// A plan that goes through the same few MiB of scratch again and again receives into its caches.
TEST(Simulate, WhatIsReceivedIntoLittleScratchIsCached) {
  Machine machine = plain_machine();
  machine.nic_bytes_per_us = 1e6;
  machine.inter = {.alpha_us = 0,
                   .overhead_us = 0,
                   .bytes_per_us = 1000,
                   .by_cpu = true,
                   .received_bytes_per_us = 100,
                   .received_large_bytes_per_us = 50};
  const auto total_us = [&](uint64_t scratch) {
    const auto plans = plans_of(2, [=](Builder& b) {
      b.reserve(scratch);
      if (b.rank() == 0) b.put(0, 1, b.input(), at(1, Space::scratch), 1000, 0);
      else b.wait(0, 0, 0);
    });
    const auto result =
        simulate(plans, Layout::blocks(2, 1), machine, kLimits, {.working_set_bytes = 64 << 20});
    EXPECT_TRUE(result.ok());
    return result.ok() ? result->total_us : 0;
  };
  EXPECT_NEAR(total_us(1 << 20), 10, 0.1);
  EXPECT_NEAR(total_us(32 << 20), 20, 0.1);
}

TEST(Simulate, PutsOfOneNodeShareItsInterface) {
  // Ranks 0 and 1 on node 0 put to ranks 2 and 3 on nodes of their own.
  const auto plans = plans_of(4, [](Builder& b) {
    if (b.rank() < 2) b.put(0, b.rank() + 2, b.input(), at(b.rank() + 2, Space::output), 1000, 0);
    else b.wait(0, b.rank() - 2, 0);
  });
  const Layout layout({0, 0, 1, 2});
  EXPECT_DOUBLE_EQ(run(plans, layout).total_us, 2 * 10 + 10);
  Machine two_rails = plain_machine();
  two_rails.rails = 2;
  EXPECT_DOUBLE_EQ(run(plans, layout, two_rails).total_us, 10 + 10) << "each begins with a rail of its own";
  two_rails.stripe_bytes = 500;
  EXPECT_DOUBLE_EQ(run(plans, layout, two_rails).total_us, 2 * 5 + 10) << "each put takes both rails";
  EXPECT_DOUBLE_EQ(run(plans, Layout::blocks(4, 1)).total_us, 10 + 10) << "apart, they do not";
}

TEST(Simulate, ReceiversShareTheirNodesInterfaceToo) {
  const auto plans = plans_of(4, [](Builder& b) {
    if (b.rank() < 2) b.put(0, b.rank() + 2, b.input(), at(b.rank() + 2, Space::output), 1000, 0);
    else b.wait(0, b.rank() - 2, 0);
  });
  EXPECT_DOUBLE_EQ(run(plans, Layout({0, 1, 2, 2})).total_us, 2 * 10 + 10);
}

TEST(Simulate, MessagesToSeveralNodesCross) {
  const auto plans = plans_of(4, [](Builder& b) {
    if (b.rank() < 2) b.put(0, b.rank() + 2, b.input(), at(b.rank() + 2, Space::output), 1000, 0);
    else b.wait(0, b.rank() - 2, 0);
  });
  Machine machine = plain_machine();
  machine.crossing = 0.5;
  EXPECT_DOUBLE_EQ(run(plans, Layout({0, 0, 1, 2}), machine).total_us, 10 + 20 + 10);
  EXPECT_DOUBLE_EQ(run(plans, Layout({0, 0, 1, 1}), machine).total_us, 10 + 10 + 10) << "to one, they do not";
}

// The handle for the next message came after the bytes of the last one, which went to somebody else.
TEST(Simulate, NotificationsDoNotWaitForBytes) {
  const auto plans = plans_of(3, [](Builder& b) {
    if (b.rank() == 0) {
      b.put(0, 1, b.input(), at(1, Space::output), 1000, 0);
      b.signal(0, 2, 0);
    } else {
      b.wait(0, 0, 0);
    }
  });
  const Simulation result = run(plans, Layout::blocks(3, 1));
  EXPECT_DOUBLE_EQ(result.finish_us[1], 20);
  EXPECT_DOUBLE_EQ(result.finish_us[2], 10);
}

// All of one peer's went first: a Broadcast's root that had heard of one leader sooner than of the others, as
// where ranks share cores, was predicted to give that one its whole part before the others had anything.
TEST(Simulate, PutsToSeveralPeersShareAnInterface) {
  constexpr uint64_t kBytes = 32 << 10;
  constexpr double kPutUs = kBytes / 100.0;
  constexpr int kPuts = 8;
  const auto plans = plans_of(3, [](Builder& b) {
    if (b.rank() > 0) {
      if (b.rank() == 2) b.signal(0, 0, kPuts);  // takes 10 µs
      for (int i = 0; i < kPuts; ++i) b.wait(0, 0, i);
      return;
    }
    for (int peer = 1; peer <= 2; ++peer) {
      const int lane = peer - 1;
      if (peer == 2) b.wait(lane, 2, kPuts);
      for (int i = 0; i < kPuts; ++i)
        b.put(lane, peer, b.input(i * kBytes), at(peer, Space::output, i * kBytes), kBytes, i);
    }
  });
  Machine machine = plain_machine();
  const Layout layout = Layout::blocks(3, 1);
  EXPECT_NEAR(run(plans, layout, machine).finish_us[1], kPuts * kPutUs + 10, 1)
      << "what an interface moves by itself goes in the order in which it was told";
  machine.inter.by_cpu = true;
  machine.inter.bytes_per_us = 1e5;
  const Simulation shared = run(plans, layout, machine);
  EXPECT_NEAR(shared.finish_us[1], (2 * kPuts - 2) * kPutUs, kPutUs) << "all but the first by turns";
  EXPECT_NEAR(shared.finish_us[2], 2 * kPuts * kPutUs, kPutUs);
  EXPECT_NEAR(shared.total_us, 2 * kPuts * kPutUs + 10, 5) << "the interface never stands idle";
}

// A put that waited was given the interface for when its busy sender would come to write it, and everybody
// else's that came before waited behind it.
TEST(Simulate, APutThatWaitsForItsSenderHoldsUpNobodyElse) {
  constexpr uint64_t kBytes = 32 << 10;
  constexpr double kPutUs = kBytes / 100.0;
  // Ranks 0 and 1 share node 0, and put to 2 and 3. Rank 0 copies for long once it has put twice.
  const auto plans = plans_of(4, [](Builder& b) {
    if (b.rank() == 0) {
      for (int i = 0; i < 3; ++i)
        b.put(0, 2, b.input(i * kBytes), at(2, Space::output, i * kBytes), kBytes, i);
      b.copy(1, b.input(), b.output(), 10'000'000);
    } else if (b.rank() == 1) {
      b.wait(0, 3, 9);
      b.put(0, 3, b.input(), at(3, Space::output), kBytes, 0);
    } else if (b.rank() == 2) {
      for (int i = 0; i < 3; ++i) b.wait(0, 0, i);
    } else {
      b.signal(0, 1, 9);
      b.wait(0, 1, 0);
    }
  });
  Machine machine = plain_machine();
  machine.inter.by_cpu = true;
  machine.inter.bytes_per_us = 1e5;
  const Simulation result = run(plans, Layout({0, 0, 1, 2}), machine);
  EXPECT_GT(result.finish_us[2], 10'000) << "the third is written after the copy";
  EXPECT_LT(result.finish_us[3], 5 * kPutUs);
}

TEST(Simulate, PutsOverSeveralInterfacesDoNotWaitForOneOfThem) {
  constexpr uint64_t kBytes = 100 << 10;
  const auto plans = plans_of(2, [](Builder& b) {
    for (int i = 0; i < 4; ++i) {
      if (b.rank() == 0) b.put(0, 1, b.input(i * kBytes), at(1, Space::output, i * kBytes), kBytes, i);
      else b.wait(0, 0, i);
    }
  });
  Machine machine = plain_machine();
  machine.inter.by_cpu = true;
  machine.inter.bytes_per_us = 1e5;
  machine.rails = 4;
  machine.stripe_bytes = 128 << 10;
  EXPECT_NEAR(run(plans, Layout::blocks(2, 1), machine).total_us, kBytes / 100.0 + 10, 5);
}

TEST(Simulate, RingTakesItsFormula) {
  for (const int ranks : {2, 3, 8, 17}) {
    EXPECT_NEAR(run(ring(ranks, 500), Layout::blocks(ranks, 1)).total_us, (ranks - 1) * (10 + 500 / 100.0),
                1e-9);
  }
}

}  // namespace
}  // namespace weft::model
