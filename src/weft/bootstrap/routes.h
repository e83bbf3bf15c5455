// Routes: by which interface the kernel sends. It is asked, and decides as it would for a packet: by the
// rules and tables of the moment.
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

}  // namespace weft::bootstrap
