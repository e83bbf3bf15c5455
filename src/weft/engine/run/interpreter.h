// The interpreter: runs the lanes of one operation's plan as far as they can go now, by the step operations
// of its memory (step_loop.h). It never blocks.
//
// Thread safety: under the context's lock.
#pragma once

#include <vector>

#include "base/status.h"
#include "engine/run/operation.h"
#include "engine/run/run_environment.h"

namespace weft::engine {

/// Starts the operation's bookkeeping: nothing has arrived, every lane is at its first step. The fast path
/// does without the second part. `traced`: the times of steps are wanted.
void reset_arrivals(Operation& op);
void reset_steps(Operation& op, bool traced);
/// Takes an operation over from the fast path, which has kept its lane's next step only.
void follow_fast_path(Operation& op);
/// Runs every lane until it has to wait, or has had its turn (long copies and reductions are cut, so that the
/// network is looked at in between). True if anything moved.
Result<bool> advance(const RunEnvironment& environment, Operation& op);
/// Whether every step is done.
bool complete(const Operation& op);
/// The peers (ranks of the communicator) that the operation is waiting for right now: for their
/// notifications, for room to send to them, or for a put to them that is under way.
std::vector<int> awaited_peers(const Operation& op);
/// Whether an operation has yet to hear from this rank of its communicator, or to send to it.
bool deals_with(const Operation& op, int rank);

}  // namespace weft::engine
