// Calibrates the costs that no single layer shows alone, from how long whole operations took: a call, a wait
// in which the core changes hands, and what a message costs the CPU when all ranks of a crowded host send at
// once (the network's stack works on the same cores then, and in the time of whoever is running).
//
// Thread safety: pure functions.
#pragma once

#include <functional>
#include <span>

#include "model/cost.h"

namespace weft::model {

/// How long a short operation took, and how long the cost model says that it takes on a machine.
struct Observation {
  double measured_us = 0;
  std::function<double(const Machine&)> predicted_us;
};

/// The machine with the call_us that fits best, by the squares of relative errors. For ranks that each have a
/// core.
Machine calibrate_call(Machine machine, std::span<const Observation> observations);

/// The machine with the switch_us and the overhead of messages (of `link`: &Machine::intra or inter) that fit
/// best together. For ranks that share cores. One observation fits switch_us only. `rows` are of calls in
/// which nobody waits for all: there a core is given away once for many calls, which tells what a call itself
/// takes. Without them call_us stays as it is.
Machine calibrate_crowd(Machine machine, Link Machine::*link, std::span<const Observation> observations,
                        std::span<const Observation> rows = {});

}  // namespace weft::model
