// Transport: how bytes get from one rank to another. Shared memory, TCP and libfabric implement it. A
// transport knows ranks and bytes, and nothing of collectives.
//
// Every transport carries messages (message_transport.h) and puts into memory that a peer has exposed
// (memory_access.h). The other parts exist only where they mean something; a transport offers one, or null:
//
//   PeerMapping        shared memory: pointers to a peer's memory, and single-copy reads of it
//   GpuDirect          a network that reaches GPU memory
//   ConnectionControl  a network of kernel connections
//
// Thread safety: none, unless a part says otherwise; the engine calls the transports of a context under that
// context's lock. Abort: the destructor of a transport closes everything in bounded time, with messages and
// puts in flight.
#pragma once

#include "transport/connection_control.h"
#include "transport/gpu_direct.h"
#include "transport/memory_access.h"
#include "transport/message_transport.h"
#include "transport/peer_mapping.h"

namespace weft::transport {

class Transport : public MessageTransport, public MemoryAccess {
 public:
  virtual PeerMapping* peer_mapping() { return nullptr; }
  virtual GpuDirect* gpu_direct() { return nullptr; }
  virtual ConnectionControl* connection_control() { return nullptr; }
};

/// Whether `peer` is a thread of this process, as far as its transport tells.
inline bool in_same_process(Transport& transport, int peer) {
  const PeerMapping* const mapping = transport.peer_mapping();
  return mapping != nullptr && mapping->same_process(peer);
}

}  // namespace weft::transport
