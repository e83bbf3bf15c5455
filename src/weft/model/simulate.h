// The simulator: executes the very plans that the engine executes, of all ranks, on a modelled machine.
// Discrete events; no bytes are moved and no real time passes. The same inputs give the same result, bit for
// bit.
//
// What is modelled
//   lanes, dependencies, tags   exactly as plan.h defines them.
//   a rank's CPU                one, first come first served: sending and filing messages, copies and
//                               reductions, and the bytes themselves where Link::by_cpu. Messages for a later
//                               call of a streak it takes in when it begins that, or while it waits.
//   a node's cores              where it has fewer than ranks, these take turns on them (model/cores.h).
//                               Nodes with less than a core each share all cores. Where there are too many
//                               ranks for that, or one node stands for all, CPUs are slower instead.
//   a rank's engines            where it has some, they copy and reduce instead. What they read from
//                               node-mates takes the reader's way in and the owner's way out, one at a time.
//   a node's memory             where its rate is stated: what its ranks copy and reduce outside their caches
//                               takes turns.
//   a node's interfaces         each rail is one server out and one in, full duplex, shared by the ranks. A
//                               put streams through: sender, egress, ingress and receiver work on it at the
//                               same time, each for bytes / its own rate. Short puts take one rail, in turn;
//                               long ones are cut into stripes over all that are up. Slower where messages
//                               of several nodes cross (Machine::crossing).
//   switches                    none by default; else a leaf's way to the core and back (conditions.h).
// What is not: lost packets, the order in which packets of two streams take turns, chance.
//
// State is proportional to the plans' steps. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/conditions.h"
#include "model/cost.h"
#include "model/symmetry.h"
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
  double total_us = 0;  // until the last rank has done its last call
  /// What a call takes in a long streak: of the slowest rank, from half of the calls on. The others wait for
  /// it once the buffers between them are full. Where ranks take turns on cores: at least the work of all
  /// ranks of the busiest core. Of one call alone: total_us.
  double call_us = 0;
  std::vector<double> finish_us;  // of each rank that was simulated
  Traffic intra, inter;           // of all ranks
  double longest_wait_us = 0;     // that something waited because the interface of its receiver was taken
  uint64_t events = 0;            // handled
  // Only with SimulateOptions::keep_steps:
  CriticalPath critical;
  std::vector<std::vector<StepTimes>> steps;  // [rank][step]
};

inline constexpr int kMostCalls = 255;
/// A streak long enough to show what a call takes in it (Simulation::call_us).
inline constexpr int kStreakCalls = 8;
/// … of this request: where ranks take turns, a root does in its turn all that there is room for between two
/// ranks, and many calls share the price of a turn.
int streak_calls(const plan::Request& request, const topology::Layout& layout, const Machine& machine,
                 const plan::Limits& limits);

struct SimulateOptions {
  bool keep_steps = false;  // of one call
  /// Back-to-back calls, in [1, kMostCalls]: every rank begins the next one as soon as it has done its part
  /// of the one before, however far the others are. What it sends them meanwhile waits for them: that buffers
  /// have an end is not modelled.
  int calls = 1;
  /// Ranks have their input where their part of the output is, so nothing is copied from one to the other.
  /// Not of AlltoAll, whose plans say themselves what they do then.
  bool in_place = false;
  /// Bytes that decide between cached and large rates, for plans that stand for larger ones; 0 = each rank's
  /// own buffers.
  uint64_t working_set_bytes = 0;
  /// Not none: `plans` are those of node 0, and all other nodes' are these, moved (model/symmetry.h).
  Symmetry symmetry = Symmetry::none;
  /// With a symmetry, and conditions under which all nodes are alike: executes node 0 for all of them.
  /// Where nodes share cores nobody takes turns then.
  bool one_node = false;
  Conditions conditions = {};  // must fit the cluster, as check_cluster says
};

/// Runs plans[r] as rank r. Errors: invalid_argument if there are not as many plans as ranks (of node 0, with
/// a symmetry), or what is asked for does not go together; internal_error that names rank and step if the
/// plans do not end.
Result<Simulation> simulate(std::span<const plan::Plan> plans, const topology::Layout& layout,
                            const Machine& machine, const plan::Limits& limits,
                            const SimulateOptions& options = {});

/// "412.0 µs: 380.1 between nodes, …", a line; needs keep_steps.
std::string to_string(const CriticalPath& path);

}  // namespace weft::model
