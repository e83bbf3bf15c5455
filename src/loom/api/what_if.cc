// What goes wrong on a cluster, simulated, and whether another degree or placement makes better of it.
#include <fmt/format.h>

#include <set>

#include "api/planned.h"

namespace loom {
namespace {

constexpr double kWorthTelling = 0.99;  // of a step: what takes less than that is said

struct Alternative {
  std::string change;
  train::Config config;
};

/// Other degrees of sharding next to the config's, a node's, and other placements.
std::vector<Alternative> alternatives(const train::Config& config, const SimulatedStep& plain,
                                      int ranks_per_node) {
  std::vector<Alternative> all;
  const program::Job& job = plain.job;
  for (const int degree : std::set<int>{job.degree / 2, 2 * job.degree, ranks_per_node}) {
    if (degree < 1 || degree == job.degree || job.data_degree() % degree != 0) continue;
    all.push_back({fmt::format("parallel.sharded_data_parallel_degree={}", degree), config});
    all.back().config.parallel.sharded_data_parallel_degree = degree;
  }
  if (job.pipeline_degree * job.tensor_degree == 1) return all;
  for (const char* placement : {"cluster", "spread", "PDT"}) {
    if (placement == config.parallel.placement) continue;
    all.push_back({fmt::format("parallel.placement={}", placement), config});
    all.back().config.parallel.placement = placement;
  }
  return all;
}

struct EngineChange {
  std::string what;
  EngineRates engine;
};

/// The engine with each of its traits changed that matters to the job.
std::vector<EngineChange> engine_changes(const EngineRates& engine, const program::Job& job) {
  std::vector<EngineChange> all;
  const auto change = [&](const char* what) -> EngineRates& {
    all.push_back({what, engine});
    return all.back().engine;
  };
  if (job.pipeline_degree > 1 && job.tensor_degree > 1)
    change(engine.scatters_transfers ? "each tensor rank sends all of a stage's output"
                                     : "each tensor rank sends its part of a stage's output")
        .scatters_transfers = !engine.scatters_transfers;
  change(engine.fuses_sums ? "kernels of their own add gradients" : "products add gradients as they write")
      .fuses_sums = !engine.fuses_sums;
  if (engine.hidden < 1) change("computing goes on behind collectives").hidden = 1;
  if (engine.hidden > 0) change("computing waits for collectives").hidden = 0;
  if (engine.multiprocessors > 0) change("collectives take no multiprocessors").multiprocessors = 0;
  if (job.precision != program::Precision::fp32) {
    const int bits = engine.gradient_bits == 32 ? 16 : 32;
    change(bits == 16 ? "gradients travel in 16 bits" : "gradients travel in 32 bits").gradient_bits = bits;
  }
  return all;
}

/// The cluster on which this engine is what its description says of it.
Cluster with_engine(Cluster cluster, const EngineRates& engine) {
  std::erase_if(cluster.engines, [&](const EngineRates& other) { return other.name == engine.name; });
  cluster.engines.push_back(engine);
  return cluster;
}

int rails_of(const Cluster& cluster) { return std::max(1, cluster.interfaces); }

}  // namespace

Result<std::vector<Trouble>> what_if(const Config& config, const Cluster& cluster, int64_t vocabulary,
                                     const Assumptions& assumptions) {
  LOOM_TRY(check(cluster, assumptions));
  const train::Config& values = config.values();
  const Result<model::ModelSpec> spec = planned_model(config, vocabulary);
  LOOM_TRY(spec.status());
  const double product_flops = planned_flops(config, cluster);
  const auto simulated = [&](const train::Config& other, const Disturbance& disturbance) {
    return simulate_step(other, {*spec, cluster, assumptions, product_flops, {}, disturbance});
  };
  const Result<SimulatedStep> plain = simulated(values, {});
  LOOM_TRY(plain.status());
  const double plain_us = plain->forecast.step_us;
  const std::vector<Alternative> others = alternatives(values, *plain, cluster.ranks_per_node);
  std::vector<Trouble> troubles;
  const auto add = [&](std::string what, const Disturbance& disturbance, bool of_one = false) -> Status {
    const Result<SimulatedStep> step = simulated(values, disturbance);
    LOOM_TRY(step.status());
    Trouble trouble{std::move(what), step->forecast.step_us, plain_us, "", step->forecast.step_us, of_one};
    for (const Alternative& other : others) {
      const Result<SimulatedStep> instead = simulated(other.config, disturbance);
      if (!instead.ok() || !instead->device.fits()) continue;
      if (instead->forecast.step_us >= kWorthTelling * trouble.step_us ||
          instead->forecast.step_us >= trouble.instead_us)
        continue;
      trouble.instead = other.change;
      trouble.instead_us = instead->forecast.step_us;
    }
    troubles.push_back(std::move(trouble));
    return {};
  };
  LOOM_TRY(add("as it is", {}));
  LOOM_TRY(add("a node computes at half its rate", {.computing = 0.5}, true));
  const int rails = rails_of(cluster);
  if (rails > 1)
    LOOM_TRY(add(fmt::format("one of the {} interfaces of a node fails", rails),
                 {.interfaces = (rails - 1.0) / rails}, true));
  LOOM_TRY(add("all nodes have half their interfaces", {.interfaces = 0.5}));
  for (const Alternative& other : others) {
    if (other.config.parallel.placement == values.parallel.placement) continue;
    const Result<SimulatedStep> step = simulated(other.config, {});
    if (step.ok()) troubles.push_back({other.change, step->forecast.step_us, plain_us, "", 0});
  }
  for (const EngineChange& other : engine_changes(engine_of(cluster, assumptions.engine), plain->job)) {
    const Cluster changed = with_engine(cluster, other.engine);
    const Result<SimulatedStep> step = simulate_step(values, {*spec, changed, assumptions, product_flops});
    LOOM_TRY(step.status());
    troubles.push_back({other.what, step->forecast.step_us, plain_us, "", 0});
  }
  return troubles;
}

}  // namespace loom
