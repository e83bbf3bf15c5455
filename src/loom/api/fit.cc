// The search for a config that fits a device: degrees in their order, until one fits, of each way to keep
// less. The shortest step of those that fit is the answer. Time is simulated only of what fits, programs are
// made only where a bound leaves a doubt, and tensor and pipeline degrees of which the leanest way does not
// fit are not searched.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
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
  double least_bytes = 0;  // that any needed which was laid out; 0: none was
  int tried = 0;
};

enum class Wanted { fastest, any };

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

class Search {
 public:
  Search(const train::Config& config, const StepBasis& basis, Wanted wanted)
      : config_(config), basis_(basis), wanted_(wanted) {}

  /// The config's own tensor and pipeline degrees first; others only where these do not do.
  Found run() {
    try_degrees(config_.parallel.tensor_degree, config_.parallel.pipeline_degree);
    for (int64_t pipeline = 1; !found_.config && pipeline <= 16; pipeline *= 2)
      for (int64_t tensor = 1; tensor <= std::min(8, basis_.cluster.ranks_per_node) && !is_over();
           tensor *= 2)
        if (tensor != config_.parallel.tensor_degree || pipeline != config_.parallel.pipeline_degree)
          try_degrees(tensor, pipeline);
    if (!found_.config && found_.least_bytes == 0) lay_out_least();
    return std::move(found_);
  }

 private:
  bool is_over() const { return wanted_ == Wanted::any && found_.config.has_value(); }

  /// From what keeps most to what keeps least.
  std::vector<Way> ways(int64_t tensor, int64_t pipeline) const {
    const bool checkpoints = config_.parallel.activation_checkpointing.group > 0;
    const bool offloads = config_.parallel.activation_offloading;
    std::vector<Way> all;
    for (const bool again : {false, true})
      for (const bool tier : {false, true})
        for (const bool small : {false, true}) {
          if ((again && checkpoints) || (tier && (offloads || basis_.cluster.tier_bandwidth == 0)) ||
              (small && config_.data.microbatch == 1) || (tier && !again && !checkpoints))
            continue;
          all.push_back({tensor, pipeline, again, tier, small});
        }
    return all;
  }

  void try_degrees(int64_t tensor, int64_t pipeline) {
    if (basis_.cluster.ranks % (tensor * pipeline) != 0) return;
    const int64_t data = basis_.cluster.ranks / (tensor * pipeline);
    const std::vector<Way> all = ways(tensor, pipeline);
    train::Config leanest = config_of(config_, all.back());
    leanest.parallel.sharded_data_parallel_degree = data;
    const double bound = least_bytes(leanest);
    if (bound < least_bound_) least_bound_ = bound, of_least_bound_ = leanest;
    if (bound > basis_.cluster.compute.memory_bytes) {
      ++found_.tried;
      return;
    }
    const std::optional<SimulatedStep> least = laid_out(with_few_microbatches(leanest));
    if (least && !least->device.fits()) return;
    if (wanted_ == Wanted::any) {
      const std::optional<SimulatedStep> step = laid_out(leanest);
      if (step && step->device.fits()) found_.config = leanest;
    }
    for (const Way& way : all)
      if (!is_over()) try_way(config_of(config_, way), data);
  }

  /// As many microbatches of a sequence as stages, if there are more: the step needs no more memory than that
  /// of all of them, and its programs are shorter by far.
  train::Config with_few_microbatches(train::Config config) const {
    const int64_t pipeline = config.parallel.pipeline_degree;
    const int64_t data = basis_.cluster.ranks / (config.parallel.tensor_degree * pipeline);
    if (config.data.microbatch == 1)
      config.data.global_batch = std::min(config.data.global_batch, data * pipeline);
    return config;
  }

  /// Degrees of sharding, ascending; the first that fits is kept if it is the fastest so far.
  void try_way(train::Config config, int64_t data) {
    for (int64_t degree = 1; degree <= data; ++degree) {
      if (data % degree != 0) continue;
      config.parallel.sharded_data_parallel_degree = degree;
      std::optional<SimulatedStep> step = laid_out(config);
      if (!step || !step->device.fits()) continue;
      if (wanted_ == Wanted::fastest && !forecast_step(config, basis_, *step).ok()) continue;
      if (!found_.config || step->forecast.step_us < found_.step_us) {
        found_.config = config;
        found_.step_us = step->forecast.step_us;
      }
      return;
    }
  }

