// SocketAddress: conversions between the kernel's structures, text and names.
#include "bootstrap/address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>

namespace weft::bootstrap {

SocketAddress::SocketAddress(const sockaddr* raw) {
  if (raw->sa_family == AF_INET) {
    std::memcpy(&storage_, raw, sizeof(sockaddr_in));
  } else if (raw->sa_family == AF_INET6) {
    // What a socket for both families calls ::ffff:10.0.0.1 is the IPv4 address 10.0.0.1.
    const auto& six = *reinterpret_cast<const sockaddr_in6*>(raw);
    if (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr)) {
      in_addr four;
      std::memcpy(&four, six.sin6_addr.s6_addr + 12, sizeof four);
      *this = v4(four, ntohs(six.sin6_port));
    } else {
      std::memcpy(&storage_, raw, sizeof(sockaddr_in6));
    }
  }
}

SocketAddress SocketAddress::v4(const in_addr& address, uint16_t port) {
  sockaddr_in raw{};
  raw.sin_family = AF_INET, raw.sin_addr = address, raw.sin_port = htons(port);
  SocketAddress out;
  std::memcpy(&out.storage_, &raw, sizeof raw);
  return out;
}

SocketAddress SocketAddress::v6(const in6_addr& address, uint16_t port, uint32_t scope) {
  sockaddr_in6 raw{};
  raw.sin6_family = AF_INET6, raw.sin6_addr = address, raw.sin6_port = htons(port), raw.sin6_scope_id = scope;
  SocketAddress out;
  std::memcpy(&out.storage_, &raw, sizeof raw);
  return out;
}

SocketAddress SocketAddress::any(int family, uint16_t port) {
  return family == AF_INET6 ? v6(in6addr_any, port) : v4(in_addr{htonl(INADDR_ANY)}, port);
}

Result<SocketAddress> SocketAddress::parse(std::string_view text) {
  const size_t colon = text.rfind(':');
  unsigned port = 0;
  const bool port_read = colon != std::string_view::npos && [&] {
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data() + colon + 1, end, port);
    return error == std::errc() && at == end && port <= 65535;
  }();
  if (port_read) {
    std::string host(text.substr(0, colon));
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    in_addr four;
    in6_addr six;
    if (inet_pton(AF_INET, host.c_str(), &four) == 1) return v4(four, static_cast<uint16_t>(port));
    const size_t percent = std::min(host.find('%'), host.size());
    const std::string interface = host.substr(std::min(percent + 1, host.size()));
    const uint32_t scope = interface.empty() ? 0 : if_nametoindex(interface.c_str());
    const bool scope_read =
        (percent == host.size()) == interface.empty() && (interface.empty() || scope != 0);
    if (scope_read && inet_pton(AF_INET6, host.substr(0, percent).c_str(), &six) == 1)
      return v6(six, static_cast<uint16_t>(port), scope);
  }
  return fail(
      Code::invalid_argument,
      "'{}' is no address; right would be 10.0.0.1:4711 or [fd00::1]:4711, or, with an interface that "
      "this host has, [fe80::1%eth0]:4711",
      text);
}

Result<SocketAddress> SocketAddress::resolve(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  addrinfo* found = nullptr;
  int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) {  // loopback addresses do not count as of a family that the host has
    hints.ai_flags = 0;
    error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  }
  if (error != 0) {
    const size_t percent = host.find('%');
    if (percent != std::string::npos && if_nametoindex(host.c_str() + percent + 1) == 0)
      return fail(Code::invalid_argument, "host '{}' cannot be resolved: this host has no interface {}", host,
                  host.substr(percent + 1));
    return fail(Code::invalid_argument, "host '{}' cannot be resolved: {}", host, gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
      if (each->ai_family == family) return SocketAddress(each->ai_addr).with_port(port);
    }
  }
  return fail(Code::invalid_argument, "host '{}' has neither an IPv4 nor an IPv6 address", host);
}

bool SocketAddress::is_numeric(const std::string& host) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return false;
  freeaddrinfo(found);
  return true;
}

bool SocketAddress::loopback() const {
  if (family() == AF_INET) return ntohl(as_v4().sin_addr.s_addr) >> 24 == 127;
  return family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&as_v6().sin6_addr);
}

bool SocketAddress::link_local() const {
  return family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&as_v6().sin6_addr);
}

SocketAddress SocketAddress::with_scope(uint32_t scope) const {
  return family() == AF_INET6 ? v6(as_v6().sin6_addr, port(), scope) : *this;
}

uint16_t SocketAddress::port() const {
  return family() == AF_INET ? ntohs(as_v4().sin_port) : family() == AF_INET6 ? ntohs(as_v6().sin6_port) : 0;
}

SocketAddress SocketAddress::with_port(uint16_t port) const {
  if (family() == AF_INET) return v4(as_v4().sin_addr, port);
  return family() == AF_INET6 ? v6(as_v6().sin6_addr, port, as_v6().sin6_scope_id) : *this;
}

std::string SocketAddress::to_string(bool with_port) const {
  char text[INET6_ADDRSTRLEN + 1 + IF_NAMESIZE] = "no address";
  if (family() == AF_INET) {
    inet_ntop(AF_INET, &as_v4().sin_addr, text, sizeof text);
    return with_port ? fmt::format("{}:{}", text, port()) : text;
  }
  if (family() == AF_INET6) inet_ntop(AF_INET6, &as_v6().sin6_addr, text, sizeof text);
  if (char name[IF_NAMESIZE]; scope() != 0 && if_indextoname(scope(), name) != nullptr)
    std::strcat(std::strcat(text, "%"), name);
  return with_port && valid() ? fmt::format("[{}]:{}", text, port()) : text;
}

bool SocketAddress::same_host(const SocketAddress& other) const {
  if (family() != other.family()) return false;
  if (family() == AF_INET) return as_v4().sin_addr.s_addr == other.as_v4().sin_addr.s_addr;
  return family() == AF_INET6 && IN6_ARE_ADDR_EQUAL(&as_v6().sin6_addr, &other.as_v6().sin6_addr) &&
         as_v6().sin6_scope_id == other.as_v6().sin6_scope_id;
}

}  // namespace weft::bootstrap
