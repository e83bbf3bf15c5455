// Which machine a job's cost model reckons with. Rank 0 decides, when the ranks meet: a measurement that it
// finds in the tuning cache, or that there is to be one now, or what the host states. If there is to be one,
// all ranks take part in it before the first communicator is handed out; communicators from split and shrink
// share the result.
//
//   1. A rank for each core of rank 0's node measures copies and reductions, all at the same time.
//   2. Rank 0 and another rank of its node measure shared memory.
//   3. Rank 0 and the first rank of another node measure the network, each bounded by time.
//   4. All call together, in rows by pinned algorithms: what calls cost, and reads of peers' memory, and
//   where ranks share cores waits and long data.
//   5. Rank 0 keeps the result in the cache, and broadcasts it.
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

/// What rank 0 tells all.
struct MachineDecision {
  bool measure = false;  // `machine` is only what to begin with
  bool tunes = false;    // WEFT_TUNE is not off
  model::Machine machine;

  /// Plain bytes, of the same length for every decision.
  std::vector<std::byte> packed() const;
  static MachineDecision unpack(std::span<const std::byte> bytes);
};

/// Rank 0's decision, from WEFT_TUNE, the cache and the host. Says in the log what it did with a cache that
/// it cannot use.
MachineDecision decide_machine(const Fabric& fabric);

/// What a measurement of a job on this fabric depends on.
model::Facts facts_of(const Fabric& fabric, const topology::Host& host);
/// What this process, or the tuning cache, has measured under these facts; nothing where WEFT_TUNE wants it
/// anew. Says in the log where it is from, and what is wrong with a cache that it cannot use.
std::optional<model::Machine> known_machine(const model::Facts& facts);
/// Keeps a measurement for this process, and in the tuning cache if it is `complete`: the next job may
/// succeed. With a `doubt` it is there only to be looked at, and the next job measures again.
void keep_machine(const model::Facts& facts, const model::Machine& machine, bool complete,
                  const std::string& doubt);

/// Gives a context its machine, and tells its network how much it holds.
void set_machine(Context& context, model::Machine machine);

/// Measures, and gives the context its machine; `comm` is of all ranks, and used for nothing else. A
/// collective. A link that cannot be measured keeps what the host states, which is logged. Errors: those of
/// the ranks' last meeting, that is, when one of them dies.
Status measure_machine(Context& context, Communicator& comm);

}  // namespace weft::job
