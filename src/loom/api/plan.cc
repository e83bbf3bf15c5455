// A plan: the program of a step, its memory and its forecast.
#include "loom/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/planned.h"
#include "base/file.h"
#include "program/generate.h"
#include "program/schedule.h"
#include "program/tier_need.h"
#include "program/verify.h"
#include "train/breakdown.h"
#include "train/config.h"
#include "train/data.h"
#include "train/machine.h"
#include "train/threads.h"
#include "train/trainer.h"

namespace loom {
namespace {

/// A dataset that is there is asked, as training asks it.
Result<model::ModelSpec> model_of(const train::Config& config, int64_t vocabulary) {
  const bool known = vocabulary != 0 || config.model.vocabulary != 0 || !config.model.from.empty();
  if (!known || is_folder(config.data.folder)) {
    Result<train::Data> data = train::open_data(config);
    if (!known)
      LOOM_TRY(data.status().in("the vocabulary comes from the dataset; --vocabulary does without"));
    LOOM_TRY(data.status());
    if (vocabulary != 0 && vocabulary < data->vocabulary)
      return fail(Code::invalid_argument, "the vocabulary is {}, must be at least the dataset's, {}",
                  vocabulary, data->vocabulary);
    data->vocabulary = std::max(vocabulary, data->vocabulary);
    return train::spec_of(config, *data);
  }
  constexpr int64_t kLabels = 2;  // where no dataset says
  return train::spec_of(config, vocabulary, kLabels);
}

/// Threads of a rank, as training would take them if this machine were one of the cluster's nodes.
int threads_of(const Cluster& cluster, const train::Config& config) {
  const int sharing = std::min(cluster.ranks, cluster.ranks_per_node);
  return train::threads_of(config, {sharing, sharing, sharing});
}

/// What offloading asks of the tier. All 0 where nothing is offloaded.
PlannedTier tier_of(const SimulatedStep& step) {
  PlannedTier tier;
  if (!step.job.offload) return tier;
  const Result<program::TierNeed> need = program::tier_need(step.job, step.programs, step.machine);
  if (!need.ok()) return tier;  // too few blocks to offload any
  tier.bandwidth = step.machine.tier_bandwidth;
  tier.kept_us = need->kept_us;
  tier.hidden_bandwidth = need->hidden;
  tier.tenth_bandwidth = need->tenth;
  return tier;
}

PlannedStage stage_of(const program::Program& program, const program::MemoryPlan& memory,
                      const program::Forecast& forecast) {
  PlannedStage stage;
  for (int category = 0; category < program::kCategories; ++category)
    stage.memory.push_back({program::category_name(static_cast<program::Category>(category)),
                            static_cast<double>(memory.peak[category])});
  stage.peak_bytes = memory.peak_bytes;
  stage.peak_instruction = memory.peak_instruction;
  stage.arena_bytes = memory.bytes;
  stage.tier_bytes = memory.tier_bytes;
  for (const auto& [name, us] : train::breakdown_of(program, forecast).parts())
    stage.times.push_back({name, us});
  return stage;
}

std::string layout_text(const program::Job& job, int ranks_per_node) {
  const program::Layout layout = job.layout();
  if (layout.ranks() == 1) return {};
  const bool data_only = layout.pipeline * layout.tensor == 1;
  return fmt::format("{}; {}\n", program::to_string(layout),
                     data_only ? "g partition group, which shares one copy of the state, m member of it"
                               : "d data rank, p stage, t tensor rank") +
         program::picture(layout, ranks_per_node) + program::groups_text(layout);
}

/// What the second copy of a matrix that both ends of a pipeline use costs the last stage: all that its
/// optimizer works on of a unit which is another stage's.
std::string copies_text(const program::Job& job, const std::vector<program::Program>& programs) {
  if (!job.spec.tied || programs.size() == 1) return {};
  double bytes = 0;
  for (const program::Instruction& i : programs.back().instructions) {
    if (i.op != program::Op::step || i.unit != 0) continue;
    for (const program::Use& use : i.uses)
      if (use.role != program::Role::norms)
        bytes += static_cast<double>(programs.back().buffers[static_cast<size_t>(use.buffer)].bytes);
  }
  return fmt::format(
      "embedding and head share a matrix: stages 0 and {} have a copy each, whose gradients are added once a "
      "step; the second takes {:.2f} MiB of a rank (model.tied: false has none)\n",
      programs.size() - 1, bytes / (1 << 20));
}

std::string partition_text(const train::Config& config, const program::Job& job,
                           const program::MeasuredUnits& measured,
                           const std::vector<program::Program>& programs) {
  if (job.pipeline_degree == 1) return {};
  const program::PartitionRequest request = train::partition_request(config, job, measured);
  Result<program::Partition> partition = train::partition_of(config, job, measured);
  const bool gave_way =
      partition.ok() && !job.first_units.empty() && partition->first_units != job.first_units;
  if (gave_way) partition = program::partition_by_hand(request, job.first_units);
  if (!partition.ok()) return {};  // cannot be: the job is right
  return fmt::format("partition \"{}\", {}{}\n{}", config.parallel.partition,
                     measured.empty() ? "modelled times" : "measured times and memory",
                     gave_way ? "; better ones do not fit parallel.memory_limit_mb" : "",
                     program::to_string(job, request, *partition)) +
         copies_text(job, programs);
}

Performance performance_of(const program::Job& job, double parameters, double step_us, double peak) {
  Performance performance;
  const double tokens = job.tokens_per_step(), ranks = job.world, seconds = step_us / 1e6;
  performance.tokens_per_second = tokens / seconds;
  performance.samples_per_second = tokens / static_cast<double>(job.tokens) / seconds;
  double recomputed = 0;  // blocks
  for (int unit = 1; unit <= job.spec.layers; ++unit) recomputed += job.recomputes(unit);
  const bool all = recomputed == static_cast<double>(job.spec.layers);
  performance.published_flops = (all ? 8 : 6) * parameters * tokens / ranks / seconds;
  if (peak == 0) return performance;
  const double asked = job.flops_per_token();
  const double blocks = asked - 6 * job.spec.head_weights() * static_cast<double>(job.head_rows()) /
                                    static_cast<double>(job.batch * job.tokens);
  const double computed = asked + blocks / 3 * recomputed / static_cast<double>(job.spec.layers);
  performance.mfu = asked * tokens / ranks / seconds / peak;
  performance.hfu = computed * tokens / ranks / seconds / peak;
  return performance;
}

/// Means over the stages.
std::vector<Share> computing_of(const program::PipelineForecast& forecast) {
  program::ComputeTime time;
  double all = 0;
  for (const program::Forecast& stage : forecast.stages) time += stage.computing, all += stage.compute_us;
  const double part = 1 / static_cast<double>(forecast.stages.size());
  time = time * part;
  return {{"products", time.product_us},
          {"attention", time.attention_us},
          {"passes", time.pass_us},
          {"optimizer", all * part - time.all_us()}};
}

/// What the plan says in words, and the lists.
Status add_texts(const train::Config& config, const Cluster& cluster, const SimulatedStep& step,
                 const std::vector<engine::UnitProfile>& profiles, Plan& plan) {
  for (const program::Program& program : step.programs) {
    if (step.job.pipeline_degree > 1) plan.program += fmt::format("stage {}\n", program.stage);
    plan.program += program::to_string(program);
  }
  plan.layout = layout_text(step.job, cluster.ranks_per_node);
  plan.partition = partition_text(config, step.job, engine::measures_of(profiles), step.programs);
  if (!profiles.empty()) plan.profile = engine::to_string(step.job, profiles);
  if (const std::string note = engine::left_out(profiles); !note.empty()) plan.profile += note + "\n";
  return {};
}

Plan plan_of(const SimulatedStep& step, const Cluster& cluster, const Assumptions& assumptions) {
  const program::Job& job = step.job;
  Plan plan;
  plan.parameters = model::parameter_count(model::units_of(job.spec));
  plan.precision = program::precision_name(job.precision);
  plan.ranks = job.world;
  plan.degree = job.degree;
  plan.replicas = job.replicas();
  plan.microbatches = job.microbatches;
  plan.batch = job.batch;
  plan.tokens = job.tokens;
  const auto stages = static_cast<double>(step.programs.size());
  for (size_t stage = 0; stage < step.programs.size(); ++stage) {
    const program::Program& program = step.programs[stage];
    const program::Forecast& forecast = step.forecast.stages[stage];
    plan.instructions += static_cast<int64_t>(program.instructions.size());
    plan.buffers += static_cast<int64_t>(program.buffers.size());
    plan.stages.push_back(stage_of(program, step.memory[stage], forecast));
    plan.compute_us += forecast.compute_us / stages;
    plan.exposed_us += forecast.exposed_us / stages;
  }
  plan.flops = step.machine.flops;
  plan.step_us = step.forecast.step_us;
  plan.bubble = step.forecast.bubble;
  plan.ideal_bubble = program::ideal_bubble(job);
  plan.computing = computing_of(step.forecast);
  plan.performance = performance_of(job, static_cast<double>(plan.parameters), plan.step_us,
                                    peak_of(cluster, job.precision));
  plan.memory = step.device;
  plan.tier = tier_of(step);
  plan.assumptions = assumptions;
  plan.collectives = collectives_text(cluster, assumptions, *step.unplanned);
  for (const auto& [name, reason] : *step.unplanned) plan.unplanned.push_back(reason);
  plan.schedule = program::schedule_name(job.schedule);
  return plan;
}

}  // namespace

Result<model::ModelSpec> planned_model(const Config& config, int64_t vocabulary) {
  return model_of(config.values(), vocabulary);
}

double planned_flops(const Config& config, const Cluster& cluster) {
  const train::Config& values = config.values();
  return cluster.flops > 0 ? 0
                           : train::measured_peak(threads_of(cluster, values), train::precision_of(values));
}

Result<Plan> plan(const Config& config, const Cluster& cluster, int64_t vocabulary,
                  const Assumptions& assumptions) {
  LOOM_TRY(check(cluster, assumptions));
  const train::Config& values = config.values();
  const Result<model::ModelSpec> spec = model_of(values, vocabulary);
  LOOM_TRY(spec.status());
  StepBasis basis{*spec, cluster, assumptions};
  std::string unmeasured;
  const int threads = threads_of(cluster, values);
  if (values.parallel.profile) {
    Result<std::vector<engine::UnitProfile>> units = train::profile(values, *spec, cluster.ranks, threads);
    // What no unit of which fits here is planned for machines where it does.
    if (!units.ok() && units.status().code() != Code::out_of_memory) return units.status();
    if (units.ok()) basis.profiles = units.take();
    else unmeasured = units.status().message();
  }
  basis.product_flops = planned_flops(config, cluster);
  const Result<SimulatedStep> step = simulate_step(values, basis);
  LOOM_TRY(step.status());
  if (assumptions.listing) {
    LOOM_TRY(program::verify_pipeline(step->programs));
    for (size_t stage = 0; stage < step->programs.size(); ++stage)
      LOOM_TRY(program::verify(step->job, step->programs[stage], step->memory[stage]));
  }
  Plan plan = plan_of(*step, cluster, assumptions);
  plan.threads = cluster.flops > 0 ? 0 : threads;
  if (assumptions.listing) LOOM_TRY(add_texts(values, cluster, *step, basis.profiles, plan));
  if (!unmeasured.empty())
    plan.profile = fmt::format("units are not measured, their costs are modelled: {}\n", unmeasured);
  return plan;
}

}  // namespace loom
