// Interfaces from getifaddrs() and /sys/class/net.
#include "bootstrap/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "topology/interface_rules.h"

namespace weft::bootstrap {
namespace {

using IfAddrs = std::unique_ptr<ifaddrs, decltype(&freeifaddrs)>;

Result<IfAddrs> all_addresses() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return fail_errno(errno, "getifaddrs");
  return IfAddrs(first, freeifaddrs);
}

}  // namespace

Result<std::vector<Interface>> interfaces() {
  const Result<IfAddrs> all = all_addresses();
  if (!all.ok()) return all.status();
  std::vector<Interface> found;
  for (const ifaddrs* each = all->get(); each != nullptr; each = each->ifa_next) {
    constexpr unsigned kReady = IFF_UP | IFF_RUNNING;
    if (!topology::leads_beyond_link(each->ifa_addr) || (each->ifa_flags & kReady) != kReady) continue;
    const SocketAddress address(each->ifa_addr);
    const auto known =
        std::find_if(found.begin(), found.end(), [&](auto& i) { return i.name == each->ifa_name; });
    if (known == found.end()) {
      found.push_back({each->ifa_name, address, topology::is_physical(each->ifa_name)});
    } else if (known->address.family() == AF_INET6 && address.family() == AF_INET) {
      known->address = address;
    }
  }
  return found;
}

Result<std::string> interface_with(const SocketAddress& address) {
  const Result<IfAddrs> all = all_addresses();
  if (!all.ok()) return all.status();
  for (const ifaddrs* each = all->get(); each != nullptr; each = each->ifa_next)
    if (each->ifa_addr != nullptr && SocketAddress(each->ifa_addr).same_host(address))
      return std::string(each->ifa_name);
  return fail(Code::system_error, "no interface of this host has the address {}", address.to_string(false));
}

Result<std::vector<Interface>> choose_interfaces(std::vector<Interface> all, std::string_view filter) {
  if (filter.empty()) return all;
  const topology::InterfaceFilter rule(filter);
  std::vector<Interface> chosen;
  if (rule.excludes) {
    std::copy_if(all.begin(), all.end(), std::back_inserter(chosen),
                 [&](const Interface& i) { return rule.takes(i.name); });
  } else {
    for (const std::string_view prefix : rule.prefixes) {
      for (Interface& each : all) {
        if (each.address.valid() && each.name.starts_with(prefix)) {
          chosen.push_back(each);
          each.address = {};  // taken: a second prefix does not take it again
        }
      }
    }
  }
  if (!chosen.empty()) return chosen;
  std::string names;
  for (const Interface& each : all) names += (names.empty() ? "" : ", ") + each.name;
  return fail(Code::invalid_setting,
              "WEFT_SOCKET_IFNAME is '{}', which leaves no interface; those that are up are: {}", filter,
              names);
}

Result<SocketAddress> host_address(std::string_view filter) {
  Result<std::vector<Interface>> all = interfaces();
  if (!all.ok()) return all.status();
  Result<std::vector<Interface>> chosen = choose_interfaces(all.take(), filter);
  if (!chosen.ok()) return chosen.status();
  const bool named = !filter.empty() && filter.front() != '^';
  const auto rank = [&](const Interface& i) {
    return named ? 0 : i.physical ? 0 : i.address.loopback() ? 2 : 1;
  };
  const auto best =
      std::min_element(chosen->begin(), chosen->end(),
                       [&](const Interface& a, const Interface& b) { return rank(a) < rank(b); });
  if (best == chosen->end())
    return fail(Code::system_error, "this host has no network interface that is up, not even lo");
  return best->address;
}

Result<std::vector<SocketAddress>> rail_addresses(const SocketAddress& towards_root, std::string_view filter,
                                                  int most) {
  const bool named = !filter.empty() && filter.front() != '^';
  std::vector<SocketAddress> rails;
  if (!named) rails.push_back(towards_root);
  const bool want_more = named || (most != 1 && !towards_root.loopback());
  if (want_more) {
    Result<std::vector<Interface>> all = interfaces();
    if (!all.ok()) return all.status();
    Result<std::vector<Interface>> chosen = choose_interfaces(all.take(), filter);
    if (!chosen.ok()) return chosen.status();
    for (const Interface& each : *chosen) {
      const bool suits = named || (each.physical && each.address.family() == towards_root.family());
      const bool known =
          std::any_of(rails.begin(), rails.end(), [&](auto& r) { return r.same_host(each.address); });
      if (suits && !known) rails.push_back(each.address.with_port(towards_root.port()));
    }
  }
  if (most > 0 && rails.size() > static_cast<size_t>(most)) rails.resize(static_cast<size_t>(most));
  return rails;
}

}  // namespace weft::bootstrap
