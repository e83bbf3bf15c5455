// A group of calls. All are planned before any is started, and all are started before any is waited for. So
// a wrong call leaves no other call half done, and sends and receives that depend on each other cannot block
// each other.
//
// Thread safety: any thread, without a context's lock.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/run/communicator.h"

namespace weft::engine {

using GroupCall = std::pair<std::shared_ptr<Communicator>, Call>;

/// Starts all at once and waits for those without a stream. Calls may be of different communicators. A rank's
/// Send and Recv to itself become one copy. If one of them cannot be done, none is started.
Status run_group(std::vector<GroupCall>& calls);

}  // namespace weft::engine
