// ConnectionControl: the part of a transport over connections of the kernel (TCP) by which its owner hands
// connections to it, and sets how it uses them.
//
// Thread safety: none, except accept().
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/fd.h"
#include "base/status.h"

namespace weft::transport {

class ConnectionControl {
 public:
  virtual ~ConnectionControl() = default;
  /// A peer has opened a channel to this rank. From any thread; the next poll() takes it over.
  virtual Status accept(int peer, uint32_t channel, UniqueFd connection) = 0;
  /// Bounds the bytes in flight on one connection, roughly. Data beyond what a network holds waits in its
  /// queues, and data beyond the queues is lost. 0: no bound, if none was set before. A bound can be
  /// changed, not lifted.
  virtual void bound_flight(size_t bytes) = 0;
  /// Whether back-to-back messages share writes from now on, where the transport was opened for that.
  virtual void share_writes(bool shares) = 0;
};

}  // namespace weft::transport
