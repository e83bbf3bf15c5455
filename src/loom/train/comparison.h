// Comparisons: what was predicted of a run beside what it was, time by kind of instruction and memory by
// category. For the end of the log, for JSON Lines and for the report.
//
// Thread safety: values and pure functions.
#pragma once

#include <optional>
#include <string>

#include "train/breakdown.h"
#include "train/trainer.h"

namespace loom::train {

struct Comparison {
  Breakdown predicted, measured;  // the first is empty without a forecast
  int64_t steps = 0;              // that were measured
  program::MemoryPlan planned;    // of a step
  int64_t scratch_bytes = 0;      // outside the plan: of the threads, or of a GPU's kernels and products
  bool on_gpu = false;
  int64_t measured_bytes = 0;  // of the process, at most; 0: not known
  // Of all stages:
  std::vector<program::Program> programs;
  std::vector<program::MemoryPlan> memory;
  program::PipelineForecast forecast;

  /// Whether there is one.
  bool forecasts() const { return !forecast.stages.empty(); }
};

/// A run that has made a step, and the machine as measured before; there is no forecast where it was not.
Comparison compare(const Trainer& trainer, const std::optional<program::Machine>& machine);
/// What is measured of the same run, as it is now; what was predicted stays.
void measure_again(const Trainer& trainer, Comparison& comparison);

/// Two small tables.
std::string to_text(const Comparison& comparison);
/// One JSON object, {"predicted": {…}, "measured": {…}}, without the end of the line.
std::string json_line(const Comparison& comparison);
std::string to_html(const Comparison& comparison);

}  // namespace loom::train
