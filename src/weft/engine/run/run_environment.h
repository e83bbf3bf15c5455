// RunEnvironment: all that the steps of a communicator's operations use besides the operation itself. Step
// operations know no context and no communicator, so that they run with any transports.
//
// Thread safety: a value that never changes; what it names is used under the context's lock.
#pragma once

#include <cstdint>

#include "engine/run/membership.h"
#include "engine/run/workspace.h"

namespace weft::transport {
class ShmTransport;
}

namespace weft::engine {

class Trace;
class Windows;

struct RunEnvironment {
  uint32_t comm = 0;          // the communicator, as envelopes name it
  const Membership& members;  // its ranks, and the transports that reach them
  Workspace& workspace;       // memory to read into, the list of a reduction's sources, the accessor
  Windows& windows;           // of the communicator, for the announcements of puts
  transport::ShmTransport* shm = nullptr;  // what the fast path sends by; null: no other rank on this node
  Trace* trace = nullptr;                  // null unless a trace is being written
  bool oversubscribed = false;             // ranks share CPUs: no owner has time to help with reads
  bool has_network = false;                // some ranks of the job share no memory with this one
};

}  // namespace weft::engine
