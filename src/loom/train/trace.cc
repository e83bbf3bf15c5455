// Round trips, then one gather of sums and a message of times from each rank.
#include "train/trace.h"

#include <algorithm>
#include <chrono>

#include "program/generate.h"

namespace loom::train {
namespace {

constexpr int kRoundTrips = 16;

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct Clock {
  double ahead_us = 0;   // of rank 0's
  double error_us = -1;  // not known
};

/// Rank 0 learns the clock of `rank`, which answers.
Status compare_clocks(const engine::Groups& groups, int rank, Clock& clock) {
  double shortest = 0;
  for (int trip = 0; trip < kRoundTrips; ++trip) {
    double theirs = 0;
    const std::span<double> told(&theirs, 1);
    if (groups.rank() == rank) {
      LOOM_TRY(groups.receive(std::as_writable_bytes(told), 0));
      theirs = now_us();
      LOOM_TRY(groups.send(std::as_bytes(told), 0));
    } else if (groups.rank() == 0) {
      const double begin = now_us();
      LOOM_TRY(groups.send(std::as_bytes(told), rank));
      LOOM_TRY(groups.receive(std::as_writable_bytes(told), rank));
      const double end = now_us();
      if (trip > 0 && end - begin >= shortest) continue;
      shortest = end - begin;
      clock = {theirs - (begin + end) / 2, shortest / 2};
    }
  }
  return {};
}

}  // namespace

RankTotals totals_of(const program::Program& program, std::span<const program::Interval> timeline,
                     const engine::StepResult& result) {
  RankTotals totals;
  totals.begin_us = result.begin_us;
  totals.step_us = result.seconds * 1e6;
  totals.exposed_us = result.exposed_seconds * 1e6;
  for (size_t i = 0; i < timeline.size(); ++i) {
    if (program.instructions[i].lane != 0) continue;
    if (program.instructions[i].op == program::Op::norm)
      totals.bubble = std::max(0.0, 1 - totals.compute_us / timeline[i].end_us);
    if (!program::is_meeting(program.instructions[i].op))
      totals.compute_us += timeline[i].end_us - timeline[i].begin_us;
  }
  return totals;
}

std::vector<program::Interval> until_waited(const program::Program& program,
                                            std::span<const program::Interval> timeline) {
  std::vector<program::Interval> intervals(timeline.begin(), timeline.end());
  std::vector<bool> waited(intervals.size());
  double end = 0;  // of the step
  for (size_t i = 0; i < intervals.size(); ++i) {
    end = std::max(end, intervals[i].end_us);
    for (const int before : program.instructions[i].after) {
      const size_t b = static_cast<size_t>(before);
      waited[b] = true;
      intervals[b].end_us = std::max(intervals[b].end_us, timeline[i].begin_us);
    }
  }
  for (size_t i = 0; i < intervals.size(); ++i)  // what the end of the step waits for
    if (program.instructions[i].lane != 0 && !waited[i]) intervals[i].end_us = end;
  return intervals;
}

Result<Trace> gather_trace(const engine::Engine& engine, const engine::Groups& groups, const RankTotals& own,
                           int most_ranks) {
  const int ranks = groups.ranks(), self = groups.rank(), traced = std::min(ranks, most_ranks);
  std::vector<Clock> clocks(static_cast<size_t>(ranks));
  clocks[0].error_us = 0;
  for (int rank = 1; rank < traced; ++rank)
    if (self == 0 || self == rank) LOOM_TRY(compare_clocks(groups, rank, clocks[static_cast<size_t>(rank)]));

  const Result<std::vector<RankTotals>> totals = groups.gather(own);
  LOOM_TRY(totals.status());
  const std::vector<program::Interval> intervals = until_waited(engine.training(), engine.timeline());
  if (self != 0) {
    if (self < traced) LOOM_TRY(groups.send(std::as_bytes(std::span(intervals)), 0));
    return Trace{};
  }
  const Result<std::vector<program::Program>> programs = program::make_programs(engine.job());
  LOOM_TRY(programs.status());
  Trace trace;
  for (int rank = 0; rank < ranks; ++rank) {
    RankTrace one;
    one.rank = rank;
    one.place = groups.place_of(rank);
    one.at = groups.layout().coordinates(one.place);
    one.totals = (*totals)[static_cast<size_t>(rank)];
    const Clock& clock = clocks[static_cast<size_t>(rank)];
    one.totals.begin_us =
        clock.error_us < 0 ? 0 : one.totals.begin_us - clock.ahead_us - totals->front().begin_us;
    one.totals.clock_error_us = clock.error_us;
    if (rank == 0) {
      one.intervals = intervals;
    } else if (rank < traced) {
      one.intervals.resize((*programs)[static_cast<size_t>(one.at.stage)].instructions.size());
      LOOM_TRY(groups.receive(std::as_writable_bytes(std::span(one.intervals)), rank));
    }
    trace.ranks.push_back(std::move(one));
  }
  return trace;
}

}  // namespace loom::train
