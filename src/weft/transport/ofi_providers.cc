// The choice of a provider and of its domains.
#include "transport/ofi_providers.h"

#include <netinet/in.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string_view>

#include "base/log.h"
#include "transport/eager.h"
#include "transport/ofi_protocol.h"

namespace weft::transport::ofi {

namespace {

// Providers that Weft takes without being asked, best first. On libfabric 1.17 `net` is TCP with reliable
// datagrams of its own, and `tcp` has them only through ofi_rxm. From 1.18 on `tcp` is the same as `net`
// of 1.17.
constexpr std::string_view kPreferred[] = {"efa", "verbs;ofi_rxm", "net", "tcp", "tcp;ofi_rxm"};

std::string_view text(const char* string) { return string ? string : ""; }
std::string_view provider_of(const fi_info& info) { return text(info.fabric_attr->prov_name); }
std::string_view domain_of(const fi_info& info) { return text(info.domain_attr->name); }
std::string_view fabric_of(const fi_info& info) { return text(info.fabric_attr->name); }

/// Position in kPreferred, or its length.
size_t preference(std::string_view provider) {
  return static_cast<size_t>(std::ranges::find(kPreferred, provider) - std::begin(kPreferred));
}

/// "tcp" means tcp itself, or tcp under a layer: "tcp;ofi_rxm".
bool answers_to(std::string_view provider, std::string_view name) {
  return provider == name || (provider.starts_with(name) && provider[name.size()] == ';');
}

bool is_loopback(const fi_info& info) {
  if (!info.src_addr) return false;
  if (info.addr_format == FI_SOCKADDR_IN)
    return ntohl(static_cast<const sockaddr_in*>(info.src_addr)->sin_addr.s_addr) >> 24 == 127;
  if (info.addr_format == FI_SOCKADDR_IN6)
    return IN6_IS_ADDR_LOOPBACK(&static_cast<const sockaddr_in6*>(info.src_addr)->sin6_addr);
  return false;
}

bool is_link_local(const fi_info& info) {
  return info.src_addr && info.addr_format == FI_SOCKADDR_IN6 &&
         IN6_IS_ADDR_LINKLOCAL(&static_cast<const sockaddr_in6*>(info.src_addr)->sin6_addr);
}

/// Smaller is better, among the offers of one provider.
int unfitness(const fi_info& info) {
  return (is_loopback(info) ? 4 : 0) + (info.addr_format == FI_SOCKADDR_IN6 ? 2 : 0) +
         (fabric_of(info) == "efa-direct" ? 1 : 0);
}

constexpr uint32_t kInterface = FI_VERSION(1, 17);
#ifdef FI_MR_DMABUF  // which came with this version
constexpr uint32_t kGpuInterface = FI_VERSION(1, 20);
#else
constexpr uint32_t kGpuInterface = kInterface;
#endif

std::vector<Info> query(const fi_info* hints, uint32_t version = kInterface) {
  std::vector<Info> found;
  fi_info* list = nullptr;
  if (library().getinfo(version, nullptr, nullptr, 0, hints, &list) != 0) return found;
  for (fi_info* next; list; list = next) {
    next = list->next;
    list->next = nullptr;
    found.emplace_back(list);
  }
  return found;
}

Info hints_for(const std::string& provider, uint64_t capabilities) {
  Info hints(library().dupinfo(nullptr));
  if (!hints) return hints;
  hints->caps = capabilities;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode =
      FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  // The engine's threads do the work: no provider needs a thread of its own.
  hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  if (!provider.empty()) hints->fabric_attr->prov_name = strdup(provider.c_str());
  return hints;
}

Info gpu_hints_for(const std::string& provider) {
  Info hints = hints_for(provider, FI_MSG | FI_RMA | FI_HMEM);
  if (hints) hints->domain_attr->mr_mode |= FI_MR_HMEM;
  return hints;
}

/// All offers that can carry a job, best use first: those that can write with immediate data before the
/// others.
std::vector<Info> fitting(const std::string& provider) {
  std::vector<Info> found = query(hints_for(provider, FI_MSG | FI_RMA).get());
  for (Info& info : query(hints_for(provider, FI_MSG).get())) found.push_back(std::move(info));
  std::erase_if(found, [&](const Info& info) {
    return is_link_local(*info) || (!provider.empty() && !answers_to(provider_of(*info), provider));
  });
  return found;
}

/// "net (eth0, lo), shm (shm)": all offers of fi_getinfo for reliable datagrams, also those that Weft does
/// not take.
std::string offered() {
  std::map<std::string_view, std::set<std::string_view>> domains;
  const std::vector<Info> found = fitting("");
  for (const Info& info : found) domains[provider_of(*info)].insert(domain_of(*info));
  std::string list;
  for (const auto& [provider, names] : domains)
    list += fmt::format("{}{} ({})", list.empty() ? "" : ", ", provider, fmt::join(names, ", "));
  return list.empty() ? "nothing" : list;
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) parts.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// One offer a domain, the best one, in the order fi_getinfo lists them (that of the PCI bus, for real NICs).
std::vector<Info> best_by_domain(std::vector<Info> offers) {
  std::ranges::stable_sort(offers, {}, [](const Info& info) { return unfitness(*info); });
  std::set<std::string, std::less<>> seen;
  std::erase_if(offers, [&](const Info& info) { return !seen.emplace(domain_of(*info)).second; });
  return offers;
}

/// The domains that the user named, a rail for each mention ("eth0,eth0" is two rails on one interface).
std::vector<Info> named(const std::vector<Info>& domains, const std::string& interfaces) {
  std::vector<Info> rails;
  for (const std::string& name : split(interfaces))
    for (const Info& info : domains)
      if (domain_of(*info) == name || domain_of(*info).starts_with(name + "-")) {
        rails.emplace_back(library().dupinfo(info.get()));
        break;
      }
  return rails;
}

/// The domains that are not named one by one: every NIC of an RDMA fabric that the setting leaves. Over EFA,
/// where each NIC reaches every other, a rank begins with its share of the NICs. On other fabrics NICs may
/// reach only those of the same number. On a plain network it is the interface over which the ranks meet.
/// Another one, such as a bridge of containers, may lead nowhere.
std::vector<Info> by_default(std::vector<Info> domains, const OfiOptions& options) {
  const DomainFilter filter(options.domains);
  if (filter.names()) {
    std::ranges::stable_sort(domains, {},
                             [&](const Info& info) { return filter.place_of(domain_of(*info)); });
  } else if (preference(provider_of(*domains.front())) > 1) {
    std::stable_partition(domains.begin(), domains.end(),
                          [&](const Info& info) { return domain_of(*info) == options.met_over; });
    domains.resize(1);
  }
  if (net_of_provider(provider_of(*domains.front())) != Net::efa) return domains;
  const size_t first =
      domains.size() * static_cast<size_t>(options.local_rank) / static_cast<size_t>(options.local_ranks);
  std::rotate(domains.begin(), domains.begin() + static_cast<ptrdiff_t>(first), domains.end());
  return domains;
}

double gigabits(const fi_info& info) {
  if (info.nic && info.nic->link_attr && info.nic->link_attr->speed > 0)
    return static_cast<double>(info.nic->link_attr->speed) / 1e9;
  double megabits = 0;
  std::ifstream(fmt::format("/sys/class/net/{}/speed", domain_of(info))) >> megabits;
  return std::max(0.0, megabits / 1e3);
}

std::string why_not(const fi_info& info, const std::vector<Info>& fit) {
  if (is_link_local(info)) return "a link-local address does not lead beyond the link";
  const bool fits = std::ranges::any_of(fit, [&](const Info& other) {
    return provider_of(*other) == provider_of(info) && domain_of(*other) == domain_of(info) &&
           fabric_of(*other) == fabric_of(info);
  });
  return fits ? "" : "offers no reliable datagrams (FI_EP_RDM) with FI_MSG in a mode that Weft supports";
}

}  // namespace

bool writes_with_data(const fi_info& info) {
  constexpr uint64_t needed = FI_RMA | FI_WRITE | FI_REMOTE_WRITE;
  return (info.caps & needed) == needed && info.domain_attr->cq_data_size >= sizeof(uint32_t) &&
         info.domain_attr->mr_key_size <= sizeof(uint64_t);
}

Result<std::vector<Info>> with_gpu_memory(const std::vector<Info>& rails) {
  std::vector<Info> found;
  for (const Info& rail : rails) {
    const std::string provider(provider_of(*rail));
    std::vector<Info> offers = query(gpu_hints_for(provider).get(), kGpuInterface);
    const auto same = std::ranges::find_if(offers, [&](const Info& offer) {
      return provider_of(*offer) == provider && domain_of(*offer) == domain_of(*rail) &&
             fabric_of(*offer) == fabric_of(*rail) && (offer->caps & FI_HMEM) && writes_with_data(*offer);
    });
    if (same == offers.end())
      return fail(Code::unsupported, "libfabric {} ({}) offers no remote writes of GPU memory (FI_HMEM)",
                  provider, domain_of(*rail));
    found.push_back(std::move(*same));
  }
  return found;
}

Result<std::vector<Info>> choose_rails(const OfiOptions& options) {
  WEFT_TRY(open_library().status());
  std::vector<Info> offers = fitting(options.provider);
  if (options.provider.empty())
    std::erase_if(offers,
                  [](const Info& info) { return preference(provider_of(*info)) == std::size(kPreferred); });
  if (offers.empty()) {
    if (!options.provider.empty())
      return fail(Code::invalid_setting,
                  "libfabric has no provider '{}' for reliable datagrams here; it offers {}",
                  options.provider, offered());
    return fail(Code::unsupported, "libfabric has none of the providers {} here; it offers {}",
                fmt::join(kPreferred, ", "), offered());
  }
  const DomainFilter filter(options.domains);
  std::erase_if(offers, [&](const Info& info) { return !filter.takes(domain_of(*info)); });
  if (offers.empty())
    return fail(Code::invalid_setting,
                "WEFT_OFI_DOMAINS is '{}', which leaves no domain; libfabric offers {}", options.domains,
                offered());
  // The best provider alone: rails of different ones could not talk to each other. An exact name beats a
  // layered one.
  const auto best = std::ranges::min_element(offers, {}, [&](const Info& info) {
    return std::pair(provider_of(*info) != options.provider, preference(provider_of(*info)));
  });
  const std::string provider(provider_of(**best));
  std::erase_if(offers, [&](const Info& info) { return provider_of(*info) != provider; });

  std::vector<Info> domains = best_by_domain(std::move(offers));
  std::vector<Info> rails = named(domains, options.interface);
  if (rails.empty()) {
    if (!options.interface.empty())
      log::warn("libfabric {} has no domain {}; taking {}", provider, options.interface,
                domain_of(*domains.front()));
    rails = by_default(std::move(domains), options);
  }
  const size_t limit =
      options.rails > 0 ? std::min<size_t>(kMaxRails, static_cast<size_t>(options.rails)) : kMaxRails;
  if (rails.size() > limit) rails.resize(limit);
  return rails;
}

}  // namespace weft::transport::ofi

