// The simulator against cases that can be worked out by hand.
#include "model/simulate.h"

#include <gtest/gtest.h>

#include <functional>

#include "model/handed_over.h"
#include "model/plain_machine.h"

namespace weft::model {
namespace {

using plan::Builder;
using plan::Plan;
using plan::Request;
using plan::Space;
using plan::StepId;
using topology::Layout;

const Request kRequest{.collective = plan::Collective::all_reduce, .count = 1000, .element_bytes = 1};
/// Nothing is eager: every put inside a node is one copy by its sender.
const plan::Limits kLimits{.eager_intra_bytes = 0, .eager_inter_bytes = 0, .slice_bytes = 1 << 20};

std::vector<Plan> plans_of(int ranks, const std::function<void(Builder&)>& generate) {
  std::vector<Plan> plans;
  for (int rank = 0; rank < ranks; ++rank) {
    Builder builder("by hand", kRequest, ranks, rank);
    generate(builder);
    plans.push_back(builder.finish());
  }
  return plans;
}

plan::Region at(int rank, Space space, uint64_t offset = 0) { return {rank, space, offset}; }

Simulation run(const std::vector<Plan>& plans, const Layout& layout, const Machine& machine = plain_machine(),
               const plan::Limits& limits = kLimits) {
  const Result<Simulation> result = simulate(plans, layout, machine, limits, {.keep_steps = true});
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? *result : Simulation{};
}

/// Rank 0 puts `bytes` to rank 1.
std::vector<Plan> one_put(uint64_t bytes) {
  return plans_of(2, [=](Builder& b) {
    if (b.rank() == 0) b.put(0, 1, b.input(), at(1, Space::output), bytes, 0);
    else b.wait(0, 0, 0);
  });
}

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

TEST(Simulate, PeersMemoryIsReadAtItsOwnRate) {
  const auto plans = plans_of(2, [](Builder& b) {
    const int peer = 1 - b.rank();
    b.signal(0, peer, 0, Space::input);
    b.wait(0, peer, 0, Space::input);
    const plan::Region sources[] = {b.input(), at(peer, Space::input)};
    b.reduce(0, sources, b.output(), 1000, true);
    b.signal(0, peer, 1);
    b.wait(0, peer, 1);
  });
  EXPECT_DOUBLE_EQ(run(plans, Layout::blocks(1, 2)).total_us, 1 + (10 + 1 + 1) + 1);
  Machine machine = plain_machine();
  machine.memory.peer_us = 2;
  EXPECT_DOUBLE_EQ(run(plans, Layout::blocks(1, 2), machine).total_us, 1 + (2 + 10 + 1 + 1) + 1);
}

TEST(Simulate, ThePeersScratchIsMapped) {
  Machine machine = plain_machine();
  machine.memory.peer_cached = machine.memory.peer_large = 10;
  machine.memory.peer_us = 5;
  machine.memory.mapped_near = machine.memory.mapped_cached = machine.memory.mapped_large = 50;
  const auto put_to = [](Space space) {
    return plans_of(2, [=](Builder& b) {
      if (b.rank() == 0) b.put(0, 1, b.input(), at(1, space), 1000, 0);
      else b.wait(0, 0, 0);
    });
  };
  EXPECT_DOUBLE_EQ(run(put_to(Space::output), Layout::blocks(1, 2), machine).total_us, 5 + 100 + 1);
  EXPECT_DOUBLE_EQ(run(put_to(Space::scratch), Layout::blocks(1, 2), machine).total_us, 20 + 1);
  const auto copy_from = [](Space space) {
    return plans_of(2, [=](Builder& b) {
      if (b.rank() == 0) b.copy(0, at(1, space), b.output(), 1000);
    });
  };
  EXPECT_DOUBLE_EQ(run(copy_from(Space::input), Layout::blocks(1, 2), machine).total_us, 5 + 100);
  EXPECT_DOUBLE_EQ(run(copy_from(Space::scratch), Layout::blocks(1, 2), machine).total_us, 20);
}

TEST(Simulate, WhatARankUsesOfMappedScratchCountsAltogether) {
  Machine machine = plain_machine();
  machine.memory.mapped_near = 50;
  machine.memory.mapped_cached = machine.memory.mapped_large = 100;
  const auto puts = [](int count, int windows) {
    return plans_of(2, [=](Builder& b) {
      const uint64_t bytes = 128 << 10;
      b.reserve(bytes * windows);
      for (int i = 0; i < count; ++i)
        if (b.rank() == 0) b.put(0, 1, b.input(), at(1, Space::scratch, bytes * (i % windows)), bytes, i);
        else b.wait(0, 0, i);
    });
  };
  const double bytes = 128 << 10;
  EXPECT_DOUBLE_EQ(run(puts(1, 1), Layout::blocks(1, 2), machine).total_us, bytes / 50 + 1);
  EXPECT_DOUBLE_EQ(run(puts(8, 8), Layout::blocks(1, 2), machine).total_us, 8 * bytes / 100 + 1);
  EXPECT_DOUBLE_EQ(run(puts(8, 1), Layout::blocks(1, 2), machine).total_us, 8 * bytes / 50 + 1)
      << "always the same";
  // Whoever reads is alike, and needs no scratch of its own.
  const auto reads = plans_of(2, [](Builder& b) {
    for (uint64_t i = 0; i < 8 && b.rank() == 0; ++i)
      b.copy(0, at(1, Space::scratch, i * (128 << 10)), b.output(), 128 << 10);
  });
  EXPECT_DOUBLE_EQ(run(reads, Layout::blocks(1, 2), machine).total_us, 8 * bytes / 100);
}

TEST(Simulate, WhatAPeerHasJustWrittenIsHandedOver) {
  Machine machine = plain_machine();
  machine.memory.peer_cached = machine.memory.peer_large = 100;
  machine.memory.mapped_near = machine.memory.mapped_cached = machine.memory.mapped_large = 50;
  const auto copy_from = [](Space space) {
    return plans_of(2, [=](Builder& b) {
      if (b.rank() == 0) b.copy(0, at(1, space), b.output(), 1000);
    });
  };
  EXPECT_DOUBLE_EQ(run(copy_from(Space::input), Layout::blocks(1, 2), machine).total_us, 10);
  EXPECT_DOUBLE_EQ(run(copy_from(Space::output), Layout::blocks(1, 2), machine).total_us, 20);
  machine.memory.mapped_near = machine.memory.mapped_cached = machine.memory.mapped_large = 500;
  EXPECT_DOUBLE_EQ(run(copy_from(Space::output), Layout::blocks(1, 2), machine).total_us, 10);
}

TEST(Simulate, WhatIsUsedInTurnIsTakenOverSooner) {
  Machine machine = plain_machine();
  machine.memory.mapped_near = 50;
  machine.memory.mapped_cached = machine.memory.mapped_large = 100;
  const uint64_t bytes = 128 << 10;
  const auto puts = [&](int count) {
    return plans_of(2, [=](Builder& b) {
      for (int i = 0; i < count; ++i)
        if (b.rank() == 0) b.put(0, 1, b.input(), at(1, Space::scratch, bytes * (i % 8)), bytes, i);
        else b.wait(0, 0, i);
    });
  };
  const auto each = static_cast<double>(bytes);
  EXPECT_DOUBLE_EQ(run(puts(8), Layout::blocks(1, 2), machine).total_us, 8 * each / 100 + 1);
  EXPECT_DOUBLE_EQ(run(puts(16), Layout::blocks(1, 2), machine).total_us,
                   16 * each / mapped_rate(machine.memory, uint64_t{1 << 20} / HandedOver::kTakenSooner) + 1);
}

TEST(Simulate, APutIntoMappedScratchReadsItsSource) {
  Machine machine = plain_machine();
  machine.memory.mapped_near = machine.memory.mapped_cached = machine.memory.mapped_large = 50;
  machine.memory.copy_cached = 100;
  machine.memory.copy_large = 20;
  machine.memory.cache_bytes = machine.memory.large_bytes = 100;
  const auto plans = plans_of(2, [](Builder& b) {
    if (b.rank() == 0) b.put(0, 1, b.input(), at(1, Space::scratch), 1000, 0);
    else b.wait(0, 0, 0);
  });
  const auto us = [&](uint64_t working_set_bytes) {
    SimulateOptions options;
    options.working_set_bytes = working_set_bytes;
    return simulate(plans, Layout::blocks(1, 2), machine, kLimits, options)->total_us;
  };
  EXPECT_DOUBLE_EQ(us(50), 20 + 1);
  EXPECT_DOUBLE_EQ(us(1000), 20 + 40 + 1);
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

TEST(Simulate, InPlaceTheOwnPartStaysAndCountsOnce) {
  Machine machine = plain_machine();
  machine.memory.cache_bytes = 500;  // four times that are half way to memory's rate
  const auto plans = plans_of(1, [](Builder& b) {
    b.copy(0, b.input(), b.output(), 1000);
    b.copy(0, b.output(), b.scratch(b.reserve(1000)), 1000);
  });
  const auto copy_rate = [&](uint64_t working_set) {
    return rate_for(machine.memory, working_set, machine.memory.copy_cached, machine.memory.copy_large);
  };
  const auto total_us = [&](bool in_place) {
    const Result<Simulation> result =
        simulate(plans, Layout::blocks(1, 1), machine, kLimits, {.in_place = in_place});
    EXPECT_TRUE(result.ok()) << result.status().message();
    return result.ok() ? result->total_us : 0;
  };
  EXPECT_NEAR(total_us(false), 2 * 1000 / copy_rate(2000), 1e-9);
  EXPECT_NEAR(total_us(true), 1000 / copy_rate(1000), 1e-9);
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

TEST(Simulate, ReceiversShareTheirNodesInterfaceToo) {
  const auto plans = plans_of(4, [](Builder& b) {
    if (b.rank() < 2) b.put(0, b.rank() + 2, b.input(), at(b.rank() + 2, Space::output), 1000, 0);
    else b.wait(0, b.rank() - 2, 0);
  });
  EXPECT_DOUBLE_EQ(run(plans, Layout({0, 1, 2, 2})).total_us, 2 * 10 + 10);
}

/// n - 1 rounds; in each every rank passes `bytes` on to the next.
std::vector<Plan> ring(int ranks, uint64_t bytes) {
  return plans_of(ranks, [=](Builder& b) {
    const int next = (b.rank() + 1) % ranks, before = (b.rank() + ranks - 1) % ranks;
    for (int round = 0; round + 1 < ranks; ++round) {
      const uint64_t block = bytes * ((b.rank() + ranks - round) % ranks);
      b.put(0, next, b.output(block), at(next, Space::output, block), bytes, round);
      b.wait(0, before, round);
    }
  });
}

TEST(Simulate, RingTakesItsFormula) {
  for (const int ranks : {2, 3, 8, 17}) {
    EXPECT_NEAR(run(ring(ranks, 500), Layout::blocks(ranks, 1)).total_us, (ranks - 1) * (10 + 500 / 100.0),
                1e-9);
  }
}

TEST(Simulate, ReductionCostsEverySource) {
  const auto plans = plans_of(1, [](Builder& b) {
    const plan::Region sources[] = {b.input(), b.scratch(), b.scratch(1024)};
    b.reduce(0, sources, b.output(), 1000, true);
  });
  EXPECT_DOUBLE_EQ(run(plans, Layout::blocks(1, 1)).total_us, 3.0);
}

TEST(Simulate, LanesShareTheCpuAndDependenciesOrderThem) {
  const auto copies = plans_of(1, [](Builder& b) {
    const StepId first = b.copy(0, b.input(), b.scratch(), 1000);
    b.copy(1, b.input(), b.scratch(1024), 1000);
    b.copy(2, b.scratch(), b.output(), 1000, {{first}});
  });
  const Simulation result = run(copies, Layout::blocks(1, 1));
  EXPECT_DOUBLE_EQ(result.total_us, 3);
  EXPECT_DOUBLE_EQ(result.steps[0][1].ready_us, 0);
  EXPECT_DOUBLE_EQ(result.steps[0][1].start_us, 1);
  EXPECT_DOUBLE_EQ(result.steps[0][2].ready_us, 1);
  EXPECT_DOUBLE_EQ(result.steps[0][2].start_us, 2);
  EXPECT_EQ(result.steps[0][2].cause_step, 0u);
}

TEST(Simulate, DependencyOnAPutInTheSameLaneWaitsForItsSource) {
  const auto plans = plans_of(2, [](Builder& b) {
    if (b.rank() == 1) {
      b.wait(0, 0, 0);
      return;
    }
    const StepId put = b.put(0, 1, b.scratch(), at(1, Space::output), 1000, 0);
    b.copy(0, b.input(), b.scratch(), 1000, {{put}});
  });
  EXPECT_DOUBLE_EQ(run(plans, Layout::blocks(2, 1)).finish_us[0], 10 + 1);
}

TEST(Simulate, RanksThatShareCoresAreSlower) {
  const auto plans = plans_of(4, [](Builder& b) { b.copy(0, b.input(), b.output(), 1000); });
  Machine machine = plain_machine();
  machine.cores = 2;
  EXPECT_DOUBLE_EQ(run(plans, Layout::blocks(1, 4), machine).total_us, 2);
  EXPECT_DOUBLE_EQ(run(plans, Layout::blocks(2, 2), machine).total_us, 1);
}

TEST(Simulate, LargeBuffersCostMemoryRates) {
  Machine machine = plain_machine();
  machine.memory.cache_bytes = 250;  // input and output are eight times that
  const auto plans = plans_of(1, [](Builder& b) { b.copy(0, b.input(), b.output(), 1000); });
  EXPECT_DOUBLE_EQ(run(plans, Layout::blocks(1, 1), machine).total_us, 2);
}

TEST(Simulate, CriticalPathAddsUpToTheTotal) {
  // Round about: put to the other node, reduce there, put on inside, copy there.
  const auto plans = plans_of(3, [](Builder& b) {
    if (b.rank() == 0) b.put(0, 1, b.input(), at(1, Space::scratch), 1000, 0);
    if (b.rank() == 1) {
      b.wait(0, 0, 0);
      const plan::Region sources[] = {b.input(), b.scratch()};
      b.reduce(0, sources, b.output(), 1000, true);
      b.put(0, 2, b.output(), at(2, Space::scratch), 1000, 0);
    }
    if (b.rank() == 2) {
      b.wait(0, 1, 0);
      b.copy(0, b.scratch(), b.output(), 1000);
    }
  });
  const Simulation result = run(plans, Layout({0, 1, 1}));
  EXPECT_DOUBLE_EQ(result.critical.inter_us, 20);
  EXPECT_DOUBLE_EQ(result.critical.reduce_us, 2);
  EXPECT_DOUBLE_EQ(result.critical.intra_us, 11);
  EXPECT_DOUBLE_EQ(result.critical.copy_us, 1);
  EXPECT_DOUBLE_EQ(result.critical.queued_us, 0);
  EXPECT_EQ(result.critical.messages, 2);
  EXPECT_DOUBLE_EQ(result.total_us, 34);
}

TEST(Simulate, SaysWhoIsStuck) {
  auto plans = one_put(8);
  plans[0] = Builder("by hand", kRequest, 2, 0).finish();
  const Result<Simulation> result = simulate(plans, Layout::blocks(2, 1), plain_machine(), kLimits);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::internal_error);
  EXPECT_NE(
      result.status().message().find("rank 1 is stuck in lane 0 at step 0, waiting for tag 0 from rank 0"),
      std::string::npos)
      << result.status().message();
}

TEST(Simulate, RefusesPlansThatAreNotTheLayouts) {
  const auto plans = one_put(8);
  EXPECT_EQ(simulate(plans, Layout::blocks(3, 1), plain_machine(), kLimits).status().code(),
            Code::invalid_argument);
  const std::vector<Plan> twice{plans[0], plans[0]};
  EXPECT_EQ(simulate(twice, Layout::blocks(2, 1), plain_machine(), kLimits).status().code(),
            Code::invalid_argument);
}

// --- calls in a row

/// A machine on which a message takes its CPUs 2 µs and its way 10.
Machine busy_machine() {
  Machine machine = plain_machine();
  machine.inter.overhead_us = 2;
  return machine;
}

Simulation run_row(const std::vector<Plan>& plans, const Machine& machine, int calls = kRowCalls) {
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

TEST(Row, OfOneCallIsThatCall) {
  const Simulation one = run_row(star(4), busy_machine(), 1);
  EXPECT_DOUBLE_EQ(one.total_us, 3 * 2 + 10 + 2);
  EXPECT_DOUBLE_EQ(one.call_us, one.total_us);
}

TEST(Row, OfAStarTakesItsRootsWork) {
  Machine machine = busy_machine();
  EXPECT_DOUBLE_EQ(run_row(star(4), machine).call_us, 3 * 2) << "the others are done 12 µs later, each time";
  EXPECT_DOUBLE_EQ(run_row(star(4), machine).total_us, kRowCalls * 6 + 12);
  machine.call_us = 1;
  EXPECT_DOUBLE_EQ(run_row(star(4), machine).call_us, 1 + 3 * 2) << "each call is paid for";
}

TEST(Row, OfAChainTakesOneRanksWork) {
  for (const int ranks : {3, 4, 9}) {
    EXPECT_DOUBLE_EQ(run_row(chain(ranks), busy_machine()).call_us, 2 + 2) << ranks << " ranks: in and out";
    EXPECT_DOUBLE_EQ(run_row(chain(ranks), busy_machine(), 1).total_us, (ranks - 1) * 14) << "alone";
  }
}

TEST(Row, OfCallsInWhichAllWaitForAllTakesTheirLatency) {
  const double alone_us = run_row(ring(8, 500), busy_machine(), 1).total_us;
  EXPECT_NEAR(run_row(ring(8, 500), busy_machine()).call_us, alone_us, 0.05 * alone_us);
}

TEST(Row, MessagesOfLaterCallsWaitForThem) {
  // Rank 0 is ahead of rank 1, which copies for 50 µs before it looks at what rank 0 sent.
  const auto plans = plans_of(2, [](Builder& b) {
    if (b.rank() == 0) return void(b.signal(0, 1, 0));
    b.copy(0, b.input(), b.output(), 50'000);
    b.wait(0, 0, 0);
  });
  const Simulation row = run_row(plans, busy_machine());
  EXPECT_DOUBLE_EQ(row.finish_us[0], kRowCalls * 2);
  EXPECT_DOUBLE_EQ(row.finish_us[1], kRowCalls * (50 + 2));
}

TEST(Row, OfPutsGoesAtTheInterfacesSpeed) {
  Machine machine = plain_machine();  // 100 bytes/µs
  EXPECT_DOUBLE_EQ(run_row(chain(2, 1000), machine).call_us, 10) << "the next call's put leaves 10 µs later";
  machine.nic_bytes_per_us = 50;
  EXPECT_DOUBLE_EQ(run_row(chain(2, 1000), machine).call_us, 20);
  EXPECT_DOUBLE_EQ(run_row(chain(5, 1000), machine).call_us, 20) << "however long the chain";
}

TEST(Row, WhatTheKernelHasTakenNobodyWaitsFor) {
  Machine machine = plain_machine();
  machine.inter.by_cpu = true;
  machine.inter.bytes_per_us = 1000;
  const Simulation row = run_row(chain(2, 1000), machine);
  EXPECT_DOUBLE_EQ(row.finish_us[0], kRowCalls * 1) << "written, and on its way";
  EXPECT_DOUBLE_EQ(row.call_us, 10) << "the interface, which the receiver waits for";
  const uint64_t longer = 1 << 20;  // more than the kernel keeps
  EXPECT_GT(run_row(chain(2, longer), machine, 1).finish_us[0], (longer - (256 << 10)) / 100.0 - 1e-6);
}

TEST(Row, AMessageThatWasThereFirstCostsNoSwitch) {
  const auto plans = plans_of(2, [](Builder& b) {
    if (b.rank() == 0) return void(b.signal(0, 1, 0));
    b.wait(0, 0, 0);
    b.copy(0, b.input(), b.output(), 3000);
  });
  Machine machine = plain_machine();
  machine.cores = 1;
  machine.switch_us = 5;
  const Result<Simulation> row =
      simulate(plans, Layout::blocks(1, 2), machine, kLimits, {.calls = kRowCalls});
  ASSERT_TRUE(row.ok()) << row.status().message();
  EXPECT_DOUBLE_EQ(row->finish_us[1], 5 + kRowCalls * 3.0) << "the first call waits, the others do not";
}

TEST(Row, OfBroadcastsOnSharedCoresPaysOneSwitchForManyMessages) {
  const auto plans = plans_of(4, [](Builder& b) {
    if (b.rank() > 0) return void(b.wait(0, 0, 0));
    for (int peer = 1; peer < 4; ++peer) b.signal(0, peer, 0);
  });
  Machine machine = plain_machine();
  machine.cores = 2;
  machine.switch_us = 5;
  machine.call_us = 1;
  const auto row = simulate(plans, Layout::blocks(1, 4), machine, kLimits, {.calls = kRowCalls});
  ASSERT_TRUE(row.ok()) << row.status().message();
  EXPECT_DOUBLE_EQ(row->total_us, 1 + 5 + kRowCalls + 5 + (kRowCalls - 1))
      << "a rank waits in its first call, the other one has all calls in one turn, and so has then the first";
  EXPECT_DOUBLE_EQ(row->call_us, 2) << "both ranks of a core";
}

TEST(Row, IsAsLongAsAFifoHasRoomWhereARootIsAheadInItsTurn) {
  Machine machine = plain_machine();
  plan::Request request{.collective = plan::Collective::broadcast, .count = 8, .element_bytes = 1};
  const plan::Limits limits{.eager_intra_bytes = 16 << 10};
  EXPECT_EQ(row_calls(request, Layout::blocks(1, 4), machine, limits), kRowCalls) << "a core each";
  machine.cores = 2;
  EXPECT_EQ(row_calls(request, Layout::blocks(1, 4), machine, limits), 64);
  EXPECT_EQ(row_calls(request, Layout::blocks(2, 4), machine, limits), kRowCalls) << "through a network";
  request.count = 4 << 10;
  EXPECT_EQ(row_calls(request, Layout::blocks(1, 4), machine, limits), 16);
  request.count = 1 << 20;
  EXPECT_EQ(row_calls(request, Layout::blocks(1, 4), machine, limits), kRowCalls);
  request = {.collective = plan::Collective::all_reduce, .count = 8, .element_bytes = 1};
  EXPECT_EQ(row_calls(request, Layout::blocks(1, 4), machine, limits), kRowCalls) << "all wait for all";
}

TEST(Turns, ARankHasItsCoreUntilItHasNothingToDo) {
  const auto plans = plans_of(3, [](Builder& b) {
    if (b.rank() == 1) return void(b.copy(0, b.input(), b.output(), 1000));
    b.copy(0, b.input(), b.output(), 2000);
    b.copy(0, b.input(), b.output(), 2000);
  });
  Machine machine = plain_machine();
  machine.cores = 1;
  machine.switch_us = 5;
  const Simulation result = run(plans, Layout::blocks(1, 3), machine);
  EXPECT_EQ(result.finish_us, (std::vector<double>{4, 4 + 5 + 1, 4 + 5 + 1 + 5 + 4}));
}

TEST(Turns, ARankThatLooksAndFindsNothingTakesATurn) {
  // Rank 0 hears from the other node at 10 µs, and rank 1, of the same core, never.
  const auto plans = plans_of(4, [](Builder& b) {
    if (b.rank() == 2) b.signal(0, 0, 0);
    if (b.rank() == 0) b.wait(0, 2, 0);
  });
  Machine machine = plain_machine();
  machine.cores = 1;
  machine.switch_us = 3;
  const double heard_us = run(plans, Layout::blocks(2, 2), machine).finish_us[0];
  EXPECT_DOUBLE_EQ(heard_us, 12) << "rank 1 has the core from 3 and 9 µs on, rank 0 from 6 and 12";
}

TEST(Turns, NothingChangesWhereEachRankHasACore) {
  Machine machine;
  machine.cores = 4;
  const auto plans = ring(8, 12345);
  const Simulation own = run(plans, Layout::blocks(2, 4), machine);
  machine.switch_us = 50;
  machine.cores = 96;
  EXPECT_EQ(run(plans, Layout::blocks(2, 4), machine).finish_us, own.finish_us);
  machine.cores = 3;
  EXPECT_GT(run(plans, Layout::blocks(2, 4), machine).total_us, own.total_us);
}

/// When each rank has done a copy that takes 1 µs, where nodes have so many cores and a turn takes 5.
std::vector<double> copies_done_us(const Layout& layout, double cores) {
  Machine machine = plain_machine();
  machine.cores = cores;
  machine.switch_us = 5;
  const auto plans = plans_of(layout.ranks(), [](Builder& b) { b.copy(0, b.input(), b.output(), 1000); });
  return run(plans, layout, machine).finish_us;
}

// Where ranks go round the nodes each seemed to have a core of its own.
TEST(Turns, AreTakenByTheRanksOfANodeHoweverTheyAreNumbered) {
  EXPECT_EQ(copies_done_us(Layout::blocks(2, 2), 1), (std::vector<double>{1, 7, 1, 7}));
  EXPECT_EQ(copies_done_us(Layout({0, 1, 0, 1}), 1), (std::vector<double>{1, 1, 7, 7}));
}

// Eight nodes on two cores: trees and halving were predicted two to four times too long, while every node had
// a quarter of a core at all times.
TEST(Turns, AreTakenByAllRanksOfNodesThatShareCores) {
  EXPECT_EQ(copies_done_us(Layout::blocks(4, 1), 0.5), (std::vector<double>{1, 1, 7, 7}));
  EXPECT_EQ(copies_done_us(Layout::blocks(4, 1), 0.1), std::vector<double>(4, 10))
      << "there is no whole core";
}

TEST(Turns, ARankThatWaitsForTheEndOfAMessageHasLeftItsCore) {
  const auto plans = plans_of(3, [](Builder& b) {
    if (b.rank() == 0) b.put(0, 1, b.input(), at(1, Space::output), 100000, 0);
    if (b.rank() == 1) b.wait(0, 0, 0);
    if (b.rank() == 2) {
      b.copy(0, b.input(), b.output(), 1000);
      b.copy(0, b.input(), b.output(), 1000);
    }
  });
  Machine machine = plain_machine();
  machine.inter.by_cpu = true;
  machine.inter.bytes_per_us = 10'000;
  machine.cores = 1 / 3.0;
  machine.switch_us = 1;
  const std::vector<double> finish_us = run(plans, Layout::blocks(3, 1), machine).finish_us;
  EXPECT_GT(finish_us[1], 100'000 / machine.nic_bytes_per_us);
  EXPECT_LT(finish_us[2], 100);
}

TEST(Turns, AreNotTakenByMoreThanEightRanksOfACore) {
  EXPECT_EQ(copies_done_us(Layout::blocks(1, 9), 1), std::vector<double>(9, 9));
}

TEST(Turns, CachesAreSharedByTheRanksOfACore) {
  Machine machine = plain_machine();
  machine.memory.cache_bytes = 4000;
  machine.memory.large_bytes = 8000;  // input and output of both ranks are half way between that and 2000
  const auto plans = plans_of(2, [](Builder& b) { b.copy(0, b.input(), b.output(), 1000); });
  EXPECT_DOUBLE_EQ(run(plans, Layout::blocks(1, 2), machine).total_us, 1);
  machine.cores = 1;
  EXPECT_DOUBLE_EQ(run(plans, Layout::blocks(1, 2), machine).total_us, 2 * 1.5);
}

TEST(Turns, WhatRanksOfACoreHandEachOtherStaysInItsCache) {
  Machine machine = plain_machine();  // copies ten times as fast as messages
  machine.cores = 1;
  const auto plans = one_put(1000);
  EXPECT_DOUBLE_EQ(run(plans, Layout::blocks(1, 2), machine).finish_us[1], 1 + 1)
      << "written by the sender, and its way";
}

TEST(Row, OfTooManyOrTooFewCallsIsRefused) {
  for (const int calls : {0, -1, kMostCalls + 1}) {
    const auto result = simulate(star(2), Layout::blocks(2, 1), plain_machine(), kLimits, {.calls = calls});
    EXPECT_EQ(result.status().message(), fmt::format("simulate: {} calls, must be in [1, 255]", calls));
  }
  const auto kept =
      simulate(star(2), Layout::blocks(2, 1), plain_machine(), kLimits, {.keep_steps = true, .calls = 2});
  EXPECT_EQ(kept.status().code(), Code::invalid_argument);
  EXPECT_EQ(run_row(star(2), busy_machine(), kMostCalls).call_us, 2);
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

TEST(Simulate, IsDeterministic) {
  Machine machine;
  const auto plans = ring(16, 12345);
  const Layout layout = Layout::blocks(4, 4);
  const Simulation first = run(plans, layout, machine), second = run(plans, layout, machine);
  EXPECT_EQ(first.total_us, second.total_us);
  EXPECT_EQ(first.finish_us, second.finish_us);
}

}  // namespace
}  // namespace weft::model
