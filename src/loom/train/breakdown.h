// Breakdowns: where the time of a step goes, by kind of instruction; of a forecast and of what was measured
// in the same words, so that they can stand side by side.
//
// Thread safety: values and pure functions.
#pragma once

#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "program/program.h"
#include "program/simulate.h"

namespace loom::train {

struct Breakdown {
  std::array<double, program::kOps> us{};  // computing, issuing communication, and waiting for it
  double waiting_us = 0;                   // of these; -1: of a GPU, where it is not known
  double data_us = 0;                      // reading the batch, before the instructions
  double step_us = 0;
  double bubble = -1;  // part of the time until the norm in which ranks do not compute; -1: no pipeline

  /// Names and µs of what takes any time: "data", kinds of instructions, the optimizer's being "optimizer",
  /// and "outside", what of the step is in none of these.
  std::vector<std::pair<std::string, double>> parts() const;
};

/// `intervals` has one entry for each instruction. In a measurement, that of a collective is the time of its
/// call. In a forecast (`collectives_apart`) it is the time in flight, which takes no time of the step; the
/// call takes `call_us`.
///
/// The time between an instruction's end and the beginning of the next one is waiting. It is charged to the
/// kind that is waited for: the youngest communication that the next instruction comes after, or, where the
/// stages of a pipeline meet, the norm. Ranks meet in the norm and the mean loss:
/// `met_us` of their measured time is waiting, too. `held_us` is as in program::Forecast.
Breakdown breakdown_of(const program::Program& program, std::span<const program::Interval> intervals,
                       double step_us, bool collectives_apart, double met_us = 0, double call_us = 0,
                       std::span<const double> held_us = {});
Breakdown breakdown_of(const program::Program& program, const program::Forecast& forecast);

/// Means over steps, without the first: it touches memory and fills caches for the others. Of one step alone
/// it is that step.
class MeanBreakdown {
 public:
  void add(const Breakdown& step);
  Breakdown mean() const;
  int64_t steps() const { return steps_; }

 private:
  Breakdown first_, sum_;
  int64_t steps_ = 0;
};

}  // namespace loom::train
