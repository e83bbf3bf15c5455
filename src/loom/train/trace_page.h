// A step's trace as part of a page, and as JSON. It has the lanes of all ranks as measured, on one clock.
// Beneath them, on the same scale, are the lanes that the simulator predicts. It also has sums, and the
// memory of each rank.
//
// Thread safety: pure functions.
#pragma once

#include <span>
#include <string>

#include "format/json_file.h"
#include "program/memory.h"
#include "program/simulate.h"
#include "train/trace.h"

namespace loom::train {

/// What the step was, and what was expected of it. Programs, memory and forecast are of all stages, in their
/// order.
struct TraceContext {
  const program::Job& job;
  double parameters;
  std::span<const program::Program> programs;
  std::span<const program::MemoryPlan> memory;
  const program::PipelineForecast& forecast;
};

/// {"step", "ops": [[words, number of a colour], …], "stages": [{"instructions": [[op, lane, unit,
/// microbatch, first step], …], "predicted": [[begin, end], …]}, …], "predicted_step_us", "predicted_bubble",
/// "ranks": [{sums, "measured":
/// [[begin, end], …]}, …]}. Times are µs; a rank's are from its own begin_us on.
format::Json trace_json(const Trace& trace, const TraceContext& context);

/// {"trace": {"step", "ranks": [sums, …]}}: for scripts.
std::string trace_line(const Trace& trace, const TraceContext& context);

/// Two tables and a drawing with a script of its own: the wheel zooms, dragging moves, a click on a rank
/// shows its lanes.
std::string trace_html(const Trace& trace, const TraceContext& context);

}  // namespace loom::train
