// What a run measures of its machine: the links of every group, each under its own kind, wherever the
// placement has put the group.
#include "train/machine.h"

#include <array>
#include <cmath>

#include "engine/ranks.h"
#include "program/generate.h"

namespace loom::testing {
namespace {

struct Lying {
  const char* name;
  int ranks, nodes;
  program::Layout layout;
  bool inside, between;  // kinds of links that some group goes over
};

class MeasuredLinks : public ::testing::TestWithParam<Lying> {};

TEST_P(MeasuredLinks, AreOfTheKindThatTheirGroupsGoOver) {
  const Lying& lying = GetParam();
  on_ranks(lying.ranks, lying.nodes, [&](weftComm_t world) {
    program::Job job = small_job(lying.ranks, lying.layout.shard, 4, 2);
    job.pipeline_degree = lying.layout.pipeline;
    job.tensor_degree = lying.layout.tensor;
    job.placement = lying.layout.placement;
    LOOM_ASSERT_OK(job.check());
    const Result<engine::Groups> groups = engine::Groups::create(world, lying.layout, false);
    LOOM_ASSERT_OK(groups);
    const Result<program::Machine> machine = train::measure_machine(job, *groups, 1);
    LOOM_ASSERT_OK(machine);
    const program::Machine unmeasured;
    EXPECT_EQ(machine->ranks_per_node, lying.ranks / lying.nodes);
    EXPECT_GT(machine->intra_bandwidth, 1e6);
    EXPECT_GT(machine->inter_bandwidth, 1e6);
    EXPECT_EQ(machine->intra_bandwidth != unmeasured.intra_bandwidth, lying.inside);
    EXPECT_EQ(machine->intra_latency_us != unmeasured.intra_latency_us, lying.inside);
    EXPECT_EQ(machine->inter_bandwidth != unmeasured.inter_bandwidth, lying.between);
    EXPECT_EQ(machine->inter_latency_us != unmeasured.inter_latency_us, lying.between);
    EXPECT_GT(machine->call_us, 0);
  });
}

// Each rank used to take its own time: one that came late found its data there, and saw twice the rate.
TEST(MeasuredLink, IsTheSameOnAllRanksOfAGroup) {
  std::array<double, 2> bandwidth{}, latency_us{};
  on_ranks(2, 2, [&](weftComm_t world) {
    const program::Job job = small_job(2, 2, 4, 2);
    const Result<engine::Groups> groups = engine::Groups::create(world, job.layout(), false);
    LOOM_ASSERT_OK(groups);
    const Result<program::Machine> machine = train::measure_machine(job, *groups, 1);
    LOOM_ASSERT_OK(machine);
    bandwidth[static_cast<size_t>(groups->rank())] = machine->inter_bandwidth;
    latency_us[static_cast<size_t>(groups->rank())] = machine->inter_latency_us;
  });
  EXPECT_EQ(bandwidth[0], bandwidth[1]);
  EXPECT_EQ(latency_us[0], latency_us[1]);
}

// Two of rank 0's three replicas are on its node: the link to the third had a rate of 0, and what went over
// it was forecast to take no number of microseconds.
TEST(MeasuredLink, OfReplicasThatNodesHaveUnequallyManyOfMakesAForecast) {
  on_ranks(6, 2, [&](weftComm_t world) {
    const program::Job job = small_job(6, 2, 4, 2);
    const Result<engine::Groups> groups = engine::Groups::create(world, job.layout(), false);
    LOOM_ASSERT_OK(groups);
    const Result<program::Machine> machine = train::measure_machine(job, *groups, 1);
    LOOM_ASSERT_OK(machine);
    EXPECT_GT(machine->inter_bandwidth, 0);
    const program::Forecast forecast = program::simulate(job, *program::make_program(job), *machine);
    for (const program::Interval& interval : forecast.intervals)
      EXPECT_TRUE(std::isfinite(interval.begin_us) && std::isfinite(interval.end_us));
    EXPECT_TRUE(std::isfinite(forecast.step_us));
  });
}

// Of four ranks on two nodes, groups of two lie in a node or across, by what varies fastest.
INSTANTIATE_TEST_SUITE_P(
    Each, MeasuredLinks,
    ::testing::Values(
        Lying{"TensorRanksOfANode", 2, 1, {.tensor = 2}, true, false},
        Lying{"TensorRanksApart", 2, 2, {.tensor = 2}, false, true},
        Lying{"StagesInANodeAndShardsAcross", 4, 2, {.data = 2, .pipeline = 2, .shard = 2}, true, true},
        Lying{"StagesAcrossAndShardsInANode",
              4,
              2,
              {.data = 2, .pipeline = 2, .shard = 2, .placement = "spread"},
              true,
              true},
        Lying{"TensorRanksAcrossAndReplicasInANode",
              4,
              2,
              {.data = 2, .tensor = 2, .placement = "spread"},
              true,
              true},
        Lying{"ShardsInANodeAndReplicasAcross", 4, 2, {.data = 4, .shard = 2}, true, true},
        Lying{"ReplicasOfANode", 2, 1, {.data = 2}, true, false}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace loom::testing
