#include "topology/interface_rules.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>

namespace weft::topology {

bool leads_beyond_link(const sockaddr* address) {
  if (address == nullptr) return false;
  return (address->sa_family == AF_INET || address->sa_family == AF_INET6) && !is_link_local(address);
}

bool is_link_local(const sockaddr* address) {
  if (address == nullptr) return false;
  if (address->sa_family == AF_INET)
    return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 16 == 0xa9fe;  // 169.254
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

bool is_physical(const std::string& name) {
  return access(fmt::format("/sys/class/net/{}/device", name).c_str(), F_OK) == 0;
}

InterfaceFilter::InterfaceFilter(std::string_view text) : excludes(text.starts_with('^')) {
  if (excludes) text.remove_prefix(1);
  exact = text.starts_with('=');
  if (exact) text.remove_prefix(1);
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    if (comma > 0) entries.push_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
}

bool InterfaceFilter::takes(std::string_view name) const {
  const bool named =
      std::any_of(entries.begin(), entries.end(), [&](std::string_view entry) { return means(entry, name); });
  return excludes ? !named : named || entries.empty();
}

}  // namespace weft::topology
