// The simulator: executes the very plans that the engine executes, of all ranks, on a modelled machine.
// Discrete events; no bytes are moved and no real time passes. The same inputs give the same result, bit for
// bit.
//
// What is modelled
//   lanes, dependencies, tags          exactly as plan.h defines them.
//   a rank's CPU                       one, first come first served: sending and filing messages, copies,
//   reductions,
//                                      and the bytes themselves where Link::by_cpu. Slower where ranks share
//                                      cores.
//   a node's network interfaces        one server out and one in, shared by the node's ranks, full duplex. A
//   put may
//                                      stream through: sender, egress, ingress and receiver work on it at the
//                                      same time, and each is taken for bytes / its own rate.
//                                      Slower where messages of several nodes cross (Machine::crossing).
// What is not: switches (the network between interfaces has no limit), a node's total memory bandwidth,
// chance.
//
// State is proportional to the plans' steps. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/cost.h"
#include "plan/plan.h"
#include "topology/layout.h"

namespace weft::model {

using plan::kNoStep;

/// When a step ran, and because of what.
struct StepTimes {
  double ready_us = 0;      // everything it waited for had happened
  double start_us = 0;      // it got its CPU (a wait: = ready)
  double end_us = 0;        // put: the source may be reused; wait: the data is there
  int32_t cause_rank = -1;  // the step that made it ready, or sent what a wait got; -1: nothing, time 0
  plan::StepId cause_step = kNoStep;
};

struct Traffic {
  uint64_t messages = 0;  // puts and signals
  uint64_t bytes = 0;     // payload of puts
};

/// The chain of steps that determined the total, split by what the time was for. The parts add up to
/// total_us.
struct CriticalPath {
  double intra_us = 0;  // messages inside a node, from their start until they were filed
  double inter_us = 0;  // messages between nodes
  double copy_us = 0;
  double reduce_us = 0;
  double queued_us = 0;  // ready, but its rank's CPU did something else
  int messages = 0;      // hops on the chain
};

struct Simulation {
  double total_us = 0;
  std::vector<double> finish_us;  // of each rank
  Traffic intra, inter;
  // Only with SimulateOptions::keep_steps:
  CriticalPath critical;
  std::vector<std::vector<StepTimes>> steps;  // [rank][step]
};

struct SimulateOptions {
  bool keep_steps = false;
  /// Bytes that decide between cached and large rates, for plans that stand for larger ones; 0 = each rank's
  /// own buffers.
  uint64_t working_set_bytes = 0;
};

/// Runs plans[r] as rank r. Errors: invalid_argument if there are not as many plans as ranks; internal_error
/// that names rank and step if the plans do not end.
Result<Simulation> simulate(std::span<const plan::Plan> plans, const topology::Layout& layout,
                            const Machine& machine, const plan::Limits& limits,
                            const SimulateOptions& options = {});

/// "412.0 µs: 380.1 between nodes, …", a line; needs keep_steps.
std::string to_string(const CriticalPath& path);

}  // namespace weft::model
