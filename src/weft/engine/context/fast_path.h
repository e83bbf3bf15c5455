// The fast path: the caller does a short operation inside a node (PlanTables::fast) alone. It holds the
// context's lock and does nothing else for some microseconds. Such an operation is not active. No turn
// advances it, no other thread waits for it, and only OperationTable::expect() leads messages to it. It
// becomes active when another thread wants the context, or when its messages do not come soon. It then goes
// on from where it is.
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
