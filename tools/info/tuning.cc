#include <fmt/format.h>

#include "base/settings.h"
#include "info/section.h"
#include "model/machine_cache.h"

namespace weft::info {
namespace {

using Json = nlohmann::ordered_json;

std::string link_text(const model::Link& link) {
  return fmt::format("{:.3g} µs one way ({:.3g} of it each CPU's), {:.2f} GB/s",
                     link.alpha_us + 2 * link.overhead_us, link.overhead_us, link.bytes_per_us / 1000);
}

std::string text_of(const model::Cached& cached) {
  const model::Machine& m = cached.machine;
  const model::Memory& memory = m.memory;
  std::string text =
      fmt::format("{}: measured {}, {} rank{} at work on a node\n", cached.path, cached.measured_at,
                  cached.facts.active, cached.facts.active == 1 ? "" : "s");
  if (!cached.doubt.empty())
    text += fmt::format("  doubtful: {}; not used, the next job measures again\n", cached.doubt);
  const auto line = [&](const char* what, const std::string& value) {
    text += fmt::format("  {:<20} {}\n", what, value);
  };
  if (!cached.facts.intra.empty()) {
    line("inside a node", fmt::format("{} ({}{})", link_text(m.intra), cached.facts.intra,
                                      cached.facts.threads ? ", ranks are threads" : ""));
    line("a peer's memory", fmt::format("{:.1f} GB/s in the cache, {:.1f} beyond, {:.2f} µs a call",
                                        memory.peer_cached / 1000, memory.peer_large / 1000, memory.peer_us));
  }
  if (!cached.facts.inter.empty()) {
    line("between nodes", fmt::format("{} ({}{})", link_text(m.inter), cached.facts.inter,
                                      cached.facts.one_machine ? ", all on this machine" : ""));
    line("interfaces of a node", fmt::format("{} of {:.3f} GB/s", m.rails, m.nic_bytes_per_us / 1000));
  }
  if (cached.facts.crowding > 1)
    line("shared cores",
         fmt::format("{:g} ranks each, {:.2f} µs a wait", cached.facts.crowding, m.switch_us));
  line("copies", fmt::format("{:.1f} GB/s in the cache, {:.1f} beyond", memory.copy_cached / 1000,
                             memory.copy_large / 1000));
  line("reductions", fmt::format("{:.1f} GB/s in the cache, {:.1f} beyond", memory.reduce_cached / 1000,
                                 memory.reduce_large / 1000));
  return text;
}

}  // namespace

Section tuning_section() {
  const std::string directory = model::cache_directory();
  Section section{"tuning", "", Json::object()};
  section.json["directory"] = directory;
  section.json["measured"] = Json::array();
  if (directory.empty()) {
    section.text = "measurements are not kept (WEFT_TUNE_CACHE)\n";
    return section;
  }
  const Result<topology::Host>& host = topology::discover_host();
  if (!host.ok()) return {"tuning", host.status().message() + "\n", {{"error", host.status().message()}}};
  for (const std::string& problem : model::damaged_files(directory)) {
    section.text += problem + "\n";
    section.json["damaged"].push_back(problem);
  }
  for (const model::Cached& cached : model::list_cached(directory, *host)) {
    section.text += text_of(cached);
    section.json["measured"].push_back({{"path", cached.path},
                                        {"measured_at", cached.measured_at},
                                        {"doubt", cached.doubt},
                                        {"active", cached.facts.active},
                                        {"intra", cached.facts.intra},
                                        {"threads", cached.facts.threads},
                                        {"inter", cached.facts.inter},
                                        {"one_machine", cached.facts.one_machine},
                                        {"machine", Json::parse(model::to_json(cached.machine))}});
  }
  if (section.json["measured"].empty())
    section.text += fmt::format("nothing is measured of this machine in {}\n", directory);
  section.text += "a job with WEFT_TUNE=refresh measures anew\n";
  return section;
}

}  // namespace weft::info
