// Tuning: which machine the cost models of a job use. Rank 0 decides at the job's first exchange: a
// measurement from the tuning cache, a new measurement, or what the host states. A new measurement is a
// collective of all ranks before the first communicator is handed out. Communicators from split and shrink
// share the result.
//
//   1. A rank for each core of rank 0's node measures copies and reductions, all at the same time.
//   2. Rank 0 and another rank of its node measure shared memory.
//   3. Rank 0 and the first rank of another node measure the network, each bounded by time.
//   4. All ranks call operations with pinned algorithms: what calls cost, and reads of peers' memory; where
//      ranks share cores, also what waits and long data cost.
//
// Thread safety: none is needed, creation is one thread's.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/cost.h"
#include "model/machine_cache.h"
#include "topology/host.h"

namespace weft::engine {
class Communicator;
class Context;
class Fabric;
}  // namespace weft::engine

namespace weft::job {

using engine::Communicator;
using engine::Context;
using engine::Fabric;

/// What rank 0 decides for all ranks.
struct MachineDecision {
  bool measure = false;  // `machine` is only what to begin with
  bool tunes = false;    // WEFT_TUNE is not off
  model::Machine machine;

  /// Plain bytes, of the same length for every decision.
  std::vector<std::byte> packed() const;
  /// From rank 0's bytes. A machine with a value out of range is logged, and every rank takes the default
  /// one.
  static MachineDecision unpack(std::span<const std::byte> bytes);
};

/// Rank 0's decision, from WEFT_TUNE, the cache and the host. It logs why it cannot use a cache.
MachineDecision decide_machine(const Fabric& fabric);

/// What a measurement of a job on this fabric depends on.
model::Facts facts_of(const Fabric& fabric, const topology::Host& host);
/// The measurement of this process or the tuning cache under these facts; nothing if WEFT_TUNE asks for a new
/// one. It logs where the measurement is from, and why it cannot use a cache.
std::optional<model::Machine> known_machine(const model::Facts& facts);
/// Keeps a measurement for this process, and in the tuning cache if it is `complete`. A measurement with a
/// `doubt` is kept for readers only: the next job measures again.
void keep_machine(const model::Facts& facts, const model::Machine& machine, bool complete,
                  const std::string& doubt);

/// Sets the machine of a context, and how many bytes its network keeps under way.
void set_machine(Context& context, model::Machine machine);

/// Measures, and sets the machine of the context. `comm` is of all ranks and used for nothing else. A
/// collective. A link that cannot be measured keeps what the host states, which is logged. Errors: those of
/// the last exchange, when a rank dies.
Status measure_machine(Context& context, Communicator& comm);

}  // namespace weft::job
