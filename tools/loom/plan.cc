// loom plan.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <loom/plan.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "loom/commands.h"
#include "loom/plan_report.h"

namespace loom::command {
namespace {

double mib(double bytes) { return bytes / (1 << 20); }

int64_t batch_of(const Config& config) {
  return nlohmann::json::parse(config.to_json())["data"]["global_batch"].get<int64_t>();
}

/// "nodes=16:512".
Result<std::pair<int, int>> range_of(const std::string& text) {
  int first = 0, last = 0, read = 0;
  if (std::sscanf(text.c_str(), "nodes=%d:%d%n", &first, &last, &read) == 2 &&
      read == static_cast<int>(text.size()) && first >= 1 && last >= first && last <= 1 << 17)
    return std::pair{first, last};
  return fail(Code::invalid_argument, "--sweep is {}, must be nodes=FIRST:LAST, as in nodes=16:512", text);
}

constexpr int kGap = -1;  // stages that are left out

/// All stages if they fit, else the first ones, the one that needs most, and the last.
std::vector<int> shown_stages(const Plan& plan) {
  constexpr int kMost = 8, kFirst = 5;
  const int stages = static_cast<int>(plan.stages.size());
  const auto largest = std::max_element(
      plan.stages.begin(), plan.stages.end(),
      [](const PlannedStage& a, const PlannedStage& b) { return a.arena_bytes < b.arena_bytes; });
  std::set<int> chosen = {static_cast<int>(largest - plan.stages.begin()), stages - 1};
  for (int stage = 0; stage < (stages <= kMost ? stages : kFirst); ++stage) chosen.insert(stage);
  std::vector<int> shown;
  for (const int stage : chosen) {
    if (!shown.empty() && stage > shown.back() + 1) shown.push_back(kGap);
    shown.push_back(stage);
  }
  return shown;
}

// A column a stage.
void print_memory(const Plan& plan) {
  const std::vector<int> shown = shown_stages(plan);
  const auto row = [&](const std::string& name, auto&& cell) {
    fmt::print("{:<14}", name);
    for (const int stage : shown) {
      if (stage == kGap) fmt::print("{:>6}", "…");
      else fmt::print("{:>14}", cell(stage));
    }
  };
  const auto amounts = [&](const std::string& name, auto&& amount) {
    row(name, [&](int stage) {
      return fmt::format("{:.2f}", mib(static_cast<double>(amount(plan.stages[static_cast<size_t>(stage)]))));
    });
  };
  row("memory", [&](int stage) {
    return shown.size() == 1 ? std::string("MiB a rank") : fmt::format("MiB, stage {}", stage);
  });
  fmt::print("\n");
  for (size_t category = 0; category < plan.stages[0].memory.size(); ++category) {
    amounts(plan.stages[0].memory[category].name,
            [&](const PlannedStage& stage) { return stage.memory[category].amount; });
    fmt::print("\n");
  }
  amounts("peak", [](const PlannedStage& stage) { return stage.peak_bytes; });
  if (shown.size() == 1) fmt::print("  at instruction {}", plan.stages[0].peak_instruction);
  fmt::print("\n");
  amounts("arena", [](const PlannedStage& stage) { return stage.arena_bytes; });
  fmt::print("\n");
  if (std::any_of(plan.stages.begin(), plan.stages.end(),
                  [](const PlannedStage& stage) { return stage.tier_bytes > 0; })) {
    amounts("offloaded", [](const PlannedStage& stage) { return stage.tier_bytes; });
    fmt::print("  to a file\n");
  }
  fmt::print("\n");
}

void print_times(const Plan& plan) {
  const bool alone = plan.stages.size() == 1;
  if (alone) {
    fmt::print("{:<14}{:>14}\n", "time", "ms a step");
    for (const Share& share : plan.stages[0].times)
      fmt::print("{:<14}{:>14.2f}\n", share.name, share.amount / 1e3);
    fmt::print("\n");
  }
  fmt::print(
      "predicted step  {:.2f} ms: {:.2f} ms computing at {:.1f} GFLOP/s{}, {:.2f} ms waiting for {} "
      "({:.1f} %)\n",
      plan.step_us / 1e3, plan.compute_us / 1e3, plan.flops / 1e9,
      plan.threads > 0 ? fmt::format(" (measured here, {})", counted(plan.threads, "thread")) : "",
      plan.exposed_us / 1e3, alone ? "collectives" : "communication and other stages",
      plan.exposed_us / plan.step_us * 100);
  if (!alone)
    fmt::print("bubble          {:.1f} % ({}; {:.1f} % if all stages were equal and links free)\n",
               plan.bubble * 100, plan.schedule, plan.ideal_bubble * 100);
  fmt::print("tokens/s        {:.0f}\n", plan.performance.tokens_per_second);
}

void print_tier(const Plan& plan) {
  const PlannedTier& tier = plan.tier;
  if (tier.kept_us == 0) return;
  fmt::print(
      "offloading      makes the step {:.1f} % longer at {:.3g} GB/s to the file and back; it takes {:.3g} "
      "GB/s for 10 %, "
      "{:.3g} GB/s for nothing\n",
      (plan.step_us / tier.kept_us - 1) * 100, tier.bandwidth / 1e9, tier.tenth_bandwidth / 1e9,
      tier.hidden_bandwidth / 1e9);
}

void print(const Plan& plan, bool alone = true) {
  fmt::print("{} parameters in {}; {}, sharded over {}, {}; {} of {} x {} tokens a rank\n", plan.parameters,
             plan.precision, counted(plan.ranks, "rank"), plan.degree, counted(plan.replicas, "replica"),
             counted(plan.microbatches, "microbatch", "microbatches"), plan.batch, plan.tokens);
  for (const std::string& part : {plan.layout, plan.profile, plan.partition})
    if (!part.empty()) fmt::print("\n{}", part);
  fmt::print("\n{} instructions, {} buffers; verified\n\n", plan.instructions, plan.buffers);
  print_memory(plan);
  print_times(plan);
  print_performance(plan, alone);
  print_tier(plan);
}

/// Descriptions that come with Weft are in share/weft/clusters beside the program's folder, in the build as
/// where it is installed.
std::filesystem::path shipped_clusters() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return program.parent_path().parent_path() / "share/weft/clusters";
}

Result<Cluster> described(const std::string& name) {
  if (is_file(name)) return read_cluster(name);
  const std::filesystem::path folder = shipped_clusters();
  if (name.find('/') == std::string::npos && is_file(folder / (name + ".json")))
    return read_cluster(folder / (name + ".json"));
  std::vector<std::string> known;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.path().extension() == ".json") known.push_back(entry.path().stem());
  std::sort(known.begin(), known.end());
  return fail(Code::invalid_argument,
              "there is no file {}, nor a description of a cluster of that name in {}; known are {}", name,
              folder.string(), fmt::join(known, ", "));
}

