// What a run tells: a line a step, JSON Lines, and a page with charts that needs nothing but a browser.
//
// Thread safety: one thread.
#pragma once

#include <string>
#include <vector>

#include "train/trainer.h"

namespace loom::train {

/// Matrix products that this rank's threads reach, in floating-point operations per second: the best of a few
/// products of 1024 rows, 768 deep and wide, of fp32.
double measured_peak(int threads);

/// "step 12/100  loss 3.2101  norm 1.20  lr 3.0e-04  123 ms  4567 tok/s  0.012 TFLOP/s (61 %)  mem 12 MiB
/// exposed 3.1 %  ETA 0:12".
std::string log_line(const StepRecord& record, const Trainer& trainer, double peak);

/// One JSON object, without the end of the line.
std::string json_line(const StepRecord& record, int64_t memory_bytes);

/// Loss, throughput, and the last step's instructions on their lanes, measured; as SVG in one HTML page.
std::string html_report(const std::vector<StepRecord>& records, const Trainer& trainer);

}  // namespace loom::train
