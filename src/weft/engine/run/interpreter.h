// The interpreter: runs the lanes of one operation's plan as far as they can go now, by the step operations
// of its memory (step_loop.h). It never blocks.
//
// Thread safety: under the context's lock.
#pragma once

#include "base/status.h"
#include "engine/context/context_lock.h"
#include "engine/run/operation.h"
#include "engine/run/run_environment.h"

namespace weft::engine {

/// Runs every lane until it has to wait, or has had its turn (long copies and reductions are cut, so that the
/// network is looked at in between). True if anything moved.
Result<bool> advance(const RunEnvironment& environment, Operation& op) WEFT_REQUIRES(context_lock);
/// Whether every step is done.
bool complete(const Operation& op);

}  // namespace weft::engine
