// Threads of a rank: what its machine has for it. A machine may pretend to be several nodes; its ranks share
// its CPUs all the same.
//
// Thread safety: one thread.
#pragma once

#include <weft/weft.h>

#include "base/machine_id.h"
#include "base/status.h"
#include "train/config.h"

namespace loom::train {

/// How many ranks of `comm` have the same `machine` as this one, itself included. A collective; nullptr is
/// one rank. Errors: communication_error.
Result<int> ranks_of_machine(weftComm_t comm, uint64_t machine = machine_id());

/// What the config says, or the machine's CPUs over the `ranks` that share it, at least 1.
int threads_of(const Config& config, int ranks);

}  // namespace loom::train
