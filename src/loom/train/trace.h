// Traces: what all ranks did in one step, brought together on rank 0 and put on one clock. Of a rank only
// times travel; what an instruction is, rank 0 knows from the program of the rank's stage.
//
// Clocks. Ranks read their hosts' steady clocks, which have nothing in common. Rank 0 asks each rank for its
// time repeatedly, and takes the answer that came back soonest. The rank read its clock at some moment of
// that round trip. So the middle of the round trip is wrong by half of it at most (Cristian, "Probabilistic
// clock synchronization", 1989). The trace states that half. Clocks that run at different rates add their
// difference over the time since the step, some 10 µs a second.
//
// Thread safety: values; gathering is a collective.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace loom::train {

/// Sums of one rank's step. Only doubles: it travels as it is.
struct RankTotals {
  double begin_us = 0;        // of the step, after rank 0's; on its own clock until it is gathered
  double clock_error_us = 0;  // by which begin_us may be wrong; negative: the rank was not asked for its time
  double step_us = 0;
  double compute_us = 0;  // on lane 0, without norm and mean loss, in which ranks meet
  double exposed_us = 0;  // waiting for communication, or the tier
  double bubble = 0;      // part of the time until the norm is known in which the rank does not compute
  double peak_flops = 0;  // matrix products that it reached at the beginning of the run, per second
  double planned_bytes = 0, scratch_bytes = 0,
         process_bytes = 0;  // the arena; threads' scratch; the process, measured
};

struct RankTrace {
  int rank = 0;
  int place = 0;
  program::Coordinates at;
  RankTotals totals;
  /// Of each instruction of its stage's program, in µs from the rank's own beginning; empty beyond the limit.
  /// What is not on lane 0 reaches to the moment when the rank has waited for it: it may have been over
  /// earlier.
  std::vector<program::Interval> intervals;
};

struct Trace {
  int64_t step = 0;              // counts from 0
  std::vector<RankTrace> ranks;  // all of them, in their order
};

/// All but what the engine and the trainer know besides: clock, peak and memory.
RankTotals totals_of(const program::Program& program, std::span<const program::Interval> timeline,
                     const engine::StepResult& result);

/// `timeline` as the executor leaves it, where communication ends when it is issued, made to reach to where
/// it is waited for.
std::vector<program::Interval> until_waited(const program::Program& program,
                                            std::span<const program::Interval> timeline);

/// The totals of all ranks, and timelines of the first `most_ranks`, of the engine's last step; on rank 0. A
/// collective. Errors: communication_error.
Result<Trace> gather_trace(const engine::Engine& engine, const engine::Groups& groups, const RankTotals& own,
                           int most_ranks);

}  // namespace loom::train
