// Calibrates the costs that no single layer shows alone, from how long whole operations took: a call, a wait
// in which the core changes hands, and what a message costs the CPU when all ranks of a crowded host send at
// once (the network's stack works on the same cores then, and in the time of whoever is running), and what it
// costs to read from a peer. Where ranks share cores also what is left of their caches, and what long data
// costs there.
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

/// How long an operation took, and how long the cost model says that it takes on a machine.
struct Observation {
  double measured_us = 0;
  std::function<double(const Machine&)> predicted_us;
};

/// The machine with the call_us that fits best, by the squares of relative errors. For ranks that each have a
/// core. `streaks` are of calls inside a node in which nobody waits for all, and tell what of a message's way
/// is its ranks' overhead: with them that fits best, too, and a message takes in all what it took.
Machine calibrate_call(Machine machine, std::span<const Observation> observations,
                       std::span<const Observation> streaks = {});

/// The machine on which a message between nodes costs its receiver what fits best, where what a call itself
/// takes is known. For ranks that each have a core.
Machine calibrate_receiving(Machine machine, std::span<const Observation> observations);

/// The machine with the inter.gathered_us and behind_us that fit streaks best whose messages share writes.
/// Without streaks, and where messages share none, it stays as it is.
Machine calibrate_gathered(Machine machine, std::span<const Observation> streaks);

/// The machine with the switch_us and the overhead of messages (of `link`: &Machine::intra or inter) that fit
/// best together. For ranks that share cores. Without streaks one observation
/// fits switch_us only. `streaks` are of calls in
/// which nobody waits for all, so that a core is given away once for many of them. Inside a node they tell
/// what a call itself takes (call_us), between nodes, where each of their messages goes by itself, what it
/// takes to send one (inter.sending_us). Without them these stay as they are.
Machine calibrate_crowd(Machine machine, Link Machine::*link, std::span<const Observation> observations,
                        std::span<const Observation> streaks = {});

/// The machine with the memory.peer_us that fits an operation in which ranks of a node read each other's
/// memory: no less than what the system call takes alone, which is without what leads to it.
Machine calibrate_reads(Machine machine, const Observation& observation);

/// Of calls with long data, each from one that caches hold to one that they do not.
struct LongObservations {
  std::vector<Observation> read;         // copied from peers' memory
  std::vector<Observation> reduced;      // reduced from there
  std::vector<Observation> handed_over;  // through mapped scratch
};

/// The machine with the cache_bytes and large_bytes, the peer_reduced and the mapped rates of its memory that
/// fit best, one after the other: for ranks that share cores, and so their caches. What was not observed
/// stays.
Machine calibrate_memory(Machine machine, const LongObservations& observations);

}  // namespace weft::model
