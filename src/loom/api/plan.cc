// A plan: the program of a step, its memory and its forecast.
#include "loom/plan.h"

#include <algorithm>

#include "program/generate.h"
#include "program/memory.h"
#include "program/simulate.h"
#include "program/verify.h"
#include "text/dataset.h"
#include "train/breakdown.h"
#include "train/config.h"
#include "train/machine.h"

namespace loom {
namespace {

Result<model::ModelSpec> model_of(const train::Config& config, int64_t vocabulary) {
  if (vocabulary == 0 && config.model.vocabulary == 0 && config.model.from.empty()) {
    const auto data = text::TokenDataset::open(config.data.folder, text::Split::train);
    LOOM_TRY(data.status().in("the vocabulary comes from the dataset; --vocabulary does without"));
    vocabulary = (*data)->vocabulary_size();
  }
  return train::spec_of(config, vocabulary);
}

Status check(const Cluster& cluster) {
  if (cluster.ranks < 1 || cluster.ranks_per_node < 1)
    return fail(Code::invalid_argument, "a cluster of {} ranks, {} a node; both must be at least 1",
                cluster.ranks, cluster.ranks_per_node);
  if (cluster.flops >= 0 && cluster.memory_bandwidth > 0 && cluster.intra_bandwidth > 0 &&
      cluster.inter_bandwidth > 0 && cluster.intra_latency_us >= 0 && cluster.inter_latency_us >= 0)
    return {};
  return fail(Code::invalid_argument,
              "a cluster's bandwidths must be above 0, its rate and latencies not negative");
}

program::Machine machine_of(const Cluster& cluster, const train::Config& config) {
  program::Machine machine;
  machine.ranks_per_node = cluster.ranks_per_node;
  machine.flops = cluster.flops > 0
                      ? cluster.flops
                      : train::measured_peak(std::max<int>(1, static_cast<int>(config.parallel.threads)));
  machine.memory_bandwidth = cluster.memory_bandwidth;
  machine.intra_bandwidth = cluster.intra_bandwidth;
  machine.inter_bandwidth = cluster.inter_bandwidth;
  machine.intra_latency_us = cluster.intra_latency_us;
  machine.inter_latency_us = cluster.inter_latency_us;
  return machine;
}

}  // namespace

Result<Plan> plan(const Config& config, const Cluster& cluster, int64_t vocabulary) {
  LOOM_TRY(check(cluster));
  const Result<model::ModelSpec> spec = model_of(config.values(), vocabulary);
  LOOM_TRY(spec.status());
  const Result<program::Job> job = train::job_of(config.values(), *spec, cluster.ranks);
  LOOM_TRY(job.status());
  const Result<program::Program> program = program::make_program(*job);
  LOOM_TRY(program.status());
  const program::MemoryPlan memory = program::plan_memory(*program);
  LOOM_TRY(program::verify(*job, *program, memory));
  const program::Machine machine = machine_of(cluster, config.values());
  const program::Forecast forecast = program::simulate(*job, *program, machine);

  Plan plan;
  plan.parameters = model::parameter_count(model::units_of(*spec));
  plan.ranks = job->world;
  plan.degree = job->degree;
  plan.microbatches = job->microbatches;
  plan.batch = job->batch;
  plan.tokens = job->tokens;
  plan.instructions = static_cast<int64_t>(program->instructions.size());
  plan.buffers = static_cast<int64_t>(program->buffers.size());
  for (int category = 0; category < program::kCategories; ++category)
    plan.memory.push_back({program::category_name(static_cast<program::Category>(category)),
                           static_cast<double>(memory.peak[category])});
  plan.peak_bytes = memory.peak_bytes;
  plan.peak_instruction = memory.peak_instruction;
  plan.arena_bytes = memory.bytes;
  plan.tier_bytes = memory.tier_bytes;
  plan.flops = machine.flops;
  for (const auto& [name, us] : train::breakdown_of(*program, forecast).parts())
    plan.times.push_back({name, us});
  plan.step_us = forecast.step_us;
  plan.compute_us = forecast.compute_us;
  plan.exposed_us = forecast.exposed_us;
  plan.tokens_per_second = job->tokens_per_step() / forecast.step_us * 1e6;
  plan.program = program::to_string(*program);
  return plan;
}

}  // namespace loom
