// The search for a config that fits a device: degrees in their order, until one fits, of each way to keep
// less. The shortest step of those that fit is the answer.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "api/planned.h"

namespace loom {
namespace {

/// One way to divide and to keep less.
struct Way {
  int64_t tensor = 1, pipeline = 1;
  bool checkpoints = false, offloads = false, small = false;  // microbatches of one sequence
};

struct Found {
  std::optional<train::Config> config;
  double step_us = 0;
  double least_bytes = 0;  // that any needed
  int tried = 0;
};

double gib(double bytes) { return bytes / (1 << 30); }

train::Config config_of(const train::Config& config, const Way& way) {
  train::Config made = config;
  made.parallel.tensor_degree = way.tensor;
  made.parallel.pipeline_degree = way.pipeline;
  if (way.tensor > 1) made.parallel.prescaled_batch = true;
  if (way.checkpoints) made.parallel.activation_checkpointing = {1, 1};
  if (way.offloads) made.parallel.activation_offloading = true;
  if (way.small) made.data.microbatch = 1;
  return made;
}

/// Degrees of sharding, ascending; the first that fits is kept if it is the fastest so far.
void try_way(const train::Config& config, const StepBasis& basis, const Way& way, Found& found) {
  const int64_t together = way.tensor * way.pipeline;
  if (basis.cluster.ranks % together != 0) return;
  train::Config made = config_of(config, way);
  const int64_t data = basis.cluster.ranks / together;
  for (int64_t degree = 1; degree <= data; ++degree) {
    if (data % degree != 0) continue;
    made.parallel.sharded_data_parallel_degree = degree;
    const Result<SimulatedStep> step = simulate_step(made, basis);
    if (!step.ok()) continue;
    ++found.tried;
    const double needed = step->device.needed_bytes;
    if (found.least_bytes == 0 || needed < found.least_bytes) found.least_bytes = needed;
    if (!step->device.fits()) continue;
    if (!found.config || step->forecast.step_us < found.step_us) {
      found.config = made;
      found.step_us = step->forecast.step_us;
    }
    return;
  }
}

/// The config's own tensor and pipeline degrees first; others only where these do not do.
Found search(const train::Config& config, const StepBasis& basis) {
  Found found;
  const bool checkpoints = config.parallel.activation_checkpointing.group > 0;
  const bool offloads = config.parallel.activation_offloading;
  const auto try_all = [&](int64_t tensor, int64_t pipeline) {
    for (const bool again : {false, true})
      for (const bool tier : {false, true})
        for (const bool small : {false, true}) {
          if ((again && checkpoints) || (tier && (offloads || basis.cluster.tier_bandwidth == 0)) ||
              (small && config.data.microbatch == 1) || (tier && !again && !checkpoints))
            continue;
          try_way(config, basis, {tensor, pipeline, again, tier, small}, found);
        }
  };
  try_all(config.parallel.tensor_degree, config.parallel.pipeline_degree);
  for (int64_t pipeline = 1; !found.config && pipeline <= 16; pipeline *= 2)
    for (int64_t tensor = 1; tensor <= std::min(8, basis.cluster.ranks_per_node); tensor *= 2)
      if (tensor != config.parallel.tensor_degree || pipeline != config.parallel.pipeline_degree)
        try_all(tensor, pipeline);
  return found;
}

/// As many times the ranks and the batch, up to 64 times, of which some config fits; 0: none.
int nodes_that_do(const train::Config& config, const StepBasis& basis) {
  for (int times = 2; times <= 64; times *= 2) {
    Cluster larger = basis.cluster;
    larger.ranks *= times;
    train::Config scaled = config;
    scaled.data.global_batch *= times;
    StepBasis other{basis.spec, larger, basis.assumptions, basis.product_flops};
    if (search(scaled, other).config) return larger.ranks / larger.ranks_per_node;
  }
  return 0;
}

std::vector<std::string> changes_of(const train::Config& from, const train::Config& to) {
  std::vector<std::string> changes;
  const auto number = [&](const char* key, int64_t before, int64_t after) {
    if (before != after) changes.push_back(fmt::format("{}={}", key, after));
  };
  number("parallel.tensor_degree", from.parallel.tensor_degree, to.parallel.tensor_degree);
  number("parallel.pipeline_degree", from.parallel.pipeline_degree, to.parallel.pipeline_degree);
  number("parallel.sharded_data_parallel_degree", from.parallel.sharded_data_parallel_degree,
         to.parallel.sharded_data_parallel_degree);
  number("data.microbatch", from.data.microbatch, to.data.microbatch);
  const auto flag = [&](const char* change, bool before, bool after) {
    if (before != after) changes.emplace_back(change);
  };
  flag("parallel.activation_checkpointing=each", from.parallel.activation_checkpointing.group > 0,
       to.parallel.activation_checkpointing.group > 0);
  flag("parallel.activation_offloading=true", from.parallel.activation_offloading,
       to.parallel.activation_offloading);
  flag("parallel.prescaled_batch=true", from.parallel.prescaled_batch, to.parallel.prescaled_batch);
  return changes;
}

}  // namespace

Result<Fitted> fit(const Config& config, const Cluster& cluster, int64_t vocabulary,
                   const Assumptions& assumptions) {
  LOOM_TRY(check(cluster, assumptions));
  if (cluster.compute.memory_bytes == 0)
    return fail(Code::invalid_argument,
                "the cluster{}{} has no compute.memory_gib, the memory of a device, to fit into",
                cluster.name.empty() ? "" : " ", cluster.name);
  const train::Config& values = config.values();
  const Result<model::ModelSpec> spec = planned_model(config, vocabulary);
  LOOM_TRY(spec.status());
  const StepBasis basis{*spec, cluster, assumptions, planned_flops(config, cluster)};
  const Found found = search(values, basis);
  if (!found.config) {
    if (found.tried == 0) return plan(config, cluster, vocabulary, assumptions).status();
    const int nodes = nodes_that_do(values, basis);
    return fail(
        Code::out_of_memory,
        "no config of {} that was tried fits {:.1f} GiB on {} ranks: the least is {:.1f} GiB a rank{}",
        found.tried, gib(cluster.compute.memory_bytes), cluster.ranks, gib(found.least_bytes),
        nodes > 0 ? fmt::format("; {} nodes would do, with the batch in proportion", nodes) : "");
  }
  Fitted fitted;
  fitted.changes = changes_of(values, *found.config);
  fitted.tried = found.tried;
  Result<Plan> made = plan(Config(*found.config), cluster, vocabulary, assumptions);
  LOOM_TRY(made.status());
  fitted.plan = made.take();
  return fitted;
}

}  // namespace loom