/// The description's, with what else the command line says.
Result<Cluster> cluster_of(const PlanOptions& options) {
  Cluster cluster;
  if (!options.cluster.empty()) {
    Result<Cluster> read = described(options.cluster);
    LOOM_TRY(read.status());
    cluster = read.take();
  }
  const auto scaled = [](const std::optional<double>& given, double scale, double& into) {
    if (given) into = *given * scale;
  };
  if (options.ranks_per_node) cluster.ranks_per_node = *options.ranks_per_node;
  if (options.ranks) cluster.ranks = *options.ranks;
  if (options.nodes) cluster.ranks = *options.nodes * cluster.ranks_per_node;
  if (options.gflops) {  // a rate that products reach, of which no part is lost
    cluster.flops = *options.gflops * 1e9;
    cluster.compute.fp32_flops = 0;
    cluster.compute.gemm_efficiency = 1;
    cluster.compute.multiprocessors = 0;
  }
  // Weft's plans are simulated on the description, which does not say this.
  if (options.intra_gbytes || options.inter_gbytes || options.intra_latency_us || options.inter_latency_us)
    cluster.description.clear();
  scaled(options.intra_gbytes, 1e9, cluster.intra_bandwidth);
  scaled(options.inter_gbytes, 1e9, cluster.inter_bandwidth);
  scaled(options.memory_gbytes, 1e9, cluster.memory_bandwidth);
  scaled(options.intra_latency_us, 1, cluster.intra_latency_us);
  scaled(options.inter_latency_us, 1, cluster.inter_latency_us);
  scaled(options.tier_gbytes, 1e9, cluster.tier_bandwidth);
  return cluster;
}

