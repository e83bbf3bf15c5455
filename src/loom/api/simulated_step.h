// A step of a config on a cluster, simulated: what plans, searches for what fits and what-ifs are made of.
//
// Thread safety: pure functions.
#pragma once

#include "api/machine_of.h"
#include "engine/profile.h"
#include "program/memory.h"
#include "program/simulate.h"

namespace loom {

/// A step of a job, of all stages.
struct SimulatedStep {
  program::Job job;
  std::vector<program::Program> programs;
  std::vector<program::MemoryPlan> memory;
  program::Machine machine;
  std::shared_ptr<Unplanned> unplanned = std::make_shared<Unplanned>();  // that the machine's plans note
  program::PipelineForecast forecast;
  DeviceMemory device;
};

/// What is not as the cluster's description has it: parts of what it says, in (0, 1].
struct Disturbance {
  double computing = 1;   // of the rate of a rank's device
  double interfaces = 1;  // of the interfaces of each node
};

/// What else a step is simulated with.
struct StepBasis {
  const model::ModelSpec& spec;
  const Cluster& cluster;
  const Assumptions& assumptions;
  double product_flops = 0;  // measured; 0: as the cluster says
  std::vector<engine::UnitProfile> profiles = {};
  Disturbance disturbance = {};
};

/// Programs and memory, without the time. Errors: as plan().
Result<SimulatedStep> lay_out_step(const train::Config& config, const StepBasis& basis);
/// The time of a step that is laid out. Errors: as plan().
Status forecast_step(const train::Config& config, const StepBasis& basis, SimulatedStep& step);
/// Both.
Result<SimulatedStep> simulate_step(const train::Config& config, const StepBasis& basis);

}  // namespace loom
