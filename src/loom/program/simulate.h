// The simulator of programs: how long a step takes on a machine that need not be there. Computing takes its
// floating-point operations at a rate; collectives take MiCS's volumes at the bandwidth of the slowest link
// that they cross, one after the other for each link, plus a latency for each message of the hops; a call
// that issues them holds the rank (the overhead o of LogP: Culler et al., "LogP: Towards a Realistic Model of
// Parallel Computation", 1993). Stages of a pipeline are simulated together, and what they send to each other
// shares a node's link with collectives.
//
// Thread safety: pure functions.
#pragma once

#include <vector>

#include "program/job.h"
#include "program/program.h"

namespace loom::program {

/// A machine as Loom sees it: ranks on nodes, what a rank computes, what links carry.
struct Machine {
  int ranks_per_node = 1;
  double flops = 1e11;             // of matrix products, for a rank, per second
  double memory_bandwidth = 1e10;  // of a rank, bytes/s: optimizer and sums
  double intra_bandwidth = 1e10;   // of a rank to others of its node, bytes/s
  double inter_bandwidth = 1e9;    // of a node to others, bytes/s; its ranks share it
  double intra_latency_us = 2;
  double inter_latency_us = 20;
  double tier_bandwidth = 1e9;  // of a rank to the file of offloaded activations, bytes/s
  double call_us = 0;           // that a call which issues communication holds its caller
  /// Measured times of one microbatch through each unit, forward and backward, by one rank (profile_units());
  /// empty: by `flops`.
  std::vector<double> unit_us = {};
};

struct Interval {
  double begin_us = 0;
  double end_us = 0;
};

/// Of one rank.
struct Forecast {
  double step_us = 0;
  double compute_us = 0;            // everything on lane 0
  double exposed_us = 0;            // lane 0 waiting for others
  std::vector<Interval> intervals;  // of each instruction
  double call_us = 0;               // that each call for what is on another lane holds the rank
};

/// Of all stages of a pipeline.
struct PipelineForecast {
  std::vector<Forecast> stages;
  double step_us = 0;
  /// Part of the time from the beginning to the norm, where all stages meet, in which a stage does not
  /// compute; the mean over the stages.
  double bubble = 0;
};

/// Bytes that a rank sends to others in a collective over `ranks` ranks with `bytes` in all: (n-1)/n of them
/// for a gather or scatter, twice that for an AllReduce.
double volume(Op op, double bytes, int ranks);

/// All stages together: a transfer begins when both sides have issued it. The programs must be verified.
/// Ranks of data rank 0 stand for all others.
PipelineForecast simulate(const Job& job, const std::vector<Program>& programs, const Machine& machine);
/// A job of one stage.
Forecast simulate(const Job& job, const Program& program, const Machine& machine);

/// Time of one forward or backward pass through a unit, of a microbatch. Of measured times a backward pass
/// has two parts for each forward pass's one.
double compute_us(const Job& job, const Machine& machine, int unit, Op op);
/// … of an instruction, which may be a piece of one.
double compute_us(const Job& job, const Machine& machine, const Instruction& instruction);

}  // namespace loom::program
