// Routes: by which interface the kernel sends, and what follows for the connections of a rail. The kernel is
// asked, and decides as it would for a packet: by the rules and tables of the moment.
//
// Thread safety: all functions.
#pragma once

#include <string>

#include "base/status.h"
#include "bootstrap/address.h"

namespace weft::bootstrap {

/// Whether what goes from `from`, an address of this host, to `to` leaves by `interface`, or stays on this
/// host. Errors: system_error, for one, where no route leads there from there.
Result<bool> leaves_by(const std::string& interface, const SocketAddress& from, const SocketAddress& to);

/// Where a connection of a rail should begin: at `own`, the address of the rail's interface. Left to itself,
/// the kernel sends all that goes to one network from one of the interfaces there. No address where that
/// would not help, because the routes lead elsewhere all the same: packets that leave by one interface with
/// the address of another may be dropped on their way. Logs that once for every interface.
SocketAddress own_end(const std::string& interface, const SocketAddress& own, const SocketAddress& target);

}  // namespace weft::bootstrap
