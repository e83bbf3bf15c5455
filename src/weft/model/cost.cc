#include "model/cost.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/sourced_json.h"

namespace weft::model {
namespace {

using Json = nlohmann::ordered_json;

/// Round trip of an empty message.
double round_trip_us(const Link& link) { return 2 * way_us(link); }

constexpr double kMostParts = 256;  // rails of a node, engines of a rank, ranks of a device or a thread
/// The greatest value of a field.
template <typename T>
constexpr double kMost = std::is_same_v<T, int> ? kMostParts : 1e15;

/// The one list of the JSON's fields: visit(section, key, member, least allowed value); a section of "" is
/// the top. Machine is `Machine` or `const Machine`.
template <typename AnyMachine, typename Visit>
void for_each_field(AnyMachine& machine, Visit&& visit) {
  constexpr double kAnyTime = 0, kRate = 1e-3;  // rates divide: a millionth of a GB/s is the least
  visit("", "name", machine.name, 0.0);
  for (auto [section, link] : {std::pair{"intra", &machine.intra}, std::pair{"inter", &machine.inter}}) {
    visit(section, "alpha_us", link->alpha_us, kAnyTime);
    visit(section, "overhead_us", link->overhead_us, kAnyTime);
    visit(section, "bytes_per_us", link->bytes_per_us, kRate);
    visit(section, "by_cpu", link->by_cpu, 0.0);
  }
  visit("inter", "sending_us", machine.inter.sending_us, kAnyTime);
  visit("inter", "behind_us", machine.inter.behind_us, kAnyTime);
  visit("inter", "gathered_us", machine.inter.gathered_us, kAnyTime);
  visit("inter", "received_bytes_per_us", machine.inter.received_bytes_per_us, 0.0);
  visit("inter", "sent_large_bytes_per_us", machine.inter.sent_large_bytes_per_us, 0.0);
  visit("inter", "received_large_bytes_per_us", machine.inter.received_large_bytes_per_us, 0.0);
  visit("", "net", machine.net, 0.0);
  visit("memory", "cache_bytes", machine.memory.cache_bytes, 0.0);
  visit("memory", "large_bytes", machine.memory.large_bytes, 0.0);
  visit("memory", "copy_cached", machine.memory.copy_cached, kRate);
  visit("memory", "copy_large", machine.memory.copy_large, kRate);
  visit("memory", "reduce_cached", machine.memory.reduce_cached, kRate);
  visit("memory", "reduce_large", machine.memory.reduce_large, kRate);
  visit("memory", "peer_cached", machine.memory.peer_cached, kRate);
  visit("memory", "peer_written", machine.memory.peer_written, 0.0);
  visit("memory", "peer_large", machine.memory.peer_large, kRate);
  visit("memory", "peer_reduced", machine.memory.peer_reduced, kRate);
  visit("memory", "peer_us", machine.memory.peer_us, kAnyTime);
  visit("memory", "mapped_near", machine.memory.mapped_near, 0.0);
  visit("memory", "mapped_cached", machine.memory.mapped_cached, kRate);
  visit("memory", "mapped_large", machine.memory.mapped_large, kRate);
  visit("memory", "node_bytes_per_us", machine.memory.node_bytes_per_us, 0.0);
  visit("", "nic_bytes_per_us", machine.nic_bytes_per_us, kRate);
  visit("", "crossing", machine.crossing, 0.01);
  visit("", "burst_bytes", machine.burst_bytes, 0.0);
  visit("", "rails", machine.rails, 1.0);
  visit("", "nic_message_us", machine.nic_message_us, kAnyTime);
  visit("", "stripe_bytes", machine.stripe_bytes, 1.0);
  visit("", "engines", machine.engines, 0.0);
  visit("", "engine_us", machine.engine_us, kAnyTime);
  visit("", "engine_step_us", machine.engine_step_us, kAnyTime);
  visit("", "device_ranks", machine.device_ranks, 1.0);
  visit("", "thread_ranks", machine.thread_ranks, 1.0);
  visit("", "cores", machine.cores, 0.01);
  visit("", "switch_us", machine.switch_us, kAnyTime);
  visit("", "step_us", machine.step_us, kAnyTime);
  visit("", "call_us", machine.call_us, kAnyTime);
}

Status read_value(const Json& json, const std::string& name, transport::Net& into, double) {
  const auto net = json.is_string() ? transport::find_net(json.get<std::string>()) : std::nullopt;
  if (!net)
    return fail(Code::invalid_argument, "machine: {} is {}, must be \"tcp\", \"efa\" or \"ofi\"", name,
                json.dump());
  into = *net;
  return {};
}

template <typename T>
Status read_value(const Json& json, const std::string& name, T& into, double least) {
  const bool fits = std::is_same_v<T, bool>          ? json.is_boolean()
                    : std::is_same_v<T, std::string> ? is_name(json)
                    : std::is_integral_v<T>          ? is_whole(json)
                                                     : json.is_number();
  if (!fits) {
    return fail(Code::invalid_argument, "machine: {} is {}, must be a {}", name, json.dump(),
                std::is_same_v<T, bool>          ? "boolean"
                : std::is_same_v<T, std::string> ? "string without control characters"
                : std::is_integral_v<T>          ? "whole number"
                                                 : "number");
  }
  if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
    const double value = json.get<double>();
    if (!(value >= least && value <= kMost<T>)) {
      return fail(Code::invalid_argument, "machine: {} is {}, must be in [{:g}, {:g}]", name, json.dump(),
                  least, kMost<T>);
    }
  }
  into = json.get<T>();
  return {};
}

/// Refuses keys that no field has.
Status check_keys(const Json& json, const Machine& machine) {
  std::vector<std::string> known;
  for_each_field(machine, [&](std::string_view section, std::string_view key, const auto&, double) {
    known.push_back(section.empty() ? std::string(key) : fmt::format("{}.{}", section, key));
  });
  const auto is_known = [&](const std::string& name) {
    return std::find(known.begin(), known.end(), name) != known.end();
  };
  for (const auto& [key, value] : json.items()) {
    const bool section = std::any_of(known.begin(), known.end(), [&, &key = key](const auto& name) {
      return name.starts_with(key + ".");
    });
    if (!section && !is_known(key)) return unknown_key("machine", key, known);
    if (!section) continue;
    if (!value.is_object()) {
      return fail(Code::invalid_argument, "machine: {} is {}, must be an object", key, value.dump());
    }
    for (const auto& [inner, ignored] : value.items()) {
      if (!is_known(key + "." + inner)) return unknown_key("machine", key + "." + inner, known);
    }
  }
  return {};
}

/// Where `bytes` lie between `from` and `to`, by their logarithms: 0 to 1.
double share_of_way(uint64_t bytes, uint64_t from, uint64_t to) {
  const auto octaves = [from](uint64_t to) {
    return std::log2(static_cast<double>(to) / static_cast<double>(from));
  };
  return bytes <= from ? 0 : std::min(octaves(bytes) / octaves(to), 1.0);
}

double between(double share, double rate, double other) { return 1 / ((1 - share) / rate + share / other); }

double moved_rate(double cached, double large, uint64_t buffer_bytes) {
  return large > 0 ? between(share_of_way(buffer_bytes, kSentCached, kSentLarge), cached, large) : cached;
}

constexpr double kLargeFactor = 16;  // from half of the cache to eight times it

/// The rate of what goes between the caches of two ranks: `near` while that is little.
double handed_rate(const Memory& memory, double near, uint64_t bytes) {
  if (bytes <= kMappedCached)
    return between(share_of_way(bytes, kMappedNear, kMappedCached), near, memory.mapped_cached);
  return between(share_of_way(bytes, 2 * kMappedCached, kMappedLarge), memory.mapped_cached,
                 memory.mapped_large);
}

double mapped_near(const Memory& memory) {
  return memory.mapped_near > 0 ? memory.mapped_near : memory.mapped_cached;
}

}  // namespace

