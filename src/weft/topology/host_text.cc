// Host as a tree of text.
#include <fmt/ranges.h>

#include <algorithm>

#include "topology/host.h"

namespace weft::topology {
namespace {

std::string bytes_text(uint64_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  return fmt::format("{:.{}f} {}", value, value < 10 && value != static_cast<int>(value) ? 1 : 0,
                     units[unit]);
}

/// {0, 1, 2, 5} as "0-2,5".
std::string ranges_text(const std::vector<int>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[i]);
    if (last > i) text += fmt::format("-{}", numbers[last]);
    i = last + 1;
  }
  return text;
}

std::string numa_text(int numa) { return numa < 0 ? "" : fmt::format(", at memory node {}", numa); }

std::string interface_text(const Interface& interface) {
  std::string text = interface.name;
  text += interface.loopback ? ": loopback" : interface.rdma ? ": RDMA device" : ": network interface";
  if (!interface.up) text += ", down";
  if (interface.gbit_per_s > 0) text += fmt::format(", {:g} Gbit/s", interface.gbit_per_s);
  else if (!interface.loopback) text += ", speed not stated";
  if (interface.up && !interface.loopback && !interface.carries) text += ", not used by connections of Weft";
  text += numa_text(interface.numa);
  if (!interface.near_cpus.empty()) text += fmt::format(", near CPUs {}", ranges_text(interface.near_cpus));
  return text;
}

}  // namespace

std::string to_string(const Host& host) {
  std::string text =
      fmt::format("host {}: {} package{}, {} core{}, {} logical CPU{}\n", host.name, host.packages,
                  host.packages == 1 ? "" : "s", host.cores, host.cores == 1 ? "" : "s", host.cpus.size(),
                  host.cpus.size() == 1 ? "" : "s");
  text += fmt::format("├─ CPUs of this process: {}", ranges_text(host.allowed_cpus()));
  if (host.cpu_quota > 0) text += fmt::format(" (time of {:.1f})", host.cpu_quota);
  text += "\n";
  for (const NumaNode& node : host.numa_nodes) {
    std::vector<int> cpus;
    for (const Cpu& cpu : host.cpus) {
      if (cpu.numa == node.id) cpus.push_back(cpu.id);
    }
    text +=
        fmt::format("├─ memory node {}: {}, CPUs {}\n", node.id, bytes_text(node.bytes), ranges_text(cpus));
  }
  std::vector<std::string> caches;
  for (const Cache& cache : host.caches) {
    caches.push_back(fmt::format("{} × L{} {}", cache.count, cache.level, bytes_text(cache.bytes)));
  }
  if (!caches.empty()) text += fmt::format("├─ caches: {}\n", fmt::join(caches, ", "));
  for (const Interface& interface : host.interfaces)
    text += fmt::format("├─ {}\n", interface_text(interface));
  for (const Gpu& gpu : host.gpus)
    text += fmt::format("├─ GPU {} ({}){}\n", gpu.name, gpu.pci, numa_text(gpu.numa));
  // The last branch ends the tree.
  if (const size_t last = text.rfind("├─"); last != std::string::npos) text.replace(last, 3, "└");
  return text;
}

}  // namespace weft::topology