void print(const Cluster& c) {
  fmt::print(
      "{}: {}, {} a node; a rank computes {} and reaches {:g} GB/s of memory; {:g} GB/s of a rank and "
      "{:g} µs inside a node, {:g} GB/s of a node and {:g} µs between nodes\n",
      c.name.empty() ? "cluster" : c.name, counted(c.ranks, "rank"), c.ranks_per_node,
      c.flops > 0 ? fmt::format("at {:g} GFLOP/s", c.flops / 1e9) : "as was measured here",
      c.memory_bandwidth / 1e9, c.intra_bandwidth / 1e9, c.intra_latency_us, c.inter_bandwidth / 1e9,
      c.inter_latency_us);
}

/// The plan, and the baseline's.
Result<std::vector<Plan>> plans_of(const PlanOptions& options, const Config& config, const Cluster& cluster) {
  std::vector<Plan> plans;
  for (const std::string& engine : {options.engine, options.baseline}) {
    if (engine.empty()) continue;
    Result<Plan> made = loom::plan(config, cluster, options.vocabulary,
                                   {engine, options.attention, !options.json && options.sweep.empty()});
    LOOM_TRY(made.status());
    plans.push_back(made.take());
  }
  return plans;
}

/// The cluster with each number of nodes, and the batch in proportion.
Result<std::vector<std::vector<Plan>>> swept(const PlanOptions& options, const Cluster& cluster) {
  const Result<std::pair<int, int>> range = range_of(options.sweep);
  LOOM_TRY(range.status());
  const Result<Config> config = Config::read(options.config, options.overrides);
  LOOM_TRY(config.status());
  const int64_t batch = batch_of(*config);
  std::vector<std::vector<Plan>> all;
  for (int nodes = range->first; nodes <= range->second; nodes *= 2) {
    Cluster other = cluster;
    other.ranks = nodes * cluster.ranks_per_node;
    if (batch * other.ranks % cluster.ranks != 0)
      return fail(Code::invalid_argument,
                  "data.global_batch is {} on {} ranks, which {} nodes cannot have in proportion", batch,
                  cluster.ranks, nodes);
    std::vector<std::string> overrides = options.overrides;
    overrides.push_back(fmt::format("data.global_batch={}", batch * other.ranks / cluster.ranks));
    const Result<Config> scaled = Config::read(options.config, overrides);
    LOOM_TRY(scaled.status());
    Result<std::vector<Plan>> plans = plans_of(options, *scaled, other);
    LOOM_TRY(plans.status().in(fmt::format("{} nodes", nodes)));
    all.push_back(plans.take());
  }
  return all;
}

Status sweep(const PlanOptions& options, const Cluster& cluster) {
  const Result<std::vector<std::vector<Plan>>> all = swept(options, cluster);
  LOOM_TRY(all.status());
  if (!options.html.empty()) LOOM_TRY(write_file(options.html, html_of(*all, cluster)));
  if (options.json) fmt::print("{}\n", json_of(*all, cluster));
  else print_sweep(*all, cluster.ranks_per_node);
  return {};
}

}  // namespace

Status plan(const PlanOptions& options) {
  const Result<Config> config = Config::read(options.config, options.overrides);
  LOOM_TRY(config.status());
  const Result<Cluster> cluster = cluster_of(options);
  LOOM_TRY(cluster.status());
  if (!options.sweep.empty()) return sweep(options, *cluster);
  const Assumptions assumptions{options.engine, options.attention, !options.json};
  if (options.fit) {
    const Result<Fitted> fitted = fit(*config, *cluster, options.vocabulary, assumptions);
    LOOM_TRY(fitted.status());
    if (options.json) {
      fmt::print("{}\n", json_of(*fitted, *cluster));
      return {};
    }
    fmt::print("of {} configs the fastest that fits: {}\n", fitted->tried,
               fitted->changes.empty() ? "this one" : fmt::format("--{}", fmt::join(fitted->changes, " --")));
    print(fitted->plan);
    return {};
  }
  const Result<std::vector<Plan>> plans = plans_of(options, *config, *cluster);
  LOOM_TRY(plans.status());
  Result<std::vector<Trouble>> troubles = std::vector<Trouble>();
  if (options.what_if) troubles = loom::what_if(*config, *cluster, options.vocabulary, assumptions);
  LOOM_TRY(troubles.status());
  if (options.json) {
    fmt::print("{}\n", json_of({*plans}, *cluster, *troubles));
    return {};
  }
  if (!options.cluster.empty()) print(*cluster);
  if (options.instructions) fmt::print("{}\n", plans->front().program);
  print(plans->front(), plans->size() == 1);
  if (plans->size() > 1) print_comparison(*plans);
  print_troubles(*troubles);
  return {};
}

}  // namespace loom::command
