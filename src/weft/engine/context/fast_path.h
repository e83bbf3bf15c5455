// The fast path: a short operation inside a node (Prepared::brief) that its caller does alone. The caller has
// the context's lock and looks after nothing else for a moment. Such an operation is not active: no turn
// advances it, nobody can wait for it, and only OperationTable::expect() leads messages to it. If anything
// else comes up, or the moment passes, it becomes active and goes on from where it is like any other.
//
// Thread safety: under the context's lock.
#pragma once

#include "engine/context/context_lock.h"
#include "engine/run/operation.h"

namespace weft::engine {

class Context;

/// Does an operation right here, if nothing else is going on and its messages come soon. False: it has been
/// started like any other, and has to be waited for.
bool run_alone(Context& context, Operation& op) WEFT_REQUIRES(context_lock);

}  // namespace weft::engine
