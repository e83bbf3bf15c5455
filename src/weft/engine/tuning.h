// Which machine a job's cost model reckons with. Rank 0 decides, when the ranks meet: a measurement that it
// finds in the tuning cache, or that there is to be one now, or what the host states. If there is to be one,
// all ranks take part in it before the first communicator is handed out; communicators from split and shrink
// share the result.
//
//   1. A rank for each core of rank 0's node measures copies and reductions, all at the same time.
//   2. Rank 0 and another rank of its node measure shared memory.
//   3. Rank 0 and the first rank of another node measure the network, each bounded by time.
//   4. All meet some 5 to 50 times by each of three algorithms: what calls cost, and waits where ranks share
//   cores.
//   5. Rank 0 keeps the result in the cache, and broadcasts it.
//
// Thread safety: none is needed, creation is one thread's.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "model/cost.h"

namespace weft::engine {

class Communicator;
class Context;
class Fabric;

/// What rank 0 tells all.
struct MachineDecision {
  bool measure = false;  // `machine` is only what to begin with
  model::Machine machine;

  /// Plain bytes, of the same length for every decision.
  std::vector<std::byte> packed() const;
  static MachineDecision unpack(std::span<const std::byte> bytes);
};

/// Rank 0's decision, from WEFT_TUNE, the cache and the host. Says in the log what it did with a cache that
/// it cannot use.
MachineDecision decide_machine(const Fabric& fabric);

/// Measures, and gives the context its machine; `comm` is of all ranks, and used for nothing else. A
/// collective. A link that cannot be measured keeps what the host states, which is logged. Errors: those of
/// the ranks' last meeting, that is, when one of them dies.
Status measure_machine(Context& context, Communicator& comm);

}  // namespace weft::engine
