// Predictions of clusters that are described: engines, memory, tiers, and what fits.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "api/machine_of.h"
#include "loom/plan.h"
#include "support.h"
#include "weft/weft_forecast.h"

namespace loom::testing::predictions_test {
namespace {

/// A file of the project.
std::string in_project(const char* path) { return fmt::format("{}/../../../{}", LOOM_FIXTURES, path); }

Cluster p4d(int nodes) {
  Result<Cluster> cluster = read_cluster(in_project("clusters/p4d.json"));
  EXPECT_TRUE(cluster.ok()) << cluster.status().message();
  Cluster taken = cluster.take();
  taken.ranks = nodes * taken.ranks_per_node;
  return taken;
}

Config gpt(const std::vector<std::string>& overrides = {}) {
  const Result<Config> config = Config::read(in_project("perf/seeds/models/gpt_neox_13b.json"), overrides);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return *config;
}

/// Collectives of a cluster took bytes over its line rate, not what Weft's plans take there.
TEST(Predictions, CollectivesTakeWhatWeftSimulates) {
  const Cluster cluster = p4d(8);
  const program::Machine machine = machine_of(cluster, {}, 0, program::Precision::fp16);
  using Kind = program::CollectiveShape::Kind;
  const double planned = machine.plans({Kind::gather, 1 << 28, 8, 8, 1, 1});
  double simulated = 0;
  ASSERT_EQ(weftForecastCollective(cluster.description.c_str(), "allgather", 1 << 28, 8, 8, 1, &simulated),
            weftSuccess)
      << weftGetLastError(nullptr);
  EXPECT_DOUBLE_EQ(planned, simulated);
  const double half = machine.plans({Kind::gather, 1 << 28, 8, 8, 1, 0.5});
  EXPECT_GT(half, 1.8 * planned) << "of half the interfaces";
}

/// The formula took over without a word.
TEST(Predictions, WhatWeftRefusesIsNamedWithItsReason) {
  Cluster cluster = p4d(8);
  cluster.description = "no JSON";
  const Result<Plan> made = plan(gpt({"data.global_batch=512"}), cluster, 0, {.listing = false});
  LOOM_ASSERT_OK(made);
  ASSERT_EQ(made->unplanned.size(), 2u) << "gathers and reductions, once each";
  EXPECT_EQ(made->unplanned[0].find("allgather of "), 0u) << made->unplanned[0];
  EXPECT_NE(made->unplanned[0].find("weftForecastCollective"), std::string::npos) << made->unplanned[0];
  EXPECT_NE(made->collectives.find("allgather between nodes, reducescatter between nodes"), std::string::npos)
      << made->collectives;
  const Result<Plan> planned = plan(gpt({"data.global_batch=512"}), p4d(8), 0, {.listing = false});
  LOOM_ASSERT_OK(planned);
  EXPECT_TRUE(planned->unplanned.empty());
}

TEST(Predictions, ForecastsSayWhatIsWrong) {
  const Cluster cluster = p4d(8);
  double us = 0;
  const auto refused = [&](const char* what, size_t bytes, double part) {
    return weftForecastCollective(cluster.description.c_str(), what, bytes, 8, 8, part, &us) ==
           weftInvalidArgument;
  };
  EXPECT_TRUE(refused("allgathr", 1024, 1));
  EXPECT_TRUE(refused("allgather", 0, 1));
  EXPECT_TRUE(refused("allgather", 1024, 0));
  EXPECT_TRUE(refused("send", 1024, 1));
  EXPECT_NE(weftForecastCollective(nullptr, "allgather", 1024, 8, 8, 1, &us), weftSuccess);
  EXPECT_NE(weftForecastCollective("{}", "allgather", 1024, 8, 8, 1, nullptr), weftSuccess);
}

/// A model that no device holds was planned without a word.
TEST(Predictions, APlanThatDoesNotFitSaysSo) {
  const Cluster cluster = p4d(4);
  const Result<Plan> whole = plan(gpt({"parallel.sharded_data_parallel_degree=1", "data.global_batch=256"}),
                                  cluster, 0, {.listing = false});
  LOOM_ASSERT_OK(whole);
  EXPECT_FALSE(whole->memory.fits());
  EXPECT_GT(whole->memory.needed_bytes, 13e9 * 16);
  EXPECT_EQ(whole->memory.device_bytes, 40.0 * (1 << 30));
  const Result<Plan> shared = plan(gpt({"parallel.sharded_data_parallel_degree=32", "data.global_batch=256"}),
                                   cluster, 0, {.listing = false});
  LOOM_ASSERT_OK(shared);
  EXPECT_TRUE(shared->memory.fits());
}

TEST(Predictions, StandardAttentionNeedsRoomForItsScores) {
  const Cluster cluster = p4d(4);
  const Config config = gpt({"parallel.sharded_data_parallel_degree=32", "data.global_batch=256"});
  const Result<Plan> flash = plan(config, cluster, 0, {"weft", "flash", false});
  const Result<Plan> standard = plan(config, cluster, 0, {"weft", "standard", false});
  LOOM_ASSERT_OK(flash);
  LOOM_ASSERT_OK(standard);
  EXPECT_DOUBLE_EQ(standard->memory.needed_bytes - flash->memory.needed_bytes, 7.0 * 8 * 40 * 2048 * 2048);
  EXPECT_GT(standard->step_us, 1.1 * flash->step_us);
}

TEST(Predictions, FitFindsADegreeThatDoes) {
  const Result<Fitted> fitted =
      fit(gpt({"parallel.sharded_data_parallel_degree=1", "data.global_batch=128"}), p4d(2));
  LOOM_ASSERT_OK(fitted);
  EXPECT_TRUE(fitted->plan.memory.fits());
  EXPECT_GT(fitted->plan.degree, 1);
  EXPECT_FALSE(fitted->changes.empty());
}

TEST(Predictions, FitSaysHowManyNodesWouldDo) {
  Cluster small = p4d(1);
  small.compute.memory_bytes = 8e9;
  const Result<Fitted> fitted = fit(gpt({"data.global_batch=8", "data.microbatch=1"}), small);
  EXPECT_TRUE(fails_with(fitted, Code::out_of_memory, "nodes would do"));
  small.compute.memory_bytes = 0;
  EXPECT_TRUE(fails_with(fit(gpt({"data.global_batch=64"}), small), Code::invalid_argument,
                         "has no compute.memory_gib"));
}

/// Offloading on a cluster was planned with this machine's disk.
TEST(Predictions, OffloadingTakesTheClustersTier) {
  Cluster cluster = p4d(8);
  const Config config =
      gpt({"parallel.activation_offloading=true", "data.global_batch=512", "data.microbatch=1"});
  const Result<Plan> described = plan(config, cluster, 0, {.listing = false});
  LOOM_ASSERT_OK(described);
  EXPECT_EQ(described->tier.bandwidth, 12.5e9);
  cluster.tier_bandwidth = 0;
  EXPECT_TRUE(fails_with(plan(config, cluster), Code::invalid_argument, "p4d.24xlarge has no tier.gb_per_s"));
}

TEST(Predictions, AnEngineThatHidesNothingIsSlower) {
  const Config config = gpt({"data.global_batch=512"});
  const Result<Plan> weft = plan(config, p4d(8), 0, {"weft", "flash", false});
  const Result<Plan> flat = plan(config, p4d(8), 0, {"nccl-flat", "flash", false});
  LOOM_ASSERT_OK(weft);
  LOOM_ASSERT_OK(flat);
  EXPECT_GT(flat->step_us, 1.2 * weft->step_us);
  EXPECT_NE(weft->collectives, flat->collectives);
}

TEST(Predictions, SayWhatIsMissingAndWhatIsNear) {
  Cluster cluster = p4d(8);
  EXPECT_TRUE(fails_with(plan(gpt(), cluster, 0, {"nccl-flatt", "flash"}), Code::invalid_argument,
                         "does not describe an engine nccl-flatt; there are weft, nccl-hierarchical"));
  EXPECT_TRUE(fails_with(plan(gpt(), cluster, 0, {"nccl-flatt", "flash"}), Code::invalid_argument,
                         "did you mean nccl-flat?"));
  EXPECT_TRUE(fails_with(plan(gpt(), cluster, 0, {"weft", "quick"}), Code::invalid_argument,
                         "attention is quick, must be flash or standard"));
  EXPECT_TRUE(fails_with(plan(gpt({"parallel.sharded_data_parallel_degree=48"}), cluster),
                         Code::invalid_argument, "sharded_data_parallel_degree is 48"));
  cluster.flops = 0;
  EXPECT_TRUE(fails_with(plan(gpt(), cluster), Code::invalid_argument, "p4d.24xlarge has no compute.gflops"));
}

TEST(Predictions, WhatIfTellsEachTroublesCost) {
  const Result<std::vector<Trouble>> troubles =
      what_if(gpt({"data.global_batch=512"}), p4d(8), 0, {"nccl-hierarchical", "flash", false});
  LOOM_ASSERT_OK(troubles);
  ASSERT_GE(troubles->size(), 4u);
  EXPECT_EQ((*troubles)[0].what, "as it is");
  EXPECT_EQ((*troubles)[2].what, "one of the 4 interfaces of a node fails");
  EXPECT_GT((*troubles)[1].step_us, 1.5 * (*troubles)[1].plain_us);
  EXPECT_GT((*troubles)[3].step_us, (*troubles)[2].step_us);
  EXPECT_GT((*troubles)[2].step_us, (*troubles)[2].plain_us);
}

}  // namespace
}  // namespace loom::testing::predictions_test
