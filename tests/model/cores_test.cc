// Ranks that take turns on cores, worked out by hand.
#include "model/cores.h"

#include <gtest/gtest.h>

#include "model/plans_by_hand.h"

namespace weft::model {
namespace {

using plan::Builder;
using plan::Space;
using topology::Layout;

TEST(Turns, RanksAreSpreadOverTheCores) {
  Machine machine = plain_machine();
  const auto cores_of = [&](const Layout& layout) {
    std::vector<int> cores;
    for (int rank = 0; rank < layout.ranks(); ++rank) cores.push_back(core_of(machine, layout, rank));
    return cores;
  };
  machine.cores = 2;
  EXPECT_EQ(cores_of(Layout::blocks(1, 4)), (std::vector<int>{0, 1, 1, 0}));
  EXPECT_EQ(cores_of(Layout::blocks(2, 3)), (std::vector<int>{0, 1, 1, 2, 3, 3})) << "each node has its own";
  machine.cores = 0.5;  // four nodes pretended on two
  EXPECT_EQ(cores_of(Layout::blocks(4, 1)), (std::vector<int>{0, 1, 1, 0}));
  machine.cores = 4;
  EXPECT_EQ(cores_of(Layout::blocks(1, 4)), (std::vector<int>{-1, -1, -1, -1})) << "nobody shares one";
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

}  // namespace
}  // namespace weft::model
