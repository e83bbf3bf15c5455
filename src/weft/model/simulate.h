// The simulator: executes the plans of all ranks, the same plans that the engine executes, on a modelled
// machine. It handles discrete events. No bytes are moved and no real time passes. Equal inputs give equal
// results, bit for bit.
//
// What is modelled
//   lanes, dependencies, tags   exactly as plan.h defines them.
//   a rank's CPU                one, first come first served: sending and filing messages, copies and
//                               reductions, and moving the bytes where Link::by_cpu. It files messages for a
//                               later call of a streak when it begins that call, or while it waits.
//   a node's cores              if ranks outnumber them, ranks take turns (model/cores.h). Nodes
//                               with less than a core each share all cores. If ranks are too many, or one
//                               node stands for all, CPUs are slower instead.
//   a rank's engines            if it has some, they copy and reduce instead. A read from a local peer takes
//                               the reader's link in and the owner's link out, one read at a time.
//   a node's memory             if its rate is stated: copies and reductions outside the caches take turns.
//   a node's interfaces         each rail is one server out and one in, full duplex, shared by the ranks. A
//                               put streams through: sender, egress, ingress and receiver work on it at the
//                               same time, each for bytes / its own rate. Short puts take one rail, in turn;
//                               long ones are cut into stripes over all that are up. Slower where messages
//                               of several nodes cross (Machine::crossing).
//   switches                    none by default; else a leaf's path to the core and back (conditions.h).
// Lost packets, the order of packets of two streams, and chance are not modelled.
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
  /// Time of a call in a long streak, of the slowest rank, from half of the calls on. The other ranks wait
  /// for it once the buffers between them are full. If ranks take turns on cores, it is at least the work of
  /// all ranks of the busiest core. Of one call alone: total_us.
  double call_us = 0;
  std::vector<double> finish_us;  // of each rank that was simulated
  Traffic intra, inter;           // of all ranks
  double longest_wait_us = 0;     // for the interface of a receiver
  uint64_t events = 0;            // handled
  // Only with SimulateOptions::keep_steps:
  CriticalPath critical;
  std::vector<std::vector<StepTimes>> steps;  // [rank][step]
};

inline constexpr int kMostCalls = 255;
/// The length of a streak that shows the time of a call in it (Simulation::call_us).
inline constexpr int kStreakCalls = 8;
/// The same for this request. If ranks take turns, a root does as many calls in a turn as there is room for
/// between two ranks, and many calls share the cost of a turn.
int streak_calls(const plan::Request& request, const topology::Layout& layout, const Machine& machine,
                 const plan::Limits& limits);

struct SimulateOptions {
  bool keep_steps = false;  // of one call
  /// Back-to-back calls, in [1, kMostCalls]: every rank begins the next call as soon as its part of the
  /// current one is done, however far the others are. What it sends waits for them; buffers have no end in
  /// the model.
  int calls = 1;
  /// Every rank's input is at its part of the output, so nothing is copied. AlltoAll ignores it: its plans
  /// say what they do in place.
  bool in_place = false;
  /// The bytes that decide between cached and large rates, for plans that stand for larger ones. 0 = each
  /// rank's own buffers.
  uint64_t working_set_bytes = 0;
  /// Not none: `plans` are those of node 0; the plans of other nodes are these, moved (model/symmetry.h).
  Symmetry symmetry = Symmetry::none;
  /// With a symmetry, and conditions that are alike for all nodes: executes node 0 for all of them. No ranks
  /// take turns then on shared cores.
  bool one_node = false;
  Conditions conditions = {};  // must fit the cluster, as check_cluster says
};

/// Runs plans[r] as rank r. Errors: invalid_argument if the number of plans is not that of the ranks (of node
/// 0, with a symmetry), or options exclude each other; internal_error that names rank and step if the plans
/// do not end.
Result<Simulation> simulate(std::span<const plan::Plan> plans, const topology::Layout& layout,
                            const Machine& machine, const plan::Limits& limits,
                            const SimulateOptions& options = {});

/// "412.0 µs: 380.1 between nodes, …", a line; needs keep_steps.
std::string to_string(const CriticalPath& path);

}  // namespace weft::model
