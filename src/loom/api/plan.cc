// A plan: the program of a step, its memory and its forecast.
#include "loom/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/file.h"
#include "engine/profile.h"
#include "program/generate.h"
#include "program/memory.h"
#include "program/schedule.h"
#include "program/simulate.h"
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

Status check(const Cluster& cluster) {
  LOOM_TRY(at_least_one("ranks", cluster.ranks));
  LOOM_TRY(at_least_one("ranks_per_node", cluster.ranks_per_node));
  for (const auto& [name, value] : {std::pair{"memory_bandwidth", cluster.memory_bandwidth},
                                    {"intra_bandwidth", cluster.intra_bandwidth},
                                    {"inter_bandwidth", cluster.inter_bandwidth}})
    if (!(value > 0))
      return fail(Code::invalid_argument, "the cluster's {} is {}, must be above 0", name, value);
  for (const auto& [name, value] : {std::pair{"flops", cluster.flops},
                                    {"tier_bandwidth", cluster.tier_bandwidth},
                                    {"intra_latency_us", cluster.intra_latency_us},
                                    {"inter_latency_us", cluster.inter_latency_us}})
    if (!(value >= 0))
      return fail(Code::invalid_argument, "the cluster's {} is {}, must not be negative", name, value);
  return {};
}

/// Threads of a rank, as training would take them if this machine were one of the cluster's nodes.
int threads_of(const Cluster& cluster, const train::Config& config) {
  const int sharing = std::min(cluster.ranks, cluster.ranks_per_node);
  return train::threads_of(config, {sharing, sharing});
}

program::Machine machine_of(const Cluster& cluster, int threads, program::Precision precision) {
  program::Machine machine;
  machine.ranks_per_node = cluster.ranks_per_node;
  machine.flops = cluster.flops > 0 ? cluster.flops : train::measured_peak(threads, precision);
  machine.memory_bandwidth = cluster.memory_bandwidth;
  machine.intra_bandwidth = cluster.intra_bandwidth;
  machine.inter_bandwidth = cluster.inter_bandwidth;
  machine.intra_latency_us = cluster.intra_latency_us;
  machine.inter_latency_us = cluster.inter_latency_us;
  return machine;
}

/// Puts the tier's bandwidth into the machine, where something is offloaded, and says what is needed.
Result<PlannedTier> tier_of(const Cluster& cluster, const train::Config& config, const program::Job& job,
                            const std::vector<program::Program>& programs, program::Machine& machine) {
  PlannedTier tier;
  if (!job.offload) return tier;
  machine.tier_bandwidth = cluster.tier_bandwidth;
  if (cluster.tier_bandwidth == 0) {
    const Result<double> measured =
        train::measured_tier_bandwidth(config.parallel.offload_folder, train::kTierBytes);
    LOOM_TRY(measured.status());
    machine.tier_bandwidth = *measured;
  }
  const Result<program::TierNeed> need = program::tier_need(job, programs, machine);
  if (!need.ok()) return tier;  // too few blocks to offload any
  tier.bandwidth = machine.tier_bandwidth;
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

}  // namespace

Result<Plan> plan(const Config& config, const Cluster& cluster, int64_t vocabulary) {
  LOOM_TRY(check(cluster));
  const train::Config& values = config.values();
  const Result<model::ModelSpec> spec = model_of(values, vocabulary);
  LOOM_TRY(spec.status());
  std::vector<engine::UnitProfile> profiles;
  std::string unmeasured;
  const int threads = threads_of(cluster, values);
  if (values.parallel.profile) {
    Result<std::vector<engine::UnitProfile>> units = train::profile(values, *spec, cluster.ranks, threads);
    // What no unit of which fits here is planned for machines where it does.
    if (!units.ok() && units.status().code() != Code::out_of_memory) return units.status();
    if (units.ok()) profiles = units.take();
    else unmeasured = units.status().message();
  }
  const program::MeasuredUnits measured = engine::measures_of(profiles);
  const Result<program::Job> job = train::job_of(values, *spec, cluster.ranks, measured);
  LOOM_TRY(job.status());
  const Result<std::vector<program::Program>> programs = program::make_programs(*job);
  LOOM_TRY(programs.status());
  LOOM_TRY(program::verify_pipeline(*programs));
  program::Machine machine = machine_of(cluster, threads, job->precision);
  machine.unit_us = engine::times_of(profiles);
  const Result<PlannedTier> tier = tier_of(cluster, values, *job, *programs, machine);
  LOOM_TRY(tier.status());
  const program::PipelineForecast forecast = program::simulate(*job, *programs, machine);

  Plan plan;
  plan.tier = *tier;
  plan.parameters = model::parameter_count(model::units_of(*spec));
  plan.precision = config.values().parallel.precision;
  plan.ranks = job->world;
  plan.degree = job->degree;
  plan.replicas = job->replicas();
  plan.microbatches = job->microbatches;
  plan.batch = job->batch;
  plan.tokens = job->tokens;
  for (size_t stage = 0; stage < programs->size(); ++stage) {
    const program::Program& program = (*programs)[stage];
    const program::MemoryPlan memory = program::plan_memory(program);
    LOOM_TRY(program::verify(*job, program, memory));
    plan.instructions += static_cast<int64_t>(program.instructions.size());
    plan.buffers += static_cast<int64_t>(program.buffers.size());
    plan.stages.push_back(stage_of(program, memory, forecast.stages[stage]));
    plan.compute_us += forecast.stages[stage].compute_us / static_cast<double>(programs->size());
    plan.exposed_us += forecast.stages[stage].exposed_us / static_cast<double>(programs->size());
    if (job->pipeline_degree > 1) plan.program += fmt::format("stage {}\n", program.stage);
    plan.program += program::to_string(program);
  }
  plan.flops = machine.flops;
  plan.threads = cluster.flops > 0 ? 0 : threads;
  plan.step_us = forecast.step_us;
  plan.bubble = forecast.bubble;
  plan.ideal_bubble = program::ideal_bubble(*job);
  plan.tokens_per_second = job->tokens_per_step() / forecast.step_us * 1e6;
  plan.schedule = program::schedule_name(job->schedule);
  plan.layout = layout_text(*job, cluster.ranks_per_node);
  plan.partition = partition_text(values, *job, measured, *programs);
  if (!profiles.empty()) plan.profile = engine::to_string(*job, profiles);
  if (const std::string note = engine::left_out(profiles); !note.empty()) plan.profile += note + "\n";
  if (!unmeasured.empty())
    plan.profile = fmt::format("units are not measured, their costs are modelled: {}\n", unmeasured);
  return plan;
}

}  // namespace loom
