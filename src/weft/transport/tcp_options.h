// Options of the TCP transport, for its parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "transport/eager.h"
#include "transport/tcp_coalescer.h"

namespace weft::transport {

/// Opens a channel to a peer over a rail. The peer's transport gets the other end, and the channel's number,
/// through accept(). May block until then.
using Connector = std::function<Result<UniqueFd>(int peer, int rail, uint32_t channel, Deadline deadline)>;

struct TcpOptions {
  int rails = 1;                                   // network interfaces that a put is spread over, at most
  bool puts_apart = false;                         // on channels of their own; all ranks alike
  size_t eager_bytes = net_eager_bytes(Net::tcp);  // largest message
  size_t queue_bytes = 1 << 20;      // of messages waiting on one connection before send() answers busy
  size_t segment_bytes = 512 << 10;  // of a put in one frame
  size_t unsent_bytes = 256 << 10;   // waiting in the kernel on one connection, 0 = no bound of our own
  tcp::Coalescing coalescing;        // which frames wait to share a write
  bool patient = false;              // a poll() leaves to the next one what may have a place by then
  double connect_timeout_s = 10;
  bool crowded = false;  // more ranks than cores on this host: a poll that finds nothing is thorough

  /// A channel for messages, and one a rail for puts; or one a rail for both.
  size_t channels() const { return static_cast<size_t>(rails) + (puts_apart ? 1 : 0); }
};

}  // namespace weft::transport
