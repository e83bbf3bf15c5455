#include "topology/sysfs.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>

namespace weft::topology::sysfs {
namespace fs = std::filesystem;
namespace {

/// The first line of a file, or "" if it cannot be read: many attributes of interfaces that are down cannot.
std::string read_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<double> read_number(const fs::path& path) {
  const std::string line = read_line(path);
  double value = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    // bonding_masters and its like are files, not interfaces.
    if (fs::is_directory(it->path(), error)) names.push_back(it->path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

void read_locality(const fs::path& device, Interface& interface) {
  if (const auto numa = read_number(device / "numa_node")) interface.numa = static_cast<int>(*numa);
  interface.near_cpus = parse_cpu_list(read_line(device / "local_cpulist"));
}

Interface read_net(const fs::path& folder) {
  constexpr int kLoopbackType = 772;  // ARPHRD_LOOPBACK
  Interface interface;
  interface.name = folder.filename();
  interface.loopback = read_number(folder / "type").value_or(0) == kLoopbackType;
  const std::string state = read_line(folder / "operstate");
  interface.up = state == "up" || state == "unknown";  // drivers without carrier detection say "unknown"
  if (const double mbit = read_number(folder / "speed").value_or(-1); mbit > 0)
    interface.gbit_per_s = mbit / 1000;
  read_locality(folder / "device", interface);
  return interface;
}

Interface read_rdma(const fs::path& folder) {
  Interface interface;
  interface.name = folder.filename();
  interface.rdma = true;
  for (const std::string& port : names_in(folder / "ports")) {
    if (read_line(folder / "ports" / port / "state").find("ACTIVE") == std::string::npos) continue;
    interface.up = true;
    interface.gbit_per_s +=
        read_number(folder / "ports" / port / "rate").value_or(0);  // "100 Gb/sec (4X EDR)"
  }
  read_locality(folder / "device", interface);
  return interface;
}

/// CPUs' worth of time that a control group grants; 0 = no limit.
double quota_of(const fs::path& group) {
  // No limit is "max 100000", which does not parse as a number, and -1 in version 1.
  double quota_us = 0, period_us = 0;
  std::ifstream limit(group / "cpu.max");
  if (!(limit >> quota_us >> period_us)) {
    quota_us = read_number(group / "cpu.cfs_quota_us").value_or(0);
    period_us = read_number(group / "cpu.cfs_period_us").value_or(0);
  }
  return quota_us > 0 && period_us > 0 ? quota_us / period_us : 0;
}

std::optional<unsigned> read_hex(const fs::path& path) {
  const std::string line = read_line(path);  // "0x10de"
  unsigned value = 0;
  if (!line.starts_with("0x") ||
      std::from_chars(line.data() + 2, line.data() + line.size(), value, 16).ec != std::errc()) {
    return std::nullopt;
  }
  return value;
}

std::string vendor_name(unsigned pci_vendor) {
  switch (pci_vendor) {
    case 0x10de: return "NVIDIA";
    case 0x1002: return "AMD";
    case 0x8086: return "Intel";
    default: return fmt::format("vendor {:04x}", pci_vendor);
  }
}

}  // namespace

std::vector<Gpu> read_gpus(const std::string& root) {
  constexpr unsigned kDisplay =
      0x03;  // PCI base class; a data centre's GPUs are its subclass 02, 3D controllers
  std::vector<Gpu> gpus;
  const fs::path devices = fs::path(root) / "bus/pci/devices";
  for (const std::string& address : names_in(devices)) {
    if (read_hex(devices / address / "class").value_or(0) >> 16 != kDisplay) continue;
    gpus.push_back(
        {.name = fmt::format("{} {:04x}", vendor_name(read_hex(devices / address / "vendor").value_or(0)),
                             read_hex(devices / address / "device").value_or(0)),
         .pci = address,
         .numa = static_cast<int>(read_number(devices / address / "numa_node").value_or(-1))});
  }
  return gpus;
}

std::vector<int> parse_cpu_list(const std::string& text) {
  std::vector<int> cpus;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    int first = 0, last = 0;
    auto parsed = std::from_chars(at, end, first);
    if (parsed.ec != std::errc()) return {};
    last = first;
    if (parsed.ptr != end && *parsed.ptr == '-') parsed = std::from_chars(parsed.ptr + 1, end, last);
    if (parsed.ec != std::errc() || last < first) return {};
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    at = parsed.ptr;
    if (at != end && *at++ != ',') return {};
  }
  return cpus;
}

std::vector<Interface> read_interfaces(const std::string& root) {
  std::vector<Interface> interfaces;
  const fs::path net = fs::path(root) / "class/net", rdma = fs::path(root) / "class/infiniband";
  for (const std::string& name : names_in(net)) interfaces.push_back(read_net(net / name));
  for (const std::string& name : names_in(rdma)) interfaces.push_back(read_rdma(rdma / name));
  return interfaces;
}

double read_cpu_quota(const std::string& membership, const std::string& hierarchy) {
  std::ifstream file(membership);
  double tightest = 0;
  for (std::string line; std::getline(file, line);) {
    // "0::/jobs/one" of version 2, "4:cpu,cpuacct:/jobs/one" of version 1
    const size_t first = line.find(':'), second = line.find(":/", first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && ("," + controllers + ",").find(",cpu,") == std::string::npos) continue;
    // A group's limit holds for all groups below it: climb from ours to the root.
    for (fs::path group = line.substr(second + 2);; group = group.parent_path()) {
      const double cpus = quota_of(fs::path(hierarchy) / controllers / group);
      if (cpus > 0 && (tightest == 0 || cpus < tightest)) tightest = cpus;
      if (group.empty()) break;
    }
  }
  return tightest;
}

}  // namespace weft::topology::sysfs
