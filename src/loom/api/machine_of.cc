#include "api/machine_of.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>

#include "base/check.h"
#include "format/json_file.h"
#include "weft/weft_forecast.h"

namespace loom {
namespace {

using program::CollectiveShape;

/// Times of Weft's plans on a cluster, by Weft's simulator. Of sizes between two powers of two they are on
/// the straight line between those.
class PlannedCollectives {
 public:
  PlannedCollectives(std::string description, std::shared_ptr<Unplanned> unplanned)
      : description_(std::move(description)), unplanned_(std::move(unplanned)) {}

  double operator()(const CollectiveShape& shape) {
    double low = 4096;
    while (2 * low <= shape.bytes) low *= 2;
    const double at_low = at(shape, low), at_high = at(shape, 2 * low);
    if (at_low < 0 || at_high < 0) return -1;
    return std::max(0.0, at_low + (at_high - at_low) * (shape.bytes - low) / low);
  }

 private:
  double at(const CollectiveShape& shape, double bytes) {
    const double part = shape.interfaces / shape.sharing;
    const auto [found, is_new] =
        known_.try_emplace({shape.kind, bytes, shape.nodes, shape.ranks_per_node, part}, -1);
    if (!is_new) return found->second;
    using Kind = CollectiveShape::Kind;
    const char* const name = shape.kind == Kind::gather       ? "allgather"
                             : shape.kind == Kind::all_reduce ? "allreduce"
                                                              : "reducescatter";
    double us = -1;
    if (weftForecastCollective(description_.c_str(), name, static_cast<size_t>(bytes), shape.nodes,
                               shape.ranks_per_node, part, &us) == weftSuccess)
      found->second = us;
    else if (unplanned_)
      unplanned_->try_emplace(
          name, fmt::format("{} of {:.0f} bytes on {} nodes of {} ranks: {}", name, bytes, shape.nodes,
                            shape.ranks_per_node, weftGetLastError(nullptr)));
    return found->second;
  }

  const std::string description_;
  const std::shared_ptr<Unplanned> unplanned_;
  std::map<std::tuple<CollectiveShape::Kind, double, int, int, double>, double> known_;
};

bool has_plans(const Cluster& cluster, const EngineRates& engine) {
  return !cluster.description.empty() && engine.name == "weft";
}

}  // namespace

Status check(const Cluster& cluster, const Assumptions& assumptions) {
  LOOM_TRY(at_least_one("ranks", cluster.ranks));
  LOOM_TRY(at_least_one("ranks_per_node", cluster.ranks_per_node));
  struct Rate {
    const char* name;
    double value;
    const char *key, *option;  // of a description, and of the command line
  };
  for (const Rate& rate :
       {Rate{"memory_bandwidth", cluster.memory_bandwidth, "machine.memory.copy_large", "--memory"},
        Rate{"intra_bandwidth", cluster.intra_bandwidth, "machine.intra.bytes_per_us", "--intra"},
        Rate{"inter_bandwidth", cluster.inter_bandwidth, "machine.nic_bytes_per_us", "--inter"}})
    if (!(rate.value > 0))
      return fail(Code::invalid_argument,
                  "the cluster's {} is {}, must be above 0: its description must have {}, or {} says it",
                  rate.name, rate.value, rate.key, rate.option);
  for (const auto& [name, value] : {std::pair{"flops", cluster.flops},
                                    {"tier_bandwidth", cluster.tier_bandwidth},
                                    {"intra_latency_us", cluster.intra_latency_us},
                                    {"inter_latency_us", cluster.inter_latency_us}})
    if (!(value >= 0))
      return fail(Code::invalid_argument, "the cluster's {} is {}, must not be negative", name, value);
  if (!cluster.name.empty() && cluster.flops == 0)
    return fail(
        Code::invalid_argument,
        "the cluster {} has no compute.gflops, the peak of a rank's device: the description must have "
        "it, or --gflops says it",
        cluster.name);
  if (assumptions.attention != "flash" && assumptions.attention != "standard")
    return fail(Code::invalid_argument, "attention is {}, must be flash or standard", assumptions.attention);
  std::vector<std::string> names = {"weft"};
  for (const EngineRates& engine : cluster.engines)
    if (engine.name != "weft") names.push_back(engine.name);
  if (std::find(names.begin(), names.end(), assumptions.engine) != names.end()) return {};
  const std::string nearest = format::nearest_name(assumptions.engine, names);
  return fail(Code::invalid_argument, "{} does not describe an engine {}; there {} {}{}",
              cluster.name.empty() ? "the cluster" : cluster.name, assumptions.engine,
              names.size() == 1 ? "is" : "are", fmt::join(names, ", "),
              nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest));
}

