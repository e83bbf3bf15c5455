// What a run tells: a line a step, JSON Lines, and a page with charts that needs nothing but a browser.
//
// Thread safety: one thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "train/comparison.h"
#include "train/trace_page.h"
#include "train/trainer.h"

namespace loom::train {

/// "step 12/100  loss 3.2101  norm 1.20  lr 3.0e-04  123 ms  4567 tok/s  0.012 TFLOP/s (61 %)  mem 12 MiB
/// waiting 3.1 %  ETA 0:12". `peak` is what the part is of; 0 leaves it out.
std::string log_line(const StepRecord& record, const Trainer& trainer, double peak);

/// One JSON object, without the end of the line.
std::string json_line(const StepRecord& record);
/// The same for a sentence of Trainer::notes().
std::string note_line(const std::string& note);
/// The record of such a line; nothing where it is another line.
std::optional<StepRecord> record_of_line(std::string_view line);

/// The sums of each rank in the step that was traced, as one JSON object; empty where none was.
std::string trace_line(const Trainer& trainer, const Comparison& comparison);

/// Charts of loss, throughput and waiting; the traced step of all ranks, measured and predicted; and what was
/// predicted of a step beside the mean of those measured; and the trainer's notes. A run that predicts
/// nothing (Measuring::nothing, or on GPUs) has no traced step in it, since its picture sets one beside the
/// other. One HTML page that needs no other file, and does not grow with a long run: of many steps its charts
/// have the lowest and the highest. `ended` is what the run failed with, if it did.
std::string html_report(const std::vector<StepRecord>& records, const Trainer& trainer,
                        const Comparison& comparison, const Status& ended = {});
/// Such a page without what it says of the run's failure.
std::string without_failure(std::string page);

/// What the log of a run says.
struct LoggedRun {
  std::string name;
  std::vector<StepRecord> records;
  double predicted_us = 0;  // of a step; 0: the log does not say
};
/// Of the run in that folder. Errors: not_found, system_error; invalid_data (no step in it).
Result<LoggedRun> read_log(const std::string& folder);
/// Charts over steps, with a line of each run.
std::string run_charts(const std::vector<LoggedRun>& runs);
/// A page of several runs: their charts and a table.
std::string html_of(const std::vector<LoggedRun>& runs);

}  // namespace loom::train