double sent_rate(const Link& link, uint64_t buffer_bytes) {
  return moved_rate(link.bytes_per_us, link.sent_large_bytes_per_us, buffer_bytes);
}

double received_rate(const Link& link, uint64_t buffer_bytes) {
  const double cached = link.received_bytes_per_us > 0 ? link.received_bytes_per_us : link.bytes_per_us;
  return moved_rate(cached, link.received_large_bytes_per_us, buffer_bytes);
}

bool is_nic_bound(const Machine& machine) {
  constexpr double kWaiting = 1.5;
  return machine.net == transport::Net::tcp && machine.inter.by_cpu &&
         machine.inter.bytes_per_us >= kWaiting * machine.node_bytes_per_us();
}

uint64_t eager_incast_bytes(const Machine& machine) {
  // The kernel's shortest maximal segment: seven frames of 9000 bytes.
  constexpr uint64_t kSegment = 60 << 10;
  const double segment_us = static_cast<double>(kSegment) / machine.nic_bytes_per_us;
  const bool worth_asking = round_trip_us(machine.inter) < segment_us / 2;
  return is_nic_bound(machine) && worth_asking ? kSegment : UINT64_MAX;
}

uint64_t flight_bytes(const Machine& machine, const topology::Layout& layout) {
  constexpr double kRoundTrips = 4, kPauseUs = 1000;
  // The kernel sends so much at once, and takes one such piece more than it has room for.
  constexpr uint64_t kPiece = 64 << 10, kUsual = 2 * kPiece;
  constexpr uint64_t kMeeting = 8 * kPiece;  // of all streams, in a port's queue
  const Link& link = machine.inter;
  if (!is_nic_bound(machine)) return 0;
  const double carried = machine.nic_bytes_per_us * (kRoundTrips * round_trip_us(link) + kPauseUs);
  const auto streams = static_cast<uint64_t>(std::max(layout.ranks() - layout.ranks() / layout.nodes(), 1));
  const uint64_t bytes = std::max(std::min(kMeeting / streams, kUsual), static_cast<uint64_t>(carried));
  return std::max<uint64_t>(bytes / kPiece, 1) * kPiece;
}

