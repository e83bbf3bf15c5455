#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/settings.h"
#include "info/section.h"
#include "plan/plan.h"
#include "topology/host.h"
#include "transport/ofi_providers.h"
#include "weft/weft.h"

namespace weft::info {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const topology::Host& host) {
  Json json{{"name", host.name},
            {"packages", host.packages},
            {"cores", host.cores},
            {"cpus", host.cpus.size()},
            {"allowed_cpus", host.allowed_cpus()},
            {"cpu_quota", host.cpu_quota},
            {"host_id", topology::host_id()}};
  for (const auto& node : host.numa_nodes)
    json["memory_nodes"].push_back({{"id", node.id}, {"bytes", node.bytes}});
  for (const auto& cache : host.caches) {
    json["caches"].push_back({{"level", cache.level}, {"bytes", cache.bytes}, {"count", cache.count}});
  }
  for (const auto& interface : host.interfaces) {
    json["interfaces"].push_back({{"name", interface.name},
                                  {"rdma", interface.rdma},
                                  {"up", interface.up},
                                  {"loopback", interface.loopback},
                                  {"carries", interface.carries},
                                  {"gbit_per_s", interface.gbit_per_s},
                                  {"memory_node", interface.numa},
                                  {"near_cpus", interface.near_cpus}});
  }
  for (const auto& gpu : host.gpus) {
    json["gpus"].push_back({{"name", gpu.name}, {"pci", gpu.pci}, {"memory_node", gpu.numa}});
  }
  return json;
}

/// `text` in lines of at most `width` characters, all but the first behind `indent` spaces.
std::string wrap(const std::string& text, size_t width, size_t indent) {
  std::string lines;
  size_t column = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    if (column > 0 && column + 1 + (end - at) > width) {
      lines.append("\n").append(indent, ' ');
      column = 0;
    }
    if (column > 0) lines.append(" "), ++column;
    lines.append(text, at, end - at);
    column += end - at;
    at = end + 1;
  }
  return lines.append("\n");
}

}  // namespace

Section version_section() {
  const std::string version = fmt::format("{}.{}.{}{}", WEFT_MAJOR, WEFT_MINOR, WEFT_PATCH, WEFT_SUFFIX);
  return {"version", fmt::format("weft {}\n", version), version};
}

Section topology_section() {
  const Result<topology::Host>& host = topology::discover_host();
  if (!host.ok()) return {"topology", host.status().message() + "\n", {{"error", host.status().message()}}};
  return {
      "topology",
      topology::to_string(*host) + fmt::format("ranks with host id {} share memory\n", topology::host_id()),
      json_of(*host)};
}

Section providers_section() {
  Section section{"providers", "", Json::array()};
  std::vector<std::string> lines;  // a provider offers a domain once for every address and mode
  for (const auto& provider : transport::list_providers()) {
    const std::string line =
        fmt::format("{:<14} {:<12} {:<16} {}{}\n", provider.name, provider.domain,
                    provider.gigabits_per_s > 0 ? fmt::format("{:g} Gbit/s", provider.gigabits_per_s)
                                                : "speed not stated",
                    !provider.usable     ? fmt::format("not usable: {}", provider.why_not)
                    : provider.automatic ? "usable"
                                         : fmt::format("usable with WEFT_PROVIDER='{}'", provider.name),
                    provider.gpu_memory ? ", offers GPUDirect (FI_HMEM)" : "");
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
    section.json.push_back({{"name", provider.name},
                            {"fabric", provider.fabric},
                            {"domain", provider.domain},
                            {"gbit_per_s", provider.gigabits_per_s},
                            {"usable", provider.usable},
                            {"automatic", provider.automatic},
                            {"gpu_memory", provider.gpu_memory},
                            {"why_not", provider.why_not}});
  }
  section.text = lines.empty() ? "libfabric offers none; ranks of different nodes meet over TCP\n"
                               : fmt::format("{}", fmt::join(lines, ""));
  return section;
}

Section settings_section() {
  Section section{"settings", "", Json::array()};
  std::string group;
  for (const SettingDoc& doc : setting_docs()) {
    if (doc.group != group) section.text += fmt::format("{}{}\n", group.empty() ? "" : "\n", doc.group);
    group = doc.group;
    const std::string value = current_value(doc.name);
    const bool changed = value != doc.default_value;
    section.text += fmt::format(
        "  {:<24} {}{}\n", doc.name, value.empty() ? "(empty)" : value,
        changed ? fmt::format("   (default {})", doc.default_value.empty() ? "empty" : doc.default_value)
                : "");
    const std::string kind = fmt::format("[{}{}{}]", doc.kind, doc.bounds.empty() ? "" : ", ", doc.bounds);
    section.text += fmt::format("      {}", wrap(fmt::format("{} {}", doc.meaning, kind), 92, 6));
    section.json.push_back({{"name", doc.name},
                            {"value", value},
                            {"default", doc.default_value},
                            {"kind", doc.kind},
                            {"bounds", doc.bounds},
                            {"meaning", doc.meaning},
                            {"group", doc.group}});
  }
  return section;
}

Section algorithms_section() {
  Section section{"algorithms", "", Json::object()};
  for (int c = 0; c < plan::kCollectives; ++c) {
    const auto collective = static_cast<plan::Collective>(c);
    section.text += fmt::format("{}\n", plan::name_of(collective));
    for (const plan::Algorithm& algorithm : plan::algorithms()) {
      if (algorithm.collective != collective) continue;
      section.text +=
          fmt::format("  {:<20} {}", algorithm.name, wrap(std::string(algorithm.sentence), 88, 23));
      section.json[plan::name_of(collective)][std::string(algorithm.name)] = algorithm.sentence;
    }
  }
  return section;
}

}  // namespace weft::info
