// The discovery of devices.
#include "devices.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <numeric>
#include <set>
#include <utility>

#include "base/hash.h"
#include "base/log.h"
#include "base/settings.h"
#include "bootstrap/interfaces.h"
#include "topology/host.h"
#include "topology/interface_rules.h"
#include "transport/ofi_providers.h"

namespace weft::nccl_net {
namespace {

constexpr int kMegabitUnknown = 10'000;

/// "0000:10:1c.0"
bool is_pci_address(const std::string& name) {
  return name.size() == 12 && name[4] == ':' && name[7] == ':' && name[10] == '.';
}

/// The PCI device behind an interface or RDMA device, or "": a virtio card is a child of its PCI device.
std::string pci_path_of(const std::string& interface) {
  for (const char* kind : {"net", "infiniband"}) {
    std::error_code error;
    std::filesystem::path path =
        std::filesystem::canonical(fmt::format("/sys/class/{}/{}/device", kind, interface), error);
    for (; !error && path.has_relative_path(); path = path.parent_path())
      if (is_pci_address(path.filename().string())) return path.string();
  }
  return "";
}

/// What is behind a libfabric domain: "rdmap0s6" of "rdmap0s6-rdm".
std::string interface_of(const std::string& domain) {
  const Result<topology::Host>& host = topology::discover_host();
  for (size_t end = domain.size(); host.ok() && end != std::string::npos && end > 0;
       end = domain.rfind('-', end - 1))
    if (host->find_interface(domain.substr(0, end))) return domain.substr(0, end);
  return domain;
}

int speed_of(const std::string& interface) {
  const Result<topology::Host>& host = topology::discover_host();
  const topology::Interface* found = host.ok() ? host->find_interface(interface) : nullptr;
  return found && found->gbit_per_s > 0 ? static_cast<int>(found->gbit_per_s * 1000) : kMegabitUnknown;
}

/// Those that lead to other hosts: physical ones, or what else is not loopback, or loopback.
std::vector<bootstrap::Interface> leading_away(std::vector<bootstrap::Interface> all) {
  const auto keep = [&](auto predicate) {
    std::vector<bootstrap::Interface> kept;
    std::copy_if(all.begin(), all.end(), std::back_inserter(kept), predicate);
    return kept;
  };
  std::vector<bootstrap::Interface> kept = keep([](auto& i) { return i.physical; });
  if (kept.empty()) kept = keep([](auto& i) { return !i.address.loopback(); });
  return kept.empty() ? all : kept;
}

Result<std::vector<bootstrap::Interface>> chosen_interfaces() {
  const std::string& filter = settings().socket_ifname;
  const bool named = topology::InterfaceFilter(filter).names();
  Result<std::vector<bootstrap::Interface>> all = bootstrap::interfaces(named);
  if (!all.ok()) return all;
  Result<std::vector<bootstrap::Interface>> chosen = bootstrap::choose_interfaces(all.take(), filter);
  if (!chosen.ok() || named) return chosen;
  return leading_away(chosen.take());
}

}  // namespace

Result<Devices*> Devices::get() {
  static Devices& devices = *new Devices;
  static const Status status = devices.discover();
  if (!status.ok()) return status;
  return &devices;
}

Status Devices::discover() {
  WEFT_TRY(settings_status());
  const Settings& chosen = settings();
  if (chosen.net == "ofi") return discover_ofi(chosen.provider);
  if (chosen.net == "auto" && transport::efa_is_usable()) return discover_ofi("efa");
  return discover_tcp();
}

Status Devices::discover_tcp() {
  Result<std::vector<bootstrap::Interface>> interfaces = chosen_interfaces();
  if (!interfaces.ok()) return interfaces.status();
  for (const bootstrap::Interface& interface : *interfaces) {
    Device device;
    device.name = interface.name;
    device.pci_path = pci_path_of(interface.name);
    device.megabit_per_s = speed_of(interface.name);
    device.rails = {interface.name};
    device.addresses = {interface.address};
    add(std::move(device));
  }
  if (devices_.empty()) return fail(Code::system_error, "this host has no network interface that is up");
  return {};
}

Status Devices::discover_ofi(const std::string& wanted) {
  const std::vector<transport::ProviderInfo> rows = transport::list_providers();
  const transport::DomainFilter filter(settings().ofi_domains);
  const auto suits = [&](const transport::ProviderInfo& row) {
    if (!row.usable || !filter.takes(row.domain)) return false;
    return wanted.empty() ? row.automatic : row.name == wanted || row.name.starts_with(wanted + ";");
  };
  auto best =
      std::find_if(rows.begin(), rows.end(), [&](auto& row) { return suits(row) && row.name == wanted; });
  if (best == rows.end()) best = std::find_if(rows.begin(), rows.end(), suits);
  if (best == rows.end()) {
    std::set<std::string> names;
    for (const auto& row : rows)
      if (row.usable) names.insert(fmt::format("{} ({})", row.name, row.domain));
    return fail(
        Code::invalid_setting, "libfabric has no provider {} here that Weft can use{}; it offers {}",
        wanted.empty() ? "of its own accord" : "'" + wanted + "'",
        settings().ofi_domains.empty()
            ? ""
            : fmt::format(" with domains as WEFT_OFI_DOMAINS ('{}') names them", settings().ofi_domains),
        fmt::join(names, ", "));
  }
  const Result<bootstrap::SocketAddress> meeting = bootstrap::host_address(settings().socket_ifname);
  if (!meeting.ok()) return meeting.status();
  const Result<std::vector<bootstrap::Interface>> interfaces = chosen_interfaces();
  if (!interfaces.ok()) return interfaces.status();
  // A provider over sockets has a domain for every interface of the host, wherever that leads.
  const Result<std::vector<bootstrap::Interface>> all = bootstrap::interfaces(true);
  const auto among = [](const auto& list, const std::string& name) {
    return list.ok() && std::any_of(list->begin(), list->end(), [&](auto& i) { return i.name == name; });
  };
  std::set<std::string> seen;
  for (const transport::ProviderInfo& row : rows) {
    if (!suits(row) || row.name != best->name || !seen.insert(row.domain).second) continue;
    if (!filter.names() && among(all, row.domain) && !among(interfaces, row.domain)) continue;
    const std::string interface = interface_of(row.domain);
    Device device;
    device.way = Way::ofi;
    device.name = row.domain;
    device.pci_path = pci_path_of(interface);
    device.megabit_per_s =
        row.gigabits_per_s > 0 ? static_cast<int>(row.gigabits_per_s * 1000) : speed_of(interface);
    device.provider = row.name;
    device.rails = {row.domain};
    device.addresses = {*meeting};
    add(std::move(device));
  }
  if (devices_.empty())
    return fail(Code::invalid_setting, "libfabric's provider {} has no domain on the chosen interfaces",
                best->name);
  return {};
}

void Devices::add(Device device) {
  device.guid = hash_64(topology::host_id() + "/" + device.name);
  device.parts = {static_cast<int>(devices_.size())};
  devices_.push_back(std::make_unique<const Device>(std::move(device)));
  physical_ = counted_ = devices_.size();
}

int Devices::count() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(counted_);
}