Turns turns_of(const Machine& machine, const topology::Layout& layout, int node) {
  const auto of_node = static_cast<int>(layout.on_node(node).size());
  if (!machine.shares_cores(of_node)) return {};
  Turns turns{of_node, static_cast<int>(machine.cores), machine.nodes_share_cores()};
  // Thirds of a core are whole ones together.
  if (turns.across_nodes)
    turns = {layout.ranks(), static_cast<int>(machine.cores * layout.nodes() + 0.01), true};
  return turns.ranks <= Turns::kMostRanks * turns.cores ? turns : Turns{};
}

double large_share(const Memory& memory, uint64_t working_set_bytes) {
  const double begin = static_cast<double>(memory.cache_bytes) / 2;
  const double end = memory.large_bytes > 0 ? static_cast<double>(memory.large_bytes) : kLargeFactor * begin;
  if (begin <= 0) return 1;
  if (end <= begin) return static_cast<double>(working_set_bytes) > begin ? 1 : 0;
  const double octaves = std::log2(static_cast<double>(working_set_bytes) / begin);
  return std::clamp(octaves / std::log2(end / begin), 0.0, 1.0);
}

double mapped_rate(const Memory& memory, uint64_t bytes) {
  return handed_rate(memory, mapped_near(memory), bytes);
}

double written_rate(const Memory& memory, uint64_t bytes) {
  return handed_rate(memory, memory.peer_written > 0 ? memory.peer_written : mapped_near(memory), bytes);
}

double rate_for(const Memory& memory, uint64_t working_set_bytes, double cached, double large) {
  return between(large_share(memory, working_set_bytes), cached, large);
}

void fit_cache(Memory& memory, uint64_t middle_bytes, double middle_rate, uint64_t large_bytes) {
  constexpr double kMostShare = 0.75;
  const double slower = 1 / memory.reduce_large - 1 / memory.reduce_cached;
  const double share = slower > 0 ? (1 / middle_rate - 1 / memory.reduce_cached) / slower : 0;
  // octaves to the middle / octaves to the end = share
  const double beyond = std::log2(static_cast<double>(large_bytes) / static_cast<double>(middle_bytes));
  const double held = std::clamp(share, 0.0, kMostShare);
  const double octaves = beyond * held / (1 - held);
  memory.cache_bytes = static_cast<uint64_t>(2 * static_cast<double>(middle_bytes) / std::exp2(octaves));
  memory.large_bytes = large_bytes;
}

