// Which network interfaces Weft's own connections use. The bootstrap chooses a rank's rails by these rules
// (bootstrap/interfaces.h), and a host is described by them (Interface::carries).
//
// Thread safety: every function.
#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>
#include <vector>

namespace weft::topology {

/// An address of IPv4 or IPv6 that other hosts may reach, or loopback: not a link-local one of IPv6.
bool leads_beyond_link(const sockaddr* address);
/// Whether a device stands behind the interface: it is no bridge, tunnel or container's link.
bool is_physical(const std::string& name);

/// WEFT_SOCKET_IFNAME: "" takes all, "eth0,ib" those whose names begin so, "^docker,lo" all but those.
struct InterfaceFilter {
  explicit InterfaceFilter(std::string_view text);
  bool takes(std::string_view name) const;
  /// It says which, and not only which not: then also those without a device are used.
  bool names() const { return !excludes && !prefixes.empty(); }

  bool excludes = false;
  std::vector<std::string_view> prefixes;  // of `text`
};

}  // namespace weft::topology
