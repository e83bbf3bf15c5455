#include "api/simulated_step.h"

#include <algorithm>

#include "engine/tier.h"
#include "program/generate.h"
#include "train/gpu_memory.h"
#include "train/machine.h"

namespace loom {
namespace {

/// The cluster's tier. Of a machine that has no description it is this one's disk.
Status take_tier(const train::Config& config, const Cluster& cluster, program::Machine& machine) {
  if (cluster.tier_bandwidth > 0) return {};
  if (!cluster.name.empty())
    return fail(Code::invalid_argument,
                "activations are offloaded (parallel.activation_offloading), but the cluster {} has no "
                "tier.gb_per_s, what a rank reaches there and back: the description must have it, or --tier "
                "says it",
                cluster.name);
  const Result<double> measured =
      train::measured_tier_bandwidth(config.parallel.offload_folder, train::kTierBytes);
  LOOM_TRY(measured.status());
  machine.tier_bandwidth = *measured;
  return {};
}

DeviceMemory device_memory(const program::Job& job, const std::vector<program::MemoryPlan>& memory,
                           const program::Machine& machine, const Cluster& cluster) {
  DeviceMemory device;
  device.device_bytes = cluster.compute.memory_bytes;
  device.scores_bytes = program::score_bytes(job, machine.device.attention);
  for (const program::MemoryPlan& plan : memory)
    device.needed_bytes =
        std::max(device.needed_bytes, static_cast<double>(plan.bytes) + device.scores_bytes);
  return device;
}

/// The job's programs and their memory.
Status take_job(const program::Job& job, const Cluster& cluster, SimulatedStep& step) {
  step.job = job;
  Result<std::vector<program::Program>> programs = program::make_programs(step.job);
  LOOM_TRY(programs.status());
  step.programs = programs.take();
  step.memory.clear();
  for (const program::Program& program : step.programs) step.memory.push_back(program::plan_memory(program));
  step.device = device_memory(step.job, step.memory, step.machine, cluster);
  return {};
}

/// A device with a memory of its own is a GPU.
bool has_gpus(const Cluster& cluster) { return cluster.compute.memory_bytes > 0; }

/// As training on GPUs does, whose memory holds the job.
Status take_head_rows(const Cluster& cluster, SimulatedStep& step) {
  if (!has_gpus(cluster) || !step.device.fits()) return {};
  const Result<program::Job> larger = train::with_more_head_rows(
      step.job, static_cast<int64_t>(step.device.device_bytes - step.device.scores_bytes));
  LOOM_TRY(larger.status());
  return larger->table == step.job.table ? Status() : take_job(*larger, cluster, step);
}

}  // namespace

Result<SimulatedStep> lay_out_step(const train::Config& config, const StepBasis& basis) {
  SimulatedStep step;
  const Result<program::Job> job =
      train::job_of(config, basis.spec, basis.cluster.ranks, engine::measures_of(basis.profiles),
                    has_gpus(basis.cluster) ? train::kGpuTable : model::TableTraits());
  LOOM_TRY(job.status());
  step.machine =
      machine_of(basis.cluster, basis.assumptions, basis.product_flops, job->precision, step.unplanned);
  LOOM_TRY(take_job(*job, basis.cluster, step));
  return step;
}

Status forecast_step(const train::Config& config, const StepBasis& basis, SimulatedStep& step) {
  program::Machine& machine = step.machine;
  machine.unit_us = engine::times_of(basis.profiles);
  machine.interfaces = basis.disturbance.interfaces;
  machine.flops *= basis.disturbance.computing;
  machine.memory_bandwidth *= basis.disturbance.computing;
  for (double* rate :
       {&machine.device.fused_flops, &machine.device.batched_flops, &machine.device.pass_bandwidth})
    *rate *= basis.disturbance.computing;
  if (step.job.offload) LOOM_TRY(take_tier(config, basis.cluster, machine));
  LOOM_TRY(take_head_rows(basis.cluster, step));
  step.forecast = program::simulate(step.job, step.programs, machine);
  return {};
}

Result<SimulatedStep> simulate_step(const train::Config& config, const StepBasis& basis) {
  Result<SimulatedStep> step = lay_out_step(config, basis);
  LOOM_TRY(step.status());
  LOOM_TRY(forecast_step(config, basis, *step));
  return step;
}

}  // namespace loom