Machine machine_of(const topology::Host& host, int nodes_on_host) {
  Machine machine;
  machine.name = host.name;
  const double allowed = static_cast<double>(host.allowed_cpus().size());
  const double cores = host.cpu_quota > 0 ? std::min(allowed, host.cpu_quota) : allowed;
  machine.cores = std::max(cores / std::max(nodes_on_host, 1), 0.01);
  // A core's part of the last level: other ranks use the rest. Virtual machines state the whole socket's.
  if (!host.caches.empty() && host.cores > 0) {
    const topology::Cache& last = host.caches.back();
    const uint64_t part = last.bytes * last.count / host.cores;
    machine.memory.cache_bytes = std::min(machine.memory.cache_bytes, part);
  }
  if (nodes_on_host > 1) return machine;
  double fastest = 0;
  for (const topology::Interface& interface : host.interfaces) {
    if (!interface.up || interface.loopback || !interface.carries || interface.gbit_per_s < fastest ||
        interface.gbit_per_s == 0)
      continue;
    machine.rails = interface.gbit_per_s > fastest ? 1 : machine.rails + 1;
    fastest = interface.gbit_per_s;
  }
  if (fastest > 0) machine.nic_bytes_per_us = fastest * 1000 / 8;
  return machine;
}

std::vector<float> to_numbers(const Machine& machine) {
  std::vector<float> numbers;
  for_each_field(machine, [&](const char*, const char*, const auto& member, double) {
    if constexpr (!std::is_same_v<std::decay_t<decltype(member)>, std::string>)
      numbers.push_back(static_cast<float>(member));
  });
  return numbers;
}

Result<Machine> from_numbers(std::span<const float> numbers) {
  Machine machine;
  if (const size_t known = to_numbers(machine).size(); numbers.size() != known)
    return fail(Code::invalid_argument, "machine: it has {} numbers, must have {}", numbers.size(), known);
  size_t at = 0;
  Status first;
  for_each_field(machine, [&](const char* section, const char* key, auto& member, double least_value) {
    using Member = std::decay_t<decltype(member)>;
    if constexpr (!std::is_same_v<Member, std::string>) {
      const float number = numbers[at++];
      const double greatest = std::is_same_v<Member, transport::Net>
                                  ? static_cast<double>(transport::Net::ofi)
                              : std::is_same_v<Member, bool> ? 1
                                                             : kMost<Member>;
      // As floats, for that is what a sender's least value has become.
      const auto least = static_cast<float>(least_value), most = static_cast<float>(greatest);
      if (number >= least && number <= most) member = static_cast<Member>(number);
      else if (first.ok())
        first = fail(Code::invalid_argument, "machine: {}{}{} is {:g}, must be in [{:g}, {:g}]", section,
                     *section ? "." : "", key, number, least, most);
    }
  });
  if (!first.ok()) return first;
  return machine;
}

std::string to_json(const Machine& machine) {
  Json json;
  for_each_field(machine, [&](const char* section, const char* key, const auto& member, double) {
    Json& into = *section ? json[section][key] : json[key];
    if constexpr (std::is_same_v<std::decay_t<decltype(member)>, transport::Net>) into = name_of(member);
    else into = member;
  });
  return json.dump(2);
}

Result<Machine> machine_from_json(const std::string& text) {
  const Result<Json> parsed = parse_sourced(text, "machine");
  if (!parsed.ok()) return parsed.status();
  const Json& json = *parsed;
  Machine machine;
  WEFT_TRY(check_keys(json, machine));
  Status first;
  for_each_field(machine, [&](const std::string& section, const char* key, auto& member, double least) {
    if (!first.ok() || (!section.empty() && !json.contains(section))) return;
    const Json& from = section.empty() ? json : json[section];
    if (!from.contains(key)) return;
    first = read_value(from[key], section.empty() ? key : section + "." + key, member, least);
  });
  if (!first.ok()) return first;
  return machine;
}

}  // namespace weft::model
