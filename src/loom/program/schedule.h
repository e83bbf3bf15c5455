// Schedules: the order in which a stage of a pipeline computes its forward and backward passes. Each is a
// generator of a plain list, one file each. The list determines what is sent and received.
//
// P stages, m microbatches, v virtual stages a rank. All stages compute the same number of passes. So the
// bubble, the time that is lost to fill and drain the pipeline, is a fixed share of a step: (P-1)/(m+P-1)
// for simple and 1F1B, (P-1)/(v·m+P-1) for interleaved (Narayanan et al., "Efficient Large-Scale Language
// Model Training on GPU Clusters Using Megatron-LM", 2021).
//
// In every schedule a part computes its backward passes in the order of the microbatches, which is the order
// in which gradients are added.
//
// Thread safety: pure functions.
#pragma once

#include <vector>

#include "program/job.h"

namespace loom::program {

/// One pass of one microbatch through one of the stage's parts.
struct Pass {
  bool forward = true;
  int part = 0;  // number among all parts of the model
  int microbatch = 0;
  bool operator==(const Pass&) const = default;
};

/// All forward, then all backward; at most `active` microbatches at a time.
std::vector<Pass> simple_schedule(const Job& job, int stage);

/// One forward, one backward: after P-1-stage microbatches of warm-up each forward pass is followed by the
/// backward pass of the oldest microbatch, so that a stage holds at most P-stage microbatches' activations.
/// With active_microbatches A below P it is A at most; above P, 1 + ⌈(P-1-stage) · (A-1) / (P-1)⌉: spare
/// microbatches, for which stages go on while transfers take their time.
std::vector<Pass> one_f_one_b_schedule(const Job& job, int stage);

/// 1F1B over v parts a rank, P microbatches through one part before the next: the bubble is v times smaller,
/// for v times the transfers. Microbatches must be a multiple of P.
std::vector<Pass> interleaved_schedule(const Job& job, int stage);

/// The job's schedule. The job must be right.
std::vector<Pass> schedule_of(const Job& job, int stage);

/// The most microbatches that a stage has begun and not finished.
int most_active(const Job& job);

/// (P-1)/(v·m+P-1): the bubble of a pipeline of equal stages, with transfers that take no time.
double ideal_bubble(const Job& job);

const char* schedule_name(Schedule schedule);

}  // namespace loom::program
