// SocketAddress: an IPv4 or IPv6 address with a port, as a value: compared, printed, parsed, resolved.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <string>
#include <string_view>

#include "base/status.h"

namespace weft::bootstrap {

class SocketAddress {
 public:
  SocketAddress() = default;  // no address
  explicit SocketAddress(const sockaddr* raw);
  static SocketAddress v4(const in_addr& address, uint16_t port);
  static SocketAddress v6(const in6_addr& address, uint16_t port, uint32_t scope = 0);
  /// Any local address, of the given family (AF_INET or AF_INET6).
  static SocketAddress any(int family, uint16_t port);
  /// "10.0.0.1:4711", "[fd00::1]:4711" or, with an interface of this host, "[fe80::1%eth0]:4711"; no names.
  static Result<SocketAddress> parse(std::string_view text);
  /// Asks the resolver; the first address of a name, IPv4 before IPv6, of those families that this host has
  /// addresses of. Blocks as long as the resolver does.
  static Result<SocketAddress> resolve(const std::string& host, uint16_t port);

  /// Whether resolve() takes a text for an address and not for a name.
  static bool is_numeric(const std::string& host);

  int family() const { return storage_.ss_family; }
  bool valid() const { return family() == AF_INET || family() == AF_INET6; }
  bool loopback() const;
  /// A link-local address of IPv6 has a meaning on one link only. Its scope is this host's interface on that
  /// link.
  bool link_local() const;
  /// The number of the interface; 0: not known. Other hosts number theirs otherwise: messages carry no scope.
  uint32_t scope() const { return family() == AF_INET6 ? as_v6().sin6_scope_id : 0; }
  SocketAddress with_scope(uint32_t scope) const;
  uint16_t port() const;
  SocketAddress with_port(uint16_t port) const;
  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t raw_bytes() const { return family() == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6); }
  const sockaddr_in& as_v4() const { return reinterpret_cast<const sockaddr_in&>(storage_); }
  const sockaddr_in6& as_v6() const { return reinterpret_cast<const sockaddr_in6&>(storage_); }

  /// As parse() reads it; without a port, and so without brackets, where `port` is false.
  std::string to_string(bool port = true) const;
  /// The same host, whatever the port.
  bool same_host(const SocketAddress& other) const;

 private:
  sockaddr_storage storage_{};
};

}  // namespace weft::bootstrap