namespace weft::transport {

namespace {

/// EFA's domains are called after the NIC and a kind of endpoint: "rdmap0s6-rdm".
std::string_view device_of(std::string_view domain) {
  constexpr std::string_view kKind = "-rdm";
  if (domain.ends_with(kKind)) domain.remove_suffix(kKind.size());
  return domain;
}

}  // namespace

size_t DomainFilter::place_of(std::string_view domain) const {
  const auto named = std::ranges::find_if(filter_.entries, [&](std::string_view entry) {
    return filter_.means(entry, domain) || filter_.means(entry, device_of(domain));
  });
  return static_cast<size_t>(named - filter_.entries.begin());
}

bool DomainFilter::takes(std::string_view domain) const {
  const bool named = place_of(domain) < filter_.entries.size();
  return filter_.excludes ? !named : named || filter_.entries.empty();
}

std::vector<ProviderInfo> list_providers() {
  using namespace ofi;
  if (const Status opened = open_library().status(); !opened.ok()) {
    log::warn("{}", opened.message());
    return {};
  }
  const std::vector<Info> fit = fitting("");
  const std::vector<Info> direct = query(gpu_hints_for("").get(), kGpuInterface);
  std::vector<ProviderInfo> providers;
  std::map<std::tuple<std::string, std::string, std::string>, size_t> seen;
  for (const Info& info : query(nullptr)) {
    ProviderInfo row;
    row.name = provider_of(*info);
    row.fabric = fabric_of(*info);
    row.domain = domain_of(*info);
    if (!seen.emplace(std::tuple(row.name, row.fabric, row.domain), providers.size()).second) continue;
    row.gigabits_per_s = gigabits(*info);
    row.why_not = why_not(*info, fit);
    row.usable = row.why_not.empty();
    row.gpu_memory = row.usable && std::ranges::any_of(direct, [&](const Info& offer) {
                       return (offer->caps & FI_HMEM) && provider_of(*offer) == row.name &&
                              domain_of(*offer) == row.domain;
                     });
    row.automatic = row.usable && preference(row.name) < std::size(kPreferred);
    providers.push_back(std::move(row));
  }
  std::ranges::stable_sort(providers, {}, [](const ProviderInfo& row) { return preference(row.name); });
  return providers;
}

bool efa_is_usable() {
  std::error_code none;
  if (std::filesystem::directory_iterator("/sys/class/infiniband", none) ==
      std::filesystem::directory_iterator())
    return false;
  return std::ranges::any_of(list_providers(), [](const ProviderInfo& provider) {
    return provider.usable && provider.name.find("efa") != std::string::npos;
  });
}

}  // namespace weft::transport