void Devices::count_afresh() {
  const std::lock_guard lock(mutex_);
  counted_ = physical_;
}

Result<const Device*> Devices::at(int number) const {
  const std::lock_guard lock(mutex_);
  if (number < 0 || number >= static_cast<int>(devices_.size()))
    return fail(Code::invalid_argument, "there is no network device {}, only 0 to {}", number,
                devices_.size() - 1);
  return devices_[static_cast<size_t>(number)].get();
}

Result<int> Devices::combine(std::span<const int> parts) {
  if (parts.empty() || parts.size() > kMostRails)
    return fail(Code::invalid_argument, "a virtual device of {} devices was asked for, must be 1 to {}",
                parts.size(), kMostRails);
  Device whole;
  for (const int number : parts) {
    const Result<const Device*> part = at(number);
    if (!part.ok()) return part.status();
    const Device& device = **part;
    if (device.parts.size() > 1)
      return fail(Code::invalid_argument, "device {} is virtual already and cannot be part of another",
                  number);
    if (whole.name.empty()) whole = device, whole.parts.clear();
    else whole.name += "+" + device.name, whole.megabit_per_s += device.megabit_per_s;
    if (!whole.parts.empty()) {
      whole.rails.push_back(device.rails.front());
      if (whole.way == Way::tcp) whole.addresses.push_back(device.addresses.front());
    }
    whole.parts.push_back(number);
  }
  const std::lock_guard lock(mutex_);
  const size_t number = counted_++;
  auto device = std::make_unique<const Device>(std::move(whole));
  if (number == devices_.size()) devices_.push_back(std::move(device));
  else if (devices_[number]->parts != device->parts)
    replaced_.push_back(std::exchange(devices_[number], std::move(device)));
  return static_cast<int>(number);
}

}  // namespace weft::nccl_net
