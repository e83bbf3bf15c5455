// loom plan.
#include <fmt/format.h>
#include <loom/plan.h>

#include "loom/commands.h"

namespace loom::command {
namespace {

void print(const Plan& plan) {
  constexpr double kMiB = 1 << 20;
  fmt::print(
      "{} parameters; {} ranks, sharded over {}, {} replicas; {} microbatches of {} x {} tokens a rank\n",
      plan.parameters, plan.ranks, plan.degree, plan.ranks / plan.degree, plan.microbatches, plan.batch,
      plan.tokens);
  fmt::print("{} instructions, {} buffers; verified\n\n", plan.instructions, plan.buffers);
  fmt::print("{:<14}{:>14}\n", "memory", "MiB a rank");
  for (const Share& share : plan.memory) fmt::print("{:<14}{:>14.2f}\n", share.name, share.amount / kMiB);
  fmt::print("{:<14}{:>14.2f}  at instruction {}\n", "peak", static_cast<double>(plan.peak_bytes) / kMiB,
             plan.peak_instruction);
  fmt::print("{:<14}{:>14.2f}\n", "arena", static_cast<double>(plan.arena_bytes) / kMiB);
  if (plan.tier_bytes > 0)
    fmt::print("{:<14}{:>14.2f}  of a file\n", "offloaded", static_cast<double>(plan.tier_bytes) / kMiB);
  fmt::print("\n");
  fmt::print("{:<14}{:>14}\n", "time", "ms a step");
  for (const Share& share : plan.times) fmt::print("{:<14}{:>14.2f}\n", share.name, share.amount / 1e3);
  fmt::print(
      "\npredicted step  {:.2f} ms: {:.2f} ms computing at {:.1f} GFLOP/s, {:.2f} ms waiting for collectives "
      "({:.1f} %)\n",
      plan.step_us / 1e3, plan.compute_us / 1e3, plan.flops / 1e9, plan.exposed_us / 1e3,
      plan.exposed_us / plan.step_us * 100);
  fmt::print("tokens/s        {:.0f}\n", plan.tokens_per_second);
}

}  // namespace

Status plan(const PlanOptions& options) {
  const Result<Config> config = Config::read(options.config, options.overrides);
  LOOM_TRY(config.status());
  Cluster cluster;
  cluster.ranks = options.ranks;
  cluster.ranks_per_node = options.ranks_per_node;
  cluster.flops = options.gflops * 1e9;
  cluster.intra_bandwidth = options.intra_gbytes * 1e9;
  cluster.inter_bandwidth = options.inter_gbytes * 1e9;
  cluster.intra_latency_us = options.intra_latency_us;
  cluster.inter_latency_us = options.inter_latency_us;
  const Result<Plan> made = loom::plan(*config, cluster, options.vocabulary);
  LOOM_TRY(made.status());
  if (options.instructions) fmt::print("{}\n", made->program);
  print(*made);
  return {};
}

}  // namespace loom::command
