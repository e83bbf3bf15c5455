// Sums over instructions.
#include "train/breakdown.h"

namespace loom::train {

std::vector<std::pair<std::string, double>> Breakdown::parts() const {
  std::vector<std::pair<std::string, double>> parts;
  double rest = step_us - waiting_us;
  for (int op = 0; op < program::kOps; ++op) {
    rest -= us[op];
    if (us[op] > 0) parts.emplace_back(program::op_name(static_cast<program::Op>(op)), us[op]);
  }
  parts.emplace_back("waiting", waiting_us);
  if (rest > 0) parts.emplace_back("rest", rest);
  return parts;
}

Breakdown breakdown_of(const program::Program& program, std::span<const program::Interval> intervals,
                       double waiting_us, double step_us, bool collectives_apart) {
  Breakdown breakdown;
  for (size_t i = 0; i < intervals.size(); ++i) {
    const program::Instruction& instruction = program.instructions[i];
    if (collectives_apart && instruction.lane != 0) continue;
    breakdown.us[static_cast<int>(instruction.op)] += intervals[i].end_us - intervals[i].begin_us;
  }
  breakdown.waiting_us = waiting_us;
  breakdown.step_us = step_us;
  return breakdown;
}

Breakdown breakdown_of(const program::Program& program, const program::Forecast& forecast) {
  return breakdown_of(program, forecast.intervals, forecast.exposed_us, forecast.step_us, true);
}

void MeanBreakdown::add(const Breakdown& step) {
  if (steps_++ == 0) {
    first_ = step;
    return;
  }
  for (int op = 0; op < program::kOps; ++op) sum_.us[op] += step.us[op];
  sum_.waiting_us += step.waiting_us;
  sum_.step_us += step.step_us;
}

Breakdown MeanBreakdown::mean() const {
  if (steps_ < 2) return first_;
  const double count = static_cast<double>(steps_ - 1);
  Breakdown mean = sum_;
  for (double& us : mean.us) us /= count;
  mean.waiting_us /= count;
  mean.step_us /= count;
  return mean;
}

}  // namespace loom::train
