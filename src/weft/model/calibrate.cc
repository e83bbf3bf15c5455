#include "model/calibrate.h"

#include <algorithm>
#include <limits>

namespace weft::model {
namespace {

constexpr double kLeastCallUs = 0.02, kLongestCallUs = 5;
constexpr double kLeastSwitchUs = 0.2, kLongestSwitchUs = 50;
// How many times dearer a message may be among all than between two; less where they are on one core, which
// only rows of calls tell from quick calls.
constexpr double kFactors[] = {0.5, 0.6, 0.7, 0.85, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4, 5, 6, 8};

struct Fit {
  Machine machine;
  double error = std::numeric_limits<double>::infinity();  // the sum of squares of relative errors
};

struct Bounds {
  double least, most;
};

double error_of(const Machine& machine, std::span<const Observation> observations) {
  double sum = 0;
  for (const Observation& seen : observations) {
    const double error = seen.predicted_us(machine) / seen.measured_us - 1;
    sum += error * error;
  }
  return sum;
}

// Predictions are linear in such a field, nearly: its best value between two bounds by least squares, from
// what the model says at `from` and at `to`.
Fit fit(Machine machine, double Machine::*field, Bounds bounds, std::span<const Observation> observations,
        double from = 0, double to = 1) {
  double weighted = 0, squares = 0;
  for (const Observation& seen : observations) {
    machine.*field = from;
    const double from_us = seen.predicted_us(machine);
    machine.*field = to;
    const double each = (seen.predicted_us(machine) - from_us) / (to - from) / seen.measured_us;
    weighted += each * (seen.measured_us - from_us) / seen.measured_us;
    squares += each * each;
  }
  machine.*field =
      std::clamp(squares > 0 ? from + weighted / squares : bounds.least, bounds.least, bounds.most);
  return {machine, error_of(machine, observations)};
}

// Where ranks take turns a prediction bends, for the longer a turn, the more messages a rank finds in its
// own, and jumps where the order of turns changes. So several values are tried besides the best one by a
// line, and once more the line through two values near the best of them.
Fit fit_switch(const Machine& machine, std::span<const Observation> observations) {
  constexpr Bounds kBounds{kLeastSwitchUs, kLongestSwitchUs};
  constexpr double kTried[] = {0.3, 0.5, 0.8, 1.3, 2, 3.2};
  Fit best = fit(machine, &Machine::switch_us, kBounds, observations);
  for (const double switch_us : kTried) {
    Fit tried{machine};
    tried.machine.switch_us = switch_us;
    tried.error = error_of(tried.machine, observations);
    if (tried.error < best.error) best = tried;
  }
  const double found = best.machine.switch_us;
  const Fit near = fit(machine, &Machine::switch_us, kBounds, observations, 0.8 * found, 1.25 * found);
  return near.error < best.error ? near : best;
}

}  // namespace

Machine calibrate_call(Machine machine, std::span<const Observation> observations) {
  if (observations.empty()) return machine;
  return fit(machine, &Machine::call_us, {kLeastCallUs, kLongestCallUs}, observations).machine;
}

Machine calibrate_crowd(Machine machine, Link Machine::*link, std::span<const Observation> observations,
                        std::span<const Observation> rows) {
  if (observations.empty()) return machine;
  const double overhead_us = (machine.*link).overhead_us;
  Fit best{.machine = machine};
  for (const double factor : kFactors) {
    if (factor < 1 && (rows.empty() || observations.size() == 1)) continue;
    (machine.*link).overhead_us = overhead_us * factor;
    if (!rows.empty())
      machine.call_us = fit(machine, &Machine::call_us, {kLeastCallUs, kLongestCallUs}, rows).machine.call_us;
    Fit tried = fit_switch(machine, observations);
    tried.error += error_of(tried.machine, rows);
    if (tried.error < best.error * 0.999) best = tried;
    if (observations.size() == 1 && factor >= 1) break;
  }
  return best.machine;
}

}  // namespace weft::model
