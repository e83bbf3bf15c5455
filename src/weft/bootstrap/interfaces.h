// Which network interfaces of this host the bootstrap uses: to name the root in a unique id, and as a rank's
// rails.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/address.h"

namespace weft::bootstrap {

struct Interface {
  std::string name;
  SocketAddress address;  // port 0; IPv4 where the interface has one
  bool physical = false;  // a device stands behind it: no bridge, tunnel or container link
};

/// The interfaces that are up and have an address, in the kernel's order, one address each. `link_local`:
/// with those that have nothing but a link-local address of IPv6.
Result<std::vector<Interface>> interfaces(bool link_local = false);

/// An address that another host has told, as this one reaches it: a link-local one gets the scope of this
/// host's interface. That is the interface that has the address, or the one of `beside` if that is
/// link-local, or the only one that `filter` leaves of those with a link-local address. Errors:
/// invalid_setting where that is not certain.
Result<SocketAddress> as_reached(const SocketAddress& address, const SocketAddress& beside,
                                 std::string_view filter);

/// The name of the interface that has an address, whatever others it has.
Result<std::string> interface_with(const SocketAddress& address);

/// Those that `filter` chooses (WEFT_SOCKET_IFNAME, see topology::InterfaceFilter), in the order of its
/// entries; where it excludes, in the host's. Those that have nothing but a link-local address are chosen
/// only where no other is. Errors: invalid_setting where nothing is left, naming what there is.
Result<std::vector<Interface>> choose_interfaces(std::vector<Interface> all, std::string_view filter);

/// The address at which other hosts reach this one best. With a filter it is the first that the filter takes.
/// Without one it is that of the first physical interface, else of any other. Link-local addresses of IPv4
/// come behind those, and loopback is last.
Result<SocketAddress> host_address(std::string_view filter);

/// A rank's addresses, one a rail, `most` at most (0 = no bound). `towards_root` is the local address of the
/// connection to the root, which is known to work: it comes first unless a filter chooses others, and alone
/// if it is loopback. Without a filter further rails are physical interfaces of the same family, and
/// not link-local.
Result<std::vector<SocketAddress>> rail_addresses(const SocketAddress& towards_root, std::string_view filter,
                                                  int most);

/// The addresses, as text without a port, that ranks of different hosts have as further rails: interfaces to
/// management controllers and DPUs have the same address on every host. Connections to one stay on their own
/// host. `rails`: of all ranks. Ranks whose first rails differ count as of different hosts, unless a rank has
/// the address as its first.
std::set<std::string> shared_addresses(const std::vector<std::vector<SocketAddress>>& rails);

}  // namespace weft::bootstrap
