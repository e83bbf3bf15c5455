// Rendezvous: a rank's side of meeting at the root. Blocking, on the caller's thread.
#pragma once

#include <vector>

#include "base/clock.h"
#include "bootstrap/unique_id.h"

namespace weft::bootstrap {

struct Meeting {
  SocketAddress parent;              // invalid at rank 0
  std::vector<SocketAddress> rails;  // where this rank listens, by rail
};

/// Registers with the root as `rank` of `ranks`, listening on `port`, and waits until all have. While nobody
/// listens at the root's address it tries again. Errors: what the root refuses; protocol_error if something
/// else answers there; timeout.
Result<Meeting> meet_at_root(Job job, int rank, int ranks, uint16_t port, Deadline deadline);

/// Opens an authenticated connection for blocking use: connects, greets, and checks the proof.
Result<UniqueFd> visit(const SocketAddress& address, const Job& job, std::vector<std::byte> hello,
                       Deadline deadline);

}  // namespace weft::bootstrap
