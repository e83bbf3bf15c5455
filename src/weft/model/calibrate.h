// Calibrates the costs that no single layer shows, from the times of whole operations:
//
//   * a call, a wait in which the core changes hands, and a read from a peer;
//   * a message's CPU time when all ranks of a crowded host send at once, as the network's stack then
//     works on the same cores;
//   * where ranks share cores, what is left of their caches, and what long data costs.
//
// Thread safety: pure functions.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "model/cost.h"

namespace weft::model {

/// The least that a call itself takes, in µs.
constexpr double kLeastCallUs = 0.02;

/// The measured time of an operation, and its time by the cost model on a machine.
struct Observation {
  double measured_us = 0;
  std::function<double(const Machine&)> predicted_us;
};

/// The machine with the call_us that fits best, by the squares of relative errors. For ranks that each have a
/// core. `streaks` are calls inside a node in which no rank waits for all. They show which part of a message
/// is CPU time, and overhead_us is fitted to them. The whole time of a message stays.
Machine calibrate_call(Machine machine, std::span<const Observation> observations,
                       std::span<const Observation> streaks = {});

/// The machine with the receiver's cost of a message between nodes that fits best, if the cost of a call is
/// known. For ranks that each have a core.
Machine calibrate_receiving(Machine machine, std::span<const Observation> observations);

/// The machine with the inter.gathered_us and behind_us that fit streaks best whose messages share writes.
/// Without such streaks the machine stays as it is.
Machine calibrate_gathered(Machine machine, std::span<const Observation> streaks);

/// The machine with the switch_us and the overhead of messages (of `link`: &Machine::intra or inter) that fit
/// best together. For ranks that share cores. One observation without streaks fits switch_us only. `streaks`
/// are calls in which no rank waits for all, so a core changes hands once for many calls. Inside a node they
/// fit call_us; between nodes, where no messages share writes, inter.sending_us.
Machine calibrate_crowd(Machine machine, Link Machine::*link, std::span<const Observation> observations,
                        std::span<const Observation> streaks = {});

/// The machine with the memory.peer_us that fits an operation in which ranks of a node read each other's
/// memory. It is no less than the time of the system call alone.
Machine calibrate_reads(Machine machine, const Observation& observation);

/// Calls with long data, from lengths that caches hold to lengths that they do not.
struct LongObservations {
  std::vector<Observation> read;         // copied from peers' memory
  std::vector<Observation> reduced;      // reduced from there
  std::vector<Observation> handed_over;  // through mapped scratch
};

/// The machine with the cache_bytes, large_bytes, peer_reduced and mapped rates that fit best, one after the
/// other. For ranks that share cores and caches. What was not observed stays.
Machine calibrate_memory(Machine machine, const LongObservations& observations);

}  // namespace weft::model
