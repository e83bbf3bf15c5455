// The simulator of programs: predicts the time of a step on a machine that may not exist. Computing takes
// the time of its kernels (compute_cost.h), communication that of its links (collective_cost.h). A call that
// issues communication holds the rank (the overhead o of LogP: Culler et al., "LogP: Towards a Realistic
// Model of Parallel Computation", 1993). Stages of a pipeline are simulated together, in the order of time.
//
// Operations of one lane of a program are carried out in order. Lanes, and the two directions of a pipeline,
// are in flight together and share their links equally. The links are a node's egress and ingress, a rank's
// link to others of its node, and its link to the tier. A transfer inside a node has a link of its own.
//
// Thread safety: pure functions.
#pragma once

#include <vector>

#include "program/compute_cost.h"
#include "program/job.h"
#include "program/machine.h"
#include "program/program.h"

namespace loom::program {

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
  /// Of each instruction, that the rank waits at its call because the engine hides less than all of it; empty
  /// where everything may be hidden.
  std::vector<double> held_us = {};
  ComputeTime computing = {};  // of compute_us, without sums and the optimizer
};

/// Of all stages of a pipeline.
struct PipelineForecast {
  std::vector<Forecast> stages;
  double step_us = 0;
  /// Part of the time from the beginning to the norm, where all stages meet, in which a stage does not
  /// compute; the mean over the stages.
  double bubble = 0;
};

/// All stages together: a transfer begins when both sides have issued it. The programs must be verified.
/// Ranks of data rank 0 stand for all others.
PipelineForecast simulate(const Job& job, const std::vector<Program>& programs, const Machine& machine);
/// A job of one stage.
Forecast simulate(const Job& job, const Program& program, const Machine& machine);

}  // namespace loom::program
