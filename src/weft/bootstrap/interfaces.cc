// Interfaces from getifaddrs() and /sys/class/net.
#include "bootstrap/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <map>
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

/// How well other hosts reach an address: the less the better.
int distance(const SocketAddress& address) {
  return (topology::is_link_local(address.raw()) ? 2 : 0) + (address.family() == AF_INET ? 0 : 1);
}

/// Without those that have nothing but a link-local address, unless there are no others.
std::vector<Interface> prefer_routable(std::vector<Interface> some) {
  const auto is_routable = [](const Interface& each) { return !topology::is_link_local(each.address.raw()); };
  if (std::any_of(some.begin(), some.end(), is_routable))
    std::erase_if(some, [&](const Interface& each) { return !is_routable(each); });
  return some;
}

/// All links of this host on which a link-local address may be, by a link-local address of its own.
Result<std::vector<Interface>> links() {
  const Result<IfAddrs> all = all_addresses();
  if (!all.ok()) return all.status();
  std::vector<Interface> found;
  for (const ifaddrs* each = all->get(); each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) continue;
    const SocketAddress address(each->ifa_addr);
    if (address.link_local())
      found.push_back({each->ifa_name, address, topology::is_physical(each->ifa_name)});
  }
  return found;
}

}  // namespace

Result<SocketAddress> as_reached(const SocketAddress& address, const SocketAddress& beside,
                                 std::string_view filter) {
  if (!address.link_local() || address.scope() != 0) return address;
  const Result<std::vector<Interface>> all = links();
  if (!all.ok()) return all.status();
  for (const Interface& each : *all)
    if (each.address.with_scope(0).same_host(address)) return address.with_scope(each.address.scope());
  if (beside.link_local()) return address.with_scope(beside.scope());
  const topology::InterfaceFilter rule(filter);
  std::vector<Interface> chosen;
  std::string names;
  for (const Interface& each : *all) {
    if (rule.takes(each.name)) chosen.push_back(each);
    names += (names.empty() ? "" : ", ") + each.name;
  }
  if (chosen.size() == 1) return address.with_scope(chosen.front().address.scope());
  return fail(
      Code::invalid_setting,
      "{} is a link-local address, and it is not certain on which link of this host it is ({}): name "
      "the interface in WEFT_SOCKET_IFNAME, such as =eth0, or in WEFT_ROOT, such as [fe80::1%eth0]:4711",
      address.to_string(), names.empty() ? "none has a link-local address" : names);
}

Result<std::vector<Interface>> interfaces(bool link_local) {
  const Result<IfAddrs> all = all_addresses();
  if (!all.ok()) return all.status();
  std::vector<Interface> found;
  for (const ifaddrs* each = all->get(); each != nullptr; each = each->ifa_next) {
    constexpr unsigned kReady = IFF_UP | IFF_RUNNING;
    if (each->ifa_addr == nullptr || (each->ifa_flags & kReady) != kReady) continue;
    const SocketAddress address(each->ifa_addr);
    if (!address.valid() || (address.link_local() && !link_local)) continue;
    const auto known =
        std::find_if(found.begin(), found.end(), [&](auto& i) { return i.name == each->ifa_name; });
    if (known == found.end()) {
      found.push_back({each->ifa_name, address, topology::is_physical(each->ifa_name)});
    } else if (distance(address) < distance(known->address)) {
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
    for (const std::string_view entry : rule.entries) {
      for (Interface& each : all) {
        if (each.address.valid() && rule.means(entry, each.name)) {
          chosen.push_back(each);
          each.address = {};  // taken: a second entry does not take it again
        }
      }
    }
  }
  if (!chosen.empty()) return prefer_routable(std::move(chosen));
  std::string names;
  for (const Interface& each : all) names += (names.empty() ? "" : ", ") + each.name;
  return fail(Code::invalid_setting,
              "WEFT_SOCKET_IFNAME is '{}', which leaves no interface; those that are up are: {}", filter,
              names);
}

Result<SocketAddress> host_address(std::string_view filter) {
  const bool named = topology::InterfaceFilter(filter).names();
  Result<std::vector<Interface>> all = interfaces(named);
  if (!all.ok()) return all.status();
  Result<std::vector<Interface>> chosen = choose_interfaces(all.take(), filter);
  if (!chosen.ok()) return chosen.status();
  const auto rank = [&](const Interface& i) {
    if (named) return 0;
    if (i.address.loopback()) return 3;
    return topology::is_link_local(i.address.raw()) ? 2 : i.physical ? 0 : 1;
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
  const bool named = topology::InterfaceFilter(filter).names();
  std::vector<SocketAddress> rails;
  if (!named) rails.push_back(towards_root);
  const bool want_more = named || (most != 1 && !towards_root.loopback());
  if (want_more) {
    Result<std::vector<Interface>> all = interfaces(named);
    if (!all.ok()) return all.status();
    Result<std::vector<Interface>> chosen = choose_interfaces(all.take(), filter);
    if (!chosen.ok()) return chosen.status();
    for (const Interface& each : *chosen) {
      const bool suits = named || (each.physical && each.address.family() == towards_root.family() &&
                                   topology::leads_beyond_link(each.address.raw()));
      const bool known =
          std::any_of(rails.begin(), rails.end(), [&](auto& r) { return r.same_host(each.address); });
      if (suits && !known) rails.push_back(each.address.with_port(towards_root.port()));
    }
  }
  if (most > 0 && rails.size() > static_cast<size_t>(most)) rails.resize(static_cast<size_t>(most));
  return rails;
}

std::set<std::string> shared_addresses(const std::vector<std::vector<SocketAddress>>& rails) {
  std::set<std::string> first, shared;
  std::map<std::string, std::string> host_of;  // by further rail: the first rail of one that has it
  for (const auto& of_rank : rails) first.insert(of_rank.front().to_string(false));
  for (const auto& of_rank : rails) {
    const std::string host = of_rank.front().to_string(false);
    for (size_t rail = 1; rail < of_rank.size(); ++rail) {
      const std::string address = of_rank[rail].to_string(false);
      const bool elsewhere = host_of.emplace(address, host).first->second != host;
      if (elsewhere && !first.contains(address)) shared.insert(address);
    }
  }
  return shared;
}

}  // namespace weft::bootstrap
