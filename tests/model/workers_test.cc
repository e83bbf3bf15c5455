// What copies, reductions and puts inside a node take, worked out by hand: whose memory it is, and which
// cache it is in.
#include "model/workers.h"

#include <gtest/gtest.h>

#include "model/handed_over.h"
#include "model/plans_by_hand.h"

namespace weft::model {
namespace {

using plan::Builder;
using plan::Space;
using topology::Layout;

// A step takes the thread 2 µs, and the device 3 before it begins; so late comes the stream, too.
Machine machine_of_gpus() {
  Machine machine = plain_machine();
  machine.engines = 1;
  machine.engine_us = 5;
  machine.engine_step_us = 2;
  return machine;
}

TEST(Simulate, RanksShareADeviceAndAThread) {
  Machine machine = machine_of_gpus();
  const auto plans = plans_of(2, [](Builder& b) { b.copy(0, b.input(), b.output(), 10000); });
  const Layout layout = Layout::blocks(1, 2);
  EXPECT_DOUBLE_EQ(run(plans, layout, machine).total_us, 3 + 2 + 3 + 10) << "each has its own";
  machine.thread_ranks = 2;
  EXPECT_DOUBLE_EQ(run(plans, layout, machine).total_us, 3 + 2 + 2 + 3 + 10)
      << "one thread tells both devices";
  machine.device_ranks = 2;
  EXPECT_DOUBLE_EQ(run(plans, layout, machine).total_us, 3 + 2 + 3 + 10 + 10) << "the copies take turns";
}

TEST(Simulate, RanksDealtRoundTheNodesShareTheDeviceAndTheThreadOfTheirNode) {
  Machine machine = machine_of_gpus();
  const auto plans = plans_of(4, [](Builder& b) { b.copy(0, b.input(), b.output(), 10000); });
  const Layout dealt({0, 1, 0, 1});
  machine.thread_ranks = 2;
  EXPECT_DOUBLE_EQ(run(plans, dealt, machine).total_us, 3 + 2 + 2 + 3 + 10);
  machine.device_ranks = 2;
  EXPECT_DOUBLE_EQ(run(plans, dealt, machine).total_us, 3 + 2 + 3 + 10 + 10);
}

// A message lies in host memory at both ends: a copy before it, and one after it.
TEST(Simulate, AShortPutOfGpuMemoryIsCopiedTwice) {
  Machine machine = plain_machine();
  machine.intra.by_cpu = false;
  machine.engines = 1;
  machine.engine_us = 5;
  machine.engine_step_us = 2;
  const auto plans = plans_of(2, [](Builder& b) {
    if (b.rank() == 0) b.put(0, 1, b.input(), at(1, Space::scratch), 100, 0);
    else b.wait(0, 0, 0);
  });
  const double there = 3 + 2 + 3 + 1 + 1;  // the call, the copy, alpha
  const double filed = there + 2 + 3 + 0.1;
  const plan::Limits eager{.eager_intra_bytes = 1000, .eager_inter_bytes = 0, .slice_bytes = 1 << 20};
  EXPECT_DOUBLE_EQ(run(plans, Layout::blocks(1, 2), machine, eager).total_us, filed);
}

TEST(Simulate, PeersMemoryIsReadAtItsOwnRate) {
  const auto plans = plans_of(2, [](Builder& b) {
    const int peer = 1 - b.rank();
    b.signal(0, peer, 0, Space::input);
    b.wait(0, peer, 0, Space::input);
    const plan::Source sources[] = {{b.input()}, {at(peer, Space::input)}};
    b.reduce(0, sources, b.output(), 1000);
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

TEST(Simulate, LargeBuffersCostMemoryRates) {
  Machine machine = plain_machine();
  machine.memory.cache_bytes = 250;  // input and output are eight times that
  const auto plans = plans_of(1, [](Builder& b) { b.copy(0, b.input(), b.output(), 1000); });
  EXPECT_DOUBLE_EQ(run(plans, Layout::blocks(1, 1), machine).total_us, 2);
}

TEST(Simulate, ReductionCostsEverySource) {
  const auto plans = plans_of(1, [](Builder& b) {
    const plan::Source sources[] = {{b.input()}, {b.scratch()}, {b.scratch(1024)}};
    b.reduce(0, sources, b.output(), 1000);
  });
  EXPECT_DOUBLE_EQ(run(plans, Layout::blocks(1, 1)).total_us, 3.0);
}

TEST(Simulate, RanksThatShareCoresAreSlower) {
  const auto plans = plans_of(4, [](Builder& b) { b.copy(0, b.input(), b.output(), 1000); });
  Machine machine = plain_machine();
  machine.cores = 2;
  EXPECT_DOUBLE_EQ(run(plans, Layout::blocks(1, 4), machine).total_us, 2);
  EXPECT_DOUBLE_EQ(run(plans, Layout::blocks(2, 2), machine).total_us, 1);
}

}  // namespace
}  // namespace weft::model
