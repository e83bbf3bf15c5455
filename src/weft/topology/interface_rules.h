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

/// An address of IPv4 or IPv6 that other hosts may reach, or loopback: not a link-local one.
bool leads_beyond_link(const sockaddr* address);
/// A link-local address: fe80::/10, or 169.254/16, by which hosts reach their management controllers.
bool is_link_local(const sockaddr* address);
/// Whether a device stands behind the interface: it is no bridge, tunnel or container's link.
bool is_physical(const std::string& name);

/// WEFT_SOCKET_IFNAME, in NCCL's syntax: "" takes all, "eth0,ib" those whose names begin so, "=eth0,eth1"
/// those that are called so, "^docker,lo" and "^=docker0" all but those.
struct InterfaceFilter {
  explicit InterfaceFilter(std::string_view text);
  bool takes(std::string_view name) const;
  /// It says which, and not only which not: then also those without a device are used.
  bool names() const { return !excludes && !entries.empty(); }
  /// Whether an entry means the interface of this name.
  bool means(std::string_view entry, std::string_view name) const {
    return exact ? name == entry : name.starts_with(entry);
  }

  bool excludes = false, exact = false;
  std::vector<std::string_view> entries;  // of `text`: names, or their beginnings
};

}  // namespace weft::topology