EngineRates engine_of(const Cluster& cluster, const std::string& name) {
  for (const EngineRates& engine : cluster.engines)
    if (engine.name == name) return engine;
  EngineRates weft;
  weft.name = name;
  return weft;
}

double peak_of(const Cluster& cluster, program::Precision precision) {
  const double fp32 = cluster.compute.fp32_flops;
  return precision == program::Precision::fp32 && fp32 > 0 ? fp32 : cluster.flops;
}

program::Machine machine_of(const Cluster& cluster, const Assumptions& assumptions, double product_flops,
                            program::Precision precision, const std::shared_ptr<Unplanned>& unplanned) {
  const Compute& compute = cluster.compute;
  const double peak = peak_of(cluster, precision);
  program::Machine machine;
  machine.ranks_per_node = cluster.ranks_per_node;
  machine.flops = product_flops > 0 ? product_flops : peak * compute.gemm_efficiency;
  machine.memory_bandwidth = cluster.memory_bandwidth;
  machine.intra_bandwidth = cluster.intra_bandwidth;
  machine.inter_bandwidth = cluster.inter_bandwidth;
  machine.intra_latency_us = cluster.intra_latency_us;
  machine.inter_latency_us = cluster.inter_latency_us;
  machine.tier_bandwidth = cluster.tier_bandwidth;
  program::Device& device = machine.device;
  if (assumptions.attention == "standard") device.attention = program::AttentionKind::standard;
  device.fused_flops = peak * compute.flash_efficiency;
  device.batched_flops = peak * compute.product_efficiency;
  device.multiprocessors = compute.multiprocessors;
  device.launch_us = compute.launch_us;
  if (compute.memory_efficiency > 0) {
    machine.memory_bandwidth *= compute.memory_efficiency;
    device.pass_bandwidth = machine.memory_bandwidth;
  }
  const EngineRates engine = engine_of(cluster, assumptions.engine);
  program::Traffic& traffic = machine.traffic;
  traffic.gather_bandwidth = engine.gather_bandwidth;
  traffic.reduce_bandwidth = engine.reduce_bandwidth;
  traffic.all_reduce_bandwidth = engine.all_reduce_bandwidth;
  traffic.all_reduce_latency_us = engine.all_reduce_latency_us;
  traffic.hidden = engine.hidden;
  traffic.scatters_transfers = engine.scatters_transfers;
  traffic.fuses_sums = engine.fuses_sums;
  if (compute.multiprocessors > 0)
    traffic.multiprocessors =
        std::min(0.9, static_cast<double>(engine.multiprocessors) / compute.multiprocessors);
  // Only numbers of two bytes travel as such.
  if (precision != program::Precision::fp32) traffic.gradient_bytes = engine.gradient_bits / 8;
  if (engine.intra_bandwidth > 0) machine.intra_bandwidth = engine.intra_bandwidth;
  if (has_plans(cluster, engine)) {
    const auto plans = std::make_shared<PlannedCollectives>(cluster.description, unplanned);
    machine.plans = [plans](const CollectiveShape& shape) { return (*plans)(shape); };
  }
  return machine;
}

std::string collectives_text(const Cluster& cluster, const Assumptions& assumptions,
                             const Unplanned& unplanned) {
  const EngineRates engine = engine_of(cluster, assumptions.engine);
  if (has_plans(cluster, engine)) {
    std::string refused;
    for (const auto& [name, reason] : unplanned) refused += fmt::format(", {} between nodes", name);
    return fmt::format(
        "Weft's plans, simulated, between nodes; by the formula, bytes over the rate of the links: groups "
        "inside a node, groups that lie unevenly on nodes{}",
        refused);
  }
  return engine.name == "weft" ? "bytes over the rate of the links" : "measured rates of " + engine.name;
}

}  // namespace loom
