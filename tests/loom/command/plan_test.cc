// loom plan on described clusters: comparisons, sweeps, searches, troubles, JSON, and what it says of bad
// input.
#include <fmt/format.h>

#include "command/processes.h"

namespace loom::testing {
namespace {

std::string in_project(const char* path) { return fmt::format("{}/../{}", LOOM_EXAMPLES, path); }

/// A model of 13 billion parameters on p4d nodes, 64 sequences each.
std::string gpt_on(int nodes, const std::string& options = "") {
  return fmt::format("plan {} --cluster {} --nodes {} --data.global_batch={} {}",
                     in_project("perf/seeds/models/gpt_neox_13b.json"), in_project("clusters/p4d.json"),
                     nodes, 64 * nodes, options);
}

format::Json json_of(const std::string& arguments) {
  const Outcome outcome = loom(arguments + " --json");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  const Result<format::Json> json = format::parse_json(outcome.text);
  EXPECT_TRUE(json.ok()) << outcome.text;
  return json.ok() ? *json : format::Json();
}

void expect_says(const Outcome& outcome, int code, const std::vector<std::string>& words) {
  EXPECT_EQ(outcome.code, code) << outcome.text;
  for (const std::string& text : words)
    EXPECT_NE(outcome.text.find(text), std::string::npos) << text << "\n" << outcome.text;
}

/// It said "+40.2 % as fast".
TEST(PlanCommand, ABaselineIsSlowerOrFasterByAPart) {
  const format::Json both = json_of(gpt_on(8, "--baseline nccl-flat"));
  const format::Json& plans = both["predictions"][0]["plans"];
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_EQ(plans[1]["engine"], "nccl-flat");
  const double weft = plans[0]["step_seconds"], flat = plans[1]["step_seconds"];
  ASSERT_GT(flat, weft);
  expect_says(loom(gpt_on(8, "--baseline nccl-flat")), 0,
              {fmt::format("weft is {:.1f} % faster than nccl-flat", (flat / weft - 1) * 100)});
  expect_says(loom(gpt_on(8, "--engine nccl-flat --baseline weft")), 0,
              {fmt::format("nccl-flat is {:.1f} % slower than weft", (1 - weft / flat) * 100)});
}

TEST(PlanCommand, ASweepHasALineForEachDoublingWithTheBatchInProportion) {
  const format::Json swept = json_of(gpt_on(8, "--sweep nodes=8:32 --baseline smddp"));
  const format::Json& predictions = swept["predictions"];
  ASSERT_EQ(predictions.size(), 3u);
  for (int i = 0, nodes = 8; i < 3; ++i, nodes *= 2) {
    EXPECT_EQ(predictions[i]["nodes"], nodes);
    ASSERT_EQ(predictions[i]["plans"].size(), 2u);
    EXPECT_EQ(predictions[i]["plans"][0]["ranks"], 8 * nodes);
    EXPECT_NEAR(predictions[i]["plans"][0]["samples_per_second"].get<double>() *
                    predictions[i]["plans"][0]["step_seconds"].get<double>(),
                64 * nodes, 1e-6 * nodes);
  }
  expect_says(loom(gpt_on(8, "--sweep nodes=8:16")), 0, {"TFLOP/s a rank", "\n    16     128 weft", "█"});
  expect_says(loom(gpt_on(8, "--sweep nodes=16:8")), 2, {"must be nodes=FIRST:LAST, as in nodes=16:512"});
}

TEST(PlanCommand, FitPrintsTheOverridesOfAPlanThatFits) {
  const std::string whole = gpt_on(2, "--parallel.sharded_data_parallel_degree=1 --fit");
  const format::Json fitted = json_of(whole);
  ASSERT_FALSE(fitted["changes"].empty()) << fitted.dump(1);
  EXPECT_GT(fitted["tried"], 1);
  EXPECT_EQ(fitted["predictions"][0]["plans"][0]["memory"]["fits"], true);
  std::string changes;
  for (const auto& change : fitted["changes"]) changes += " --" + change.get<std::string>();
  expect_says(loom(whole), 0, {fmt::format("the fastest that fits:{}\n", changes)});
}

/// It left out traits of the engine, and told one node's troubles as if they were known of all.
TEST(PlanCommand, WhatIfChangesTheEngineAndSaysWhatIsAnUpperBound) {
  const std::string stages =
      gpt_on(8,
             "--engine nccl-hierarchical --what-if --parallel.tensor_degree=8 "
             "--parallel.pipeline_degree=4 --parallel.sharded_data_parallel_degree=1 --data.microbatch=4");
  const format::Json troubles = json_of(stages)["what_if"];
  std::map<std::string, format::Json> by_name;
  for (const auto& trouble : troubles) by_name[trouble["what"]] = trouble;
  const auto seconds = [&](const std::string& what) {
    EXPECT_TRUE(by_name.count(what)) << what << "\n" << troubles.dump(1);
    return by_name.count(what) ? by_name[what]["step_seconds"].get<double>() : 0;
  };
  const double plain = seconds("as it is");
  EXPECT_LT(seconds("each tensor rank sends its part of a stage's output"), plain);
  EXPECT_LT(seconds("products add gradients as they write"), plain);
  EXPECT_LT(seconds("computing goes on behind collectives"), plain);
  EXPECT_GT(seconds("gradients travel in 32 bits"), plain);
  EXPECT_EQ(by_name["a node computes at half its rate"]["upper_bound"], true);
  EXPECT_EQ(by_name["one of the 4 interfaces of a node fails"]["upper_bound"], true);
  EXPECT_EQ(by_name["all nodes have half their interfaces"]["upper_bound"], false);
  expect_says(loom(stages), 0, {" % at most", "an upper bound of the step"});
}

/// A plan said "Weft's plans" alone.
TEST(PlanCommand, NamesTheFormulaBesideWeftsPlans) {
  expect_says(loom(gpt_on(8)), 0, {"collectives by Weft's plans, simulated, between nodes; by the formula"});
  expect_says(loom(gpt_on(8, "--inter 25")), 0, {"collectives by bytes over the rate of the links"});
}

/// A cluster of the project's, changed.
std::string changed_cluster(const TemporaryFolder& folder, const char* name,
                            const std::function<void(format::Json&)>& change) {
  format::Json cluster = *format::read_json(in_project("clusters/p4d.json"));
  change(cluster);
  const std::string path = folder / name;
  EXPECT_TRUE(format::write_json(path, cluster).ok());
  return path;
}

TEST(PlanCommand, SaysWhatIsWrong) {
  expect_says(loom(gpt_on(8, "--parallel.tensor_degree=3")), 2,
              {"tensor_degree is 1 · 3, must divide the 64 ranks"});
  expect_says(loom(gpt_on(8, "--parallel.sharded_data_parallel_degree=7")), 2,
              {"is 7, must divide the number of data ranks, 64"});
  expect_says(loom(gpt_on(8, "--engine nccl-flatt")), 2,
              {"does not describe an engine nccl-flatt", "did you mean nccl-flat?"});
  expect_says(loom(gpt_on(8, "--baseline smdp")), 2, {"does not describe an engine smdp"});
  TemporaryFolder folder;
  const auto plan_on = [&](const std::string& cluster, const std::string& options = "") {
    return loom(fmt::format("plan {} --cluster {} --nodes 8 --data.global_batch=512 {}",
                            in_project("perf/seeds/models/gpt_neox_13b.json"), cluster, options));
  };
  const std::string bare =
      changed_cluster(folder, "bare.json", [](format::Json& cluster) { cluster.erase("compute"); });
  expect_says(plan_on(bare), 2, {"has no compute.gflops", "or --gflops says it"});
  expect_says(plan_on(bare, "--gflops 100000 --fit"), 2, {"has no compute.memory_gib"});
}

/// The rate of memory was silently 10 GB/s.
TEST(PlanCommand, RefusesADescriptionWithoutRatesOfMemoryOrLinks) {
  TemporaryFolder folder;
  const auto plan_without = [&](const char* key, const std::string& options = "") {
    const std::string path = changed_cluster(folder, "lacking.json",
                                             [&](format::Json& cluster) { cluster["machine"].erase(key); });
    return loom(fmt::format("plan {} --cluster {} --nodes 8 --data.global_batch=512 {}",
                            in_project("perf/seeds/models/gpt_neox_13b.json"), path, options));
  };
  expect_says(plan_without("memory"), 2, {"must have machine.memory.copy_large, or --memory says it"});
  expect_says(plan_without("intra"), 2, {"must have machine.intra.bytes_per_us, or --intra says it"});
  expect_says(plan_without("nic_bytes_per_us"), 2,
              {"must have machine.nic_bytes_per_us, or --inter says it"});
  EXPECT_EQ(plan_without("memory", "--memory 1500").code, 0);
}

/// 2.1 trillion parameters took more than a minute to refuse: every config was simulated.
TEST(PlanCommand, FitSaysWhatIsLeastWhereNothingFits) {
  expect_says(loom(gpt_on(2, "--fit --model.width=65536 --model.heads=512")), 1,
              {"no config of ", " that was tried fits 40.0 GiB on 16 ranks: a rank needs ", " GiB at least"});
  expect_says(loom(gpt_on(1, "--fit --model.layers=80")), 1,
              {" nodes would do, with the batch in proportion"});
}

}  // namespace
}  // namespace loom::testing