  /// Nothing where the config is wrong, or its bound does not fit.
  std::optional<SimulatedStep> laid_out(const train::Config& config) {
    if (least_bytes(config) > basis_.cluster.compute.memory_bytes) {
      ++found_.tried;
      return {};
    }
    Result<SimulatedStep> step = lay_out_step(config, basis_);
    if (!step.ok()) return {};
    ++found_.tried;
    const double needed = step->device.needed_bytes;
    if (found_.least_bytes == 0 || needed < found_.least_bytes) found_.least_bytes = needed;
    return step.take();
  }

  /// For the message: of those whose bounds do not fit, the one with the least.
  void lay_out_least() {
    if (found_.tried == 0) return;
    const Result<SimulatedStep> step = lay_out_step(of_least_bound_, basis_);
    if (step.ok()) found_.least_bytes = step->device.needed_bytes;
  }

  /// Elements of the model that one of so many tensor ranks holds, and those of its largest block.
  struct Elements {
    double all = 0, block = 0;
  };
  const Elements& elements(int64_t tensor) {
    const auto [found, is_new] = elements_.try_emplace(tensor);
    if (!is_new || !model::check_split(basis_.spec, static_cast<int>(tensor)).ok()) return found->second;
    for (const model::Unit& unit :
         model::units_of(basis_.spec, model::TensorRank{static_cast<int>(tensor), 0})) {
      const auto count = static_cast<double>(unit.elements);
      found->second.all += count;
      if (unit.kind == model::UnitKind::block) found->second.block = std::max(found->second.block, count);
    }
    return found->second;
  }

  /// That a rank needs at least: its part of the state and the parameters, the mean over the
  /// stages, and, where shards are gathered, the parameters and the gradient of a whole block.
  double least_bytes(const train::Config& config) {
    const auto& parallel = config.parallel;
    const Elements& held = elements(parallel.tensor_degree);
    program::Job job;
    job.precision = train::precision_of(config);
    const int64_t degree = parallel.sharded_data_parallel_degree;
    const double state = held.all * static_cast<double>(job.state_bytes()) /
                         static_cast<double>(parallel.pipeline_degree * degree);
    const double whole = degree > 1 ? held.block * static_cast<double>(4 + job.element_bytes()) : 0;
    return parallel.pipeline_degree == 1 ? state + whole : std::max(state, whole);
  }

  const train::Config& config_;
  const StepBasis& basis_;
  const Wanted wanted_;
  Found found_;
  std::map<int64_t, Elements> elements_;
  double least_bound_ = INFINITY;
  train::Config of_least_bound_;
};

/// As many times the ranks and the batch, up to 64 times, of which some config fits; 0: none.
int nodes_that_do(const train::Config& config, const StepBasis& basis) {
  constexpr int kMost = 6;  // doublings
  const auto fits = [&](int times) {
    Cluster larger = basis.cluster;
    larger.ranks *= times;
    train::Config scaled = config;
    scaled.data.global_batch *= times;
    const StepBasis other{basis.spec, larger, basis.assumptions, basis.product_flops};
    return Search(scaled, other, Wanted::any).run().config.has_value();
  };
  if (!fits(1 << kMost)) return 0;
  int least = 1, most = kMost;
  while (least < most) {
    const int middle = (least + most) / 2;
    if (fits(1 << middle)) most = middle;
    else least = middle + 1;
  }
  return basis.cluster.ranks * (1 << most) / basis.cluster.ranks_per_node;
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
  const Found found = Search(values, basis, Wanted::fastest).run();
  if (!found.config) {
    if (found.tried == 0) return plan(config, cluster, vocabulary, assumptions).status();
    const int nodes = nodes_that_do(values, basis);
    return fail(
        Code::out_of_memory,
        "no config of {} that was tried fits {:.1f} GiB on {} ranks: a rank needs {:.1f} GiB at least{}",
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
