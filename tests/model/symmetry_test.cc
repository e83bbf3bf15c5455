// Symmetry: one node may stand for all where it must, to the last bit, and is not taken to where it must not.
#include "model/symmetry.h"

#include <gtest/gtest.h>

#include "model/plain_machine.h"
#include "model/simulate.h"

namespace weft::model {
namespace {

using plan::Algorithm;
using plan::Collective;
using plan::Limits;
using plan::Plan;
using plan::Request;
using topology::Layout;

const Limits kShortIsEager{.eager_intra_bytes = 8 << 10, .eager_inter_bytes = 16 << 10};

std::vector<Plan> make(const Algorithm& algorithm, const Request& request, const Layout& layout,
                       const Limits& limits, int ranks) {
  std::vector<Plan> plans;
  for (int rank = 0; rank < ranks; ++rank) plans.push_back(algorithm.make(request, layout, limits, rank));
  return plans;
}

/// Machines in which everything that can be contended for is: cores, engines, several rails.
std::vector<Machine> machines() {
  Machine shared;  // the default: CPUs move the bytes, two cores
  Machine engines = plain_machine();
  engines.intra.by_cpu = false;
  engines.inter.overhead_us = 0.25;
  engines.rails = 3;
  engines.nic_message_us = 0.5;
  engines.stripe_bytes = 512;
  engines.engines = 2;
  engines.engine_us = 1.5;
  Machine memory = plain_machine();
  memory.memory.cache_bytes = 0;
  memory.memory.node_bytes_per_us = 700;
  Machine turns = plain_machine();  // one core, by turns, and CPUs move the bytes
  turns.cores = 1;
  turns.switch_us = 0.7;
  turns.call_us = 0.3;
  turns.inter.by_cpu = true;
  return {plain_machine(), shared, engines, memory, turns};
}

TEST(Symmetry, OneNodeTakesTheTimeOfAllToTheLastBit) {
  int folded = 0;
  for (const Algorithm& algorithm : plan::algorithms()) {
    if (plan::has_root(algorithm.collective) || algorithm.collective == Collective::send ||
        algorithm.collective == Collective::recv) {
      continue;
    }
    for (const auto& [nodes, per_node] : {std::pair{2, 1}, {3, 2}, {4, 3}, {8, 4}, {5, 1}, {18, 2}}) {
      const Layout layout = Layout::blocks(nodes, per_node);
      for (const uint64_t count : {64, 4096}) {
        if (nodes > 8 && count > 64) continue;  // takes as long as all the rest, and shows no more
        const Request request{algorithm.collective, count * static_cast<uint64_t>(nodes * per_node), 4};
        const Limits limits{.eager_intra_bytes = 1024, .eager_inter_bytes = 2048, .slice_bytes = 4096};
        if (!algorithm.fits(request, layout, limits).ok()) continue;
        const Symmetry symmetry = find_symmetry(algorithm, request, layout, limits);
        if (symmetry == Symmetry::none) continue;
        ++folded;
        const auto all = make(algorithm, request, layout, limits, layout.ranks());
        const std::span<const Plan> one(all.data(), static_cast<size_t>(per_node));
        for (const Machine& machine : machines()) {
          const auto whole = simulate(all, layout, machine, limits);
          const auto moved = simulate(one, layout, machine, limits, {.symmetry = symmetry});
          const auto node = simulate(one, layout, machine, limits,
                                     {.keep_steps = true, .symmetry = symmetry, .one_node = true});
          ASSERT_TRUE(whole.ok()) << whole.status().message();
          ASSERT_TRUE(moved.ok()) << moved.status().message();
          ASSERT_TRUE(node.ok()) << node.status().message();
          const std::string what =
              fmt::format("{} {} of {} on {}, {}", plan::name_of(algorithm.collective), algorithm.name,
                          request.bytes(), layout.to_string(), machine.name);
          EXPECT_EQ(whole->finish_us, moved->finish_us) << what;
          EXPECT_EQ(whole->total_us, node->total_us) << what;
          EXPECT_EQ(whole->longest_wait_us, node->longest_wait_us) << what;
          EXPECT_EQ(whole->inter.bytes, node->inter.bytes) << what;
          EXPECT_EQ(whole->intra.messages, node->intra.messages) << what;
          if (nodes > 5) continue;  // as above
          const auto streak = simulate(all, layout, machine, limits, {.calls = 4});
          const auto streak_of_node =
              simulate(one, layout, machine, limits, {.calls = 4, .symmetry = symmetry, .one_node = true});
          ASSERT_TRUE(streak.ok()) << streak.status().message();
          ASSERT_TRUE(streak_of_node.ok()) << streak_of_node.status().message();
          EXPECT_EQ(streak->call_us, streak_of_node->call_us) << what << ", back to back";
          EXPECT_EQ(streak->total_us, streak_of_node->total_us) << what << ", back to back";
        }
      }
    }
  }
  EXPECT_GT(folded, 40);
}

/// Which of the library's algorithms are symmetric: a change that loses it costs big simulations dearly.
TEST(Symmetry, IsFoundWhereItIs) {
  const Layout layout = Layout::blocks(8, 2);
  const auto of = [&](Collective collective, const char* name, uint64_t count) {
    return find_symmetry(*plan::find_algorithm(collective, name), {collective, count, 4}, layout,
                         kShortIsEager);
  };
  for (const Collective collective :
       {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce}) {
    EXPECT_EQ(of(collective, "all_to_all", 1 << 20), Symmetry::rotation) << plan::name_of(collective);
    EXPECT_EQ(of(collective, "ring", 1 << 20), Symmetry::rotation) << plan::name_of(collective);
    EXPECT_EQ(of(collective, "one_hop", 16), Symmetry::rotation) << plan::name_of(collective);
  }
  EXPECT_EQ(of(Collective::all_reduce, "recursive_halving", 1 << 20), Symmetry::exchange);
  EXPECT_EQ(of(Collective::all_gather, "recursive_doubling", 16), Symmetry::exchange);
}

TEST(Symmetry, UnequalBlocksHaveNone) {
  const Layout layout = Layout::blocks(8, 2);
  const Request request{Collective::all_reduce, 100, 4};  // 400 bytes for 16 ranks: some have no block
  EXPECT_EQ(find_symmetry(*plan::find_algorithm(Collective::all_reduce, "all_to_all"), request, layout,
                          kShortIsEager),
            Symmetry::none);
}

TEST(Symmetry, RootsAndOtherLayoutsHaveNone) {
  const Request broadcast{Collective::broadcast, 1024, 4};
  EXPECT_EQ(find_symmetry(*plan::find_algorithm(Collective::broadcast, "ring"), broadcast,
                          Layout::blocks(4, 2), kShortIsEager),
            Symmetry::none);
  const Request gather{Collective::all_gather, 1024, 4};
  EXPECT_EQ(find_symmetry(*plan::find_algorithm(Collective::all_gather, "ring"), gather, Layout({0, 1, 0, 1}),
                          kShortIsEager),
            Symmetry::none);
}

TEST(Symmetry, OneNodeCannotStandForUnlikeOnes) {
  const Layout layout = Layout::blocks(4, 1);
  const Algorithm& ring = *plan::find_algorithm(Collective::all_gather, "ring");
  const Request request{Collective::all_gather, 1024, 4};
  const auto plans = make(ring, request, layout, kShortIsEager, 1);
  SimulateOptions options{.symmetry = Symmetry::rotation, .one_node = true};
  options.conditions.slow_nodes.push_back({2, 0.5});
  const auto result = simulate(plans, layout, plain_machine(), kShortIsEager, options);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().message().find("where all nodes are alike"), std::string::npos);
}

}  // namespace
}  // namespace weft::model
