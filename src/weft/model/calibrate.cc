#include "model/calibrate.h"

#include <algorithm>
#include <limits>

namespace weft::model {
namespace {

constexpr double kLeastCallUs = 0.02, kLongestCallUs = 5;
constexpr double kLeastSwitchUs = 0.2, kLongestSwitchUs = 50;
// How many times dearer a message may be among all than between two.
constexpr double kFactors[] = {1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4, 5, 6, 8};

struct Fit {
  Machine machine;
  double error = std::numeric_limits<double>::infinity();  // the sum of squares of relative errors
};

// Predictions are linear in such a field, nearly: its best value between two bounds by least squares, from
// what the model says at 0 and at 1.
Fit fit(Machine machine, double Machine::*field, double least, double most,
        std::span<const Observation> observations) {
  double weighted = 0, squares = 0;
  for (const Observation& seen : observations) {
    machine.*field = 0;
    const double without_us = seen.predicted_us(machine);
    machine.*field = 1;
    const double each = (seen.predicted_us(machine) - without_us) / seen.measured_us;
    weighted += each * (seen.measured_us - without_us) / seen.measured_us;
    squares += each * each;
  }
  machine.*field = std::clamp(squares > 0 ? weighted / squares : least, least, most);
  Fit result{machine, 0};
  for (const Observation& seen : observations) {
    const double error = seen.predicted_us(machine) / seen.measured_us - 1;
    result.error += error * error;
  }
  return result;
}

}  // namespace

Machine calibrate_call(Machine machine, std::span<const Observation> observations) {
  if (observations.empty()) return machine;
  return fit(machine, &Machine::call_us, kLeastCallUs, kLongestCallUs, observations).machine;
}

Machine calibrate_crowd(Machine machine, Link Machine::*link, std::span<const Observation> observations) {
  if (observations.empty()) return machine;
  const double overhead_us = (machine.*link).overhead_us;
  Fit best{.machine = machine};
  for (const double factor : kFactors) {
    (machine.*link).overhead_us = overhead_us * factor;
    const Fit tried = fit(machine, &Machine::switch_us, kLeastSwitchUs, kLongestSwitchUs, observations);
    if (tried.error < best.error * 0.999) best = tried;
    if (observations.size() == 1) break;
  }
  return best.machine;
}

}  // namespace weft::model
