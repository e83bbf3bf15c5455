// Sums over instructions.
#include "train/breakdown.h"

#include <algorithm>

namespace loom::train {

std::vector<std::pair<std::string, double>> Breakdown::parts() const {
  std::vector<std::pair<std::string, double>> parts;
  double outside = step_us - data_us;
  if (data_us > 0) parts.emplace_back("data", data_us);
  for (int op = 0; op < program::kOps; ++op) {
    outside -= us[op];
    const auto kind = static_cast<program::Op>(op);
    // In a table of a step's parts "step" would be all of it.
    if (us[op] > 0)
      parts.emplace_back(kind == program::Op::step ? "optimizer" : program::op_name(kind), us[op]);
  }
  if (outside > 0) parts.emplace_back("outside", outside);
  return parts;
}

namespace {

/// Goes through the list as the rank does, and charges each kind with its time.
class Charging {
 public:
  Charging(const program::Program& program, std::span<const program::Interval> intervals,
           bool collectives_apart, double call_us, std::span<const double> held_us)
      : program_(program),
        intervals_(intervals),
        collectives_apart_(collectives_apart),
        call_us_(call_us),
        held_us_(held_us) {}

  Breakdown run() {
    for (size_t i = 0; i < intervals_.size(); ++i) {
      const program::Instruction& instruction = program_.instructions[i];
      for (const int before : instruction.after) youngest_ = std::max(youngest_, before);
      if (collectives_apart_ && instruction.lane != 0) {
        if (program::is_called(instruction.op)) issue(instruction.op, held_us_.empty() ? 0 : held_us_[i]);
        continue;
      }
      // What an engine does not hide of AllReduces is waited for before the norm.
      if (!held_us_.empty() && instruction.op == program::Op::norm)
        hold(program::Op::all_reduce, held_us_[i]);
      const program::Interval& interval = intervals_[i];
      wait_until(interval.begin_us, instruction.op);
      charge(instruction.op, interval.end_us - interval.begin_us);
      now_ = std::max(now_, interval.end_us);
      youngest_ = -1;
    }
    return breakdown_;
  }

 private:
  void charge(program::Op op, double us) { breakdown_.us[static_cast<size_t>(op)] += us; }

  /// In a forecast, which tells apart from this when it is in flight. What holds the rank longer is waiting.
  void issue(program::Op op, double held_us) {
    charge(op, call_us_);
    now_ += call_us_;
    hold(op, held_us);
  }

  void hold(program::Op op, double us) {
    charge(op, us);
    breakdown_.waiting_us += us;
    now_ += us;
  }

  /// For what came before this instruction, and for other stages where it is the norm: in a forecast it is
  /// known when the former was over; measured, the norm's own time has the latter.
  void wait_until(double begin_us, program::Op op) {
    if (begin_us <= now_) return;
    breakdown_.waiting_us += begin_us - now_;
    double came_us = youngest_ >= 0 ? begin_us : now_;
    if (youngest_ >= 0 && op == program::Op::norm && collectives_apart_)
      came_us = std::clamp(intervals_[static_cast<size_t>(youngest_)].end_us, now_, begin_us);
    if (youngest_ >= 0) charge(program_.instructions[static_cast<size_t>(youngest_)].op, came_us - now_);
    charge(op, begin_us - came_us);
  }

  const program::Program& program_;
  std::span<const program::Interval> intervals_;
  const bool collectives_apart_;
  const double call_us_;
  const std::span<const double> held_us_;
  Breakdown breakdown_;
  double now_ = 0;
  int youngest_ = -1;  // of what the instructions since the last that took time come after
};

}  // namespace

Breakdown breakdown_of(const program::Program& program, std::span<const program::Interval> intervals,
                       double step_us, bool collectives_apart, double met_us, double call_us,
                       std::span<const double> held_us) {
  Breakdown breakdown = Charging(program, intervals, collectives_apart, call_us, held_us).run();
  breakdown.waiting_us += met_us;
  breakdown.step_us = step_us;
  return breakdown;
}

Breakdown breakdown_of(const program::Program& program, const program::Forecast& forecast) {
  return breakdown_of(program, forecast.intervals, forecast.step_us, true, 0, forecast.call_us,
                      forecast.held_us);
}

void MeanBreakdown::add(const Breakdown& step) {
  if (steps_++ == 0) {
    first_ = step;
    return;
  }
  for (int op = 0; op < program::kOps; ++op) sum_.us[op] += step.us[op];
  sum_.waiting_us += step.waiting_us;
  sum_.data_us += step.data_us;
  sum_.step_us += step.step_us;
  sum_.bubble = (steps_ > 2 ? sum_.bubble : 0) + step.bubble;
}

Breakdown MeanBreakdown::mean() const {
  if (steps_ < 2) return first_;
  const double count = static_cast<double>(steps_ - 1);
  Breakdown mean = sum_;
  for (double& us : mean.us) us /= count;
  mean.waiting_us /= count;
  mean.data_us /= count;
  mean.step_us /= count;
  mean.bubble /= count;
  return mean;
}

}  // namespace loom::train
