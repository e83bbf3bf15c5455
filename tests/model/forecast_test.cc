// Forecasts: bytes are neither lost nor made up, whichever way a cluster is simulated; times follow closed
// forms; what is wrong with a cluster costs what it must.
#include "model/forecast.h"

#include <gtest/gtest.h>

#include "model/plain_machine.h"

namespace weft::model::forecast_test {
namespace {

using plan::Collective;
using plan::Request;
using topology::Layout;

const plan::Limits kLimits{
    .eager_intra_bytes = 8 << 10, .eager_inter_bytes = 16 << 10, .slice_bytes = 64 << 10};

Cluster cluster(int nodes, int ranks_per_node) {
  Cluster cluster;
  cluster.nodes = nodes;
  cluster.ranks_per_node = ranks_per_node;
  cluster.machine = plain_machine();
  cluster.machine.intra.bytes_per_us = 1e6;
  cluster.machine.memory = {.copy_cached = 1e9,
                            .copy_large = 1e9,
                            .reduce_cached = 1e9,
                            .reduce_large = 1e9,
                            .peer_cached = 1e9,
                            .peer_large = 1e9,
                            .peer_reduced = 1e9,
                            .mapped_near = 1e9,
                            .mapped_cached = 1e9,
                            .mapped_large = 1e9};
  return cluster;
}

Request request_of(Collective collective, uint64_t bytes_each) {
  return {.collective = collective, .count = bytes_each / 4, .element_bytes = 4};
}

Forecast forecast_or_fail(std::string_view algorithm, const Request& request, const Cluster& cluster) {
  const plan::Algorithm* const found = plan::find_algorithm(request.collective, algorithm);
  EXPECT_NE(found, nullptr) << algorithm;
  if (found == nullptr) return {};
  Result<Forecast> result = forecast(*found, request, cluster, kLimits);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? result.take() : Forecast{};
}

double us(std::string_view algorithm, const Request& request, const Cluster& cluster) {
  return forecast_or_fail(algorithm, request, cluster).us;
}

TEST(Forecast, TrafficIsThatOfAllPlans) {
  for (const plan::Algorithm& algorithm : plan::algorithms()) {
    if (algorithm.collective == Collective::send || algorithm.collective == Collective::recv) continue;
    for (const auto& [nodes, per_node] : {std::pair{4, 2}, {3, 3}, {8, 1}}) {
      const Layout layout = Layout::blocks(nodes, per_node);
      const Request request = request_of(algorithm.collective, 4096);
      if (!algorithm.fits(request, layout, kLimits).ok()) continue;
      Traffic intra, inter;
      for (int rank = 0; rank < layout.ranks(); ++rank) {
        const plan::Plan plan = algorithm.make(request, layout, kLimits, rank);
        for (const plan::Step& step : plan.steps) {
          if (step.kind != plan::StepKind::put && step.kind != plan::StepKind::signal) continue;
          Traffic& traffic = layout.same_node(rank, step.peer) ? intra : inter;
          ++traffic.messages;
          if (step.kind == plan::StepKind::put) traffic.bytes += step.bytes;
        }
      }
      Cluster healthy = cluster(nodes, per_node), sick = healthy;
      sick.conditions.slow_nodes = {{.node = 1, .rate = 0.5}};
      for (const Cluster& each : {healthy, sick}) {  // one node for all where that can be, and every rank
        const Simulation found = forecast_or_fail(algorithm.name, request, each).simulation;
        EXPECT_EQ(found.inter.bytes, inter.bytes) << algorithm.name << " " << nodes << "x" << per_node;
        EXPECT_EQ(found.intra.bytes, intra.bytes) << algorithm.name << " " << nodes << "x" << per_node;
        EXPECT_EQ(found.inter.messages, inter.messages) << algorithm.name;
        EXPECT_EQ(found.intra.messages, intra.messages) << algorithm.name;
      }
    }
  }
}

TEST(Forecast, AllGatherSendsEveryShardToEveryOtherNodeOnce) {
  constexpr int kNodes = 6, kPerNode = 2;
  constexpr uint64_t kShard = 40'000;
  const Simulation mesh =
      forecast_or_fail("all_to_all", request_of(Collective::all_gather, kShard), cluster(kNodes, kPerNode))
          .simulation;
  EXPECT_EQ(mesh.inter.bytes, uint64_t{kNodes} * kPerNode * (kNodes - 1) * kShard);
  // Round a ring of ranks, all shards but the receiver's own cross every border between nodes.
  const Simulation ring =
      forecast_or_fail("ring", request_of(Collective::all_gather, kShard), cluster(kNodes, kPerNode))
          .simulation;
  EXPECT_EQ(ring.inter.bytes, uint64_t{kNodes} * (kNodes * kPerNode - 1) * kShard);
}

TEST(Forecast, OneHopAndRingTakeTheirFormulas) {
  // alpha 10 µs, 100 bytes/µs; a shard takes 100 µs.
  constexpr uint64_t kShard = 10'000;
  const Request gather = request_of(Collective::all_gather, kShard);
  for (const int nodes : {4, 8, 16}) {
    EXPECT_NEAR(us("one_hop", gather, cluster(nodes, 1)), 10 + (nodes - 1) * 100, 1) << nodes;
    EXPECT_NEAR(us("all_to_all", gather, cluster(nodes, 1)), 10 + (nodes - 1) * 100, 1) << nodes;
    EXPECT_NEAR(us("ring", gather, cluster(nodes, 1)), (nodes - 1) * (10 + 100.0), 1) << nodes;
  }
}

TEST(Forecast, SaysHowItWasSimulated) {
  const Request reduce = request_of(Collective::all_reduce, 1 << 20);
  EXPECT_EQ(forecast_or_fail("ring", reduce, cluster(8, 2)).scope, Scope::one_node_for_all);
  EXPECT_EQ(forecast_or_fail("double_tree", reduce, cluster(8, 2)).scope, Scope::every_rank);
  Cluster sick = cluster(8, 2);
  sick.conditions.slow_nodes = {{.node = 1, .rate = 0.5}};
  EXPECT_EQ(forecast_or_fail("ring", reduce, sick).scope, Scope::every_rank);
  const auto& ring = *plan::find_algorithm(Collective::all_reduce, "ring");
  const ForecastOptions few{.most_steps = 100};
  const Result<Forecast> extrapolated = forecast(ring, reduce, cluster(8, 2), kLimits, few);
  ASSERT_TRUE(extrapolated.ok());
  EXPECT_EQ(extrapolated->scope, Scope::extrapolated);
  EXPECT_NEAR(extrapolated->us / us("ring", reduce, cluster(8, 2)), 1, 0.3);
  const Result<Forecast> refused = forecast(ring, reduce, sick, kLimits, few);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("more than 100 steps"), std::string::npos)
      << refused.status().message();
}

/// What is wrong with a cluster, and what it may cost at least and at most.
TEST(Forecast, TroublesCostWhatTheyMust) {
  Cluster healthy = cluster(8, 2);
  healthy.machine.rails = 4;
  healthy.machine.stripe_bytes = 1024;
  const auto with = [&](auto&& change) {
    Cluster sick = healthy;
    change(sick.conditions);
    return sick;
  };
  const Cluster slow_node = with([](Conditions& c) { c.slow_nodes = {{.node = 5, .rate = 0.5}}; });
  const Cluster slow_rail = with([](Conditions& c) { c.slow_rails = {{.node = 5, .rail = 1, .rate = 0.5}}; });
  const Cluster no_rail = with([](Conditions& c) { c.slow_rails = {{.node = 5, .rail = 1, .rate = 0}}; });
  const Cluster incast = with([](Conditions& c) { c.incasts = {{.node = 5, .streams = 3}}; });
  for (const Collective collective :
       {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce}) {
    for (const char* algorithm : {"all_to_all", "ring"}) {
      const Request request =
          request_of(collective, collective == Collective::all_reduce ? 8 << 20 : 512 << 10);
      const double usual = us(algorithm, request, healthy);
      const auto factor = [&](const Cluster& sick) { return us(algorithm, request, sick) / usual; };
      SCOPED_TRACE(algorithm);
      // Up to 18 / 7 in all-to-all: who announces its buffers late is served last.
      EXPECT_NEAR(factor(slow_node), 2.2, 0.5);
      EXPECT_NEAR(factor(slow_rail), 2, 0.4) << "stripes are of equal length: the slow one is waited for";
      EXPECT_NEAR(factor(no_rail), 4.0 / 3, 0.2) << "three rails carry what four did";
      EXPECT_NEAR(factor(incast), 4, 0.7) << "three others and we share the way in";
    }
  }
}

}  // namespace
}  // namespace weft::model::forecast_test
