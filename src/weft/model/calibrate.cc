#include "model/calibrate.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <utility>
#include <vector>

namespace weft::model {
namespace {

constexpr double kLongestCallUs = 5;
constexpr double kLongestRead = 10;                       // times what it takes alone
constexpr double kQuickestSend = 0.5, kLongestSend = 10;  // … as much
constexpr double kLongestReceive = 2;                     // … a whole message
constexpr double kLeastSwitchUs = 0.2, kLongestSwitchUs = 50;
constexpr uint64_t kLeastCache = 64 << 10, kMostCache = 32 << 20, kMostLarge = 1 << 30;
// How many times dearer a message may be that is read behind another. If one sender sends alone, all its
// messages have come and are read at once.
constexpr double kBehind[] = {1, 2, 4, 8, 16, 24};
// How many times dearer something may be in whole operations than alone. A message may be cheaper only if
// streaks of quick calls and several kinds of operations show it.
constexpr double kFactors[] = {0.4, 0.5, 0.6, 0.7, 0.85, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4, 5, 6, 8};
constexpr size_t kTellTurns = 3;

// A path is long if it takes so many times what the CPUs at its ends take; and how many times dearer messages
// may be there.
constexpr double kFar = 20, kDearestFar = 2;

struct Fit {
  Machine machine;
  double error = std::numeric_limits<double>::infinity();  // the sum of squares of relative errors
};

struct Bounds {
  double least, most;
};

using Setter = void (*)(Machine&, double);
void set_call(Machine& machine, double us) { machine.call_us = us; }
void set_switch(Machine& machine, double us) { machine.switch_us = us; }
void set_read(Machine& machine, double us) { machine.memory.peer_us = us; }
void set_gathered(Machine& machine, double us) { machine.inter.gathered_us = us; }
/// The cost of sending stays.
void set_receiving(Machine& machine, double us) {
  const double sent_us = sending_us(machine.inter);
  machine.inter.overhead_us = (sent_us + us) / 2;
  machine.inter.sending_us = sent_us;
}
/// The cost of receiving stays.
void set_sending(Machine& machine, double us) {
  machine.inter.overhead_us = (us + receiving_us(machine.inter)) / 2;
  machine.inter.sending_us = us;
}

/// The link on which a message costs both ends together `factor` times as much. If the ends differ, the
/// receiver pays the difference. A message that is read behind another costs no more than that.
Link dearer(Link link, double factor) {
  link.overhead_us = std::max(link.overhead_us * factor, (link.sending_us + link.behind_us) / 2);
  return link;
}

double error_of(const Machine& machine, std::span<const Observation> observations) {
  double sum = 0;
  for (const Observation& seen : observations) {
    const double error = seen.predicted_us(machine) / seen.measured_us - 1;
    sum += error * error;
  }
  return sum;
}

// Keeps a machine that fits better than the best so far.
void try_out(const Machine& machine, std::span<const Observation> observations, Fit& best) {
  const double error = error_of(machine, observations);
  if (error < best.error) best = {machine, error};
}

// Predictions are nearly linear in a setting: its best value between two bounds by least squares, from the
// model's predictions at `from` and `to`.
Fit fit(Machine machine, Setter set, Bounds bounds, std::span<const Observation> observations,
        double from = 0, double to = 1) {
  double weighted = 0, squares = 0;
  for (const Observation& seen : observations) {
    set(machine, from);
    const double from_us = seen.predicted_us(machine);
    set(machine, to);
    const double each = (seen.predicted_us(machine) - from_us) / (to - from) / seen.measured_us;
    weighted += each * (seen.measured_us - from_us) / seen.measured_us;
    squares += each * each;
  }
  set(machine, std::clamp(squares > 0 ? from + weighted / squares : bounds.least, bounds.least, bounds.most));
  return {machine, error_of(machine, observations)};
}

// Where ranks take turns a prediction is not linear: in a longer turn a rank finds more messages. It jumps
// where the order of turns changes. So several values are tried besides the best one by a line, and then the
// line through two values near the best of them.
Fit fit_switch(const Machine& machine, std::span<const Observation> observations) {
  constexpr Bounds kBounds{kLeastSwitchUs, kLongestSwitchUs};
  constexpr double kTried[] = {0.3, 0.5, 0.8, 1.3, 2, 3.2};
  Fit best = fit(machine, set_switch, kBounds, observations);
  for (const double turn_us : kTried) {
    Machine tried = machine;
    tried.switch_us = turn_us;
    try_out(tried, observations, best);
  }
  const double found = best.machine.switch_us;
  const Fit near = fit(machine, set_switch, kBounds, observations, 0.8 * found, 1.25 * found);
  return near.error < best.error ? near : best;
}

// From streaks of messages between nodes: the sender's cost of a message, which `set` sets and is `alone_us`
// for a single one, and the cost of reading a message behind others. A rank that is calls ahead sends many
// messages that are read together.
Machine fit_streak(const Machine& machine, Setter set, double alone_us,
                   std::span<const Observation> streaks) {
  if (streaks.empty()) return machine;
  const Bounds bounds{kQuickestSend * alone_us, kLongestSend * alone_us};
  Fit best{machine, error_of(machine, streaks)};
  for (const double factor : kBehind) {
    Machine tried = machine;
    tried.inter.behind_us *= factor;
    const Fit fitted = fit(tried, set, bounds, streaks, alone_us, 2 * alone_us);
    if (fitted.error < best.error) best = fitted;
  }
  return best.machine;
}

Machine fit_caches(const Machine& machine, std::span<const Observation> observations) {
  if (observations.empty()) return machine;
  Fit best{machine, error_of(machine, observations)};
  for (uint64_t cache = kLeastCache; cache <= kMostCache; cache *= 2) {
    for (uint64_t large = 2 * cache; large <= kMostLarge; large *= 2) {
      Machine tried = machine;
      tried.memory.cache_bytes = cache;
      tried.memory.large_bytes = large;
      try_out(tried, observations, best);
    }
  }
  return best.machine;
}

// All these rates, over the same factor.
Machine fit_rates(const Machine& machine, std::initializer_list<double Memory::*> rates,
                  std::span<const Observation> observations) {
  if (observations.empty()) return machine;
  Fit best{machine, error_of(machine, observations)};
  for (const double dearer : kFactors) {
    Machine tried = machine;
    for (double Memory::*const rate : rates) tried.memory.*rate /= dearer;
    try_out(tried, observations, best);
  }
  return best.machine;
}

}  // namespace

Machine calibrate_call(Machine machine, std::span<const Observation> observations,
                       std::span<const Observation> streaks) {
  std::vector<Observation> all(observations.begin(), observations.end());
  all.insert(all.end(), streaks.begin(), streaks.end());
  if (all.empty()) return machine;
  constexpr Bounds kBounds{kLeastCallUs, kLongestCallUs};
  Fit best = fit(machine, set_call, kBounds, all);
  if (streaks.empty()) return best.machine;
  const Link measured = machine.intra;
  for (const double factor : kFactors) {
    machine.intra.overhead_us = measured.overhead_us * factor;
    machine.intra.alpha_us = way_us(measured) - 2 * machine.intra.overhead_us;
    if (machine.intra.alpha_us < measured.alpha_us / 2) break;
    const Fit tried = fit(machine, set_call, kBounds, all);
    if (tried.error < best.error * 0.999) best = tried;
  }
  return best.machine;
}

Machine calibrate_receiving(Machine machine, std::span<const Observation> observations) {
  if (observations.empty()) return machine;
  const double one_way_us = way_us(machine.inter);
  // No less than behind another.
  const Bounds bounds{std::max(machine.inter.behind_us, kLeastCallUs), kLongestReceive * one_way_us};
  return fit(std::move(machine), set_receiving, bounds, observations).machine;
}

Machine calibrate_gathered(Machine machine, std::span<const Observation> streaks) {
  const double alone_us = machine.inter.gathered_us;
  if (alone_us <= 0 || streaks.empty()) return machine;
  machine = fit_streak(machine, set_gathered, alone_us, streaks);
  // No dearer than one by itself.
  Link& link = machine.inter;
  link.gathered_us = std::min(link.gathered_us, sending_us(link));
  link.behind_us = std::min(link.behind_us, receiving_us(link));
  return machine;
}

Machine calibrate_crowd(Machine machine, Link Machine::*link, std::span<const Observation> observations,
                        std::span<const Observation> streaks) {
  if (observations.empty()) return machine;
  const bool inside = link == &Machine::intra;
  const double behind_us = machine.inter.behind_us;
  if (!inside) machine = fit_streak(machine, set_sending, sending_us(machine.inter), streaks);
  const Link measured = machine.*link;
  Fit best{.machine = machine};
  // On a long path the network explains a longer time before its messages do.
  const bool far = !inside && measured.alpha_us > kFar * 2 * measured.overhead_us;
  for (const double factor : kFactors) {
    if (factor < 1 && (far || observations.size() < (streaks.empty() ? kTellTurns : 2))) continue;
    if (far && factor > kDearestFar) break;
    machine.*link = dearer(measured, factor);
    if (inside && !streaks.empty())
      machine.call_us = fit(machine, set_call, {kLeastCallUs, kLongestCallUs}, streaks).machine.call_us;
    Fit tried = far ? Fit{machine, error_of(machine, observations)} : fit_switch(machine, observations);
    tried.error += error_of(tried.machine, streaks);
    if (tried.error < best.error * 0.999) best = tried;
    if (observations.size() == 1 && factor >= 1) break;
  }
  best.machine.inter.behind_us = behind_us;  // of what shares no write it is more
  return best.machine;
}

Machine calibrate_reads(Machine machine, const Observation& observation) {
  const double alone_us = machine.memory.peer_us;
  return fit(std::move(machine), set_read, {alone_us, kLongestRead * alone_us}, {&observation, 1}).machine;
}

Machine calibrate_memory(Machine machine, const LongObservations& observations) {
  machine = fit_caches(machine, observations.read);
  machine = fit_rates(machine, {&Memory::peer_reduced}, observations.reduced);
  return fit_rates(machine, {&Memory::mapped_near, &Memory::mapped_cached, &Memory::mapped_large},
                   observations.handed_over);
}

}  // namespace weft::model
