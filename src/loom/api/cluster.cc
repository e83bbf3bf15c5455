// Clusters as weft_sim's descriptions have them: what of such a file a plan needs.
#include <algorithm>
#include <cmath>

#include "format/json_file.h"
#include "loom/plan.h"

namespace loom {
namespace {

using format::Json;

/// The keys of each part of a description, as weft_sim reads it. A plan needs few of them. The others are
/// listed, so that a misspelt key is refused.
struct Part {
  std::string name;
  std::vector<std::string> keys;
};
const std::vector<Part>& parts() {
  static const std::vector<Part> kParts = {
      {"",
       {"name", "nodes", "ranks_per_node", "compute", "tier", "engines", "machine", "fabric", "slow_nodes",
        "slow_rails", "incast"}},
      {"compute",
       {"gflops", "fp32_gflops", "gemm_efficiency", "memory_efficiency", "flash_efficiency",
        "product_efficiency", "multiprocessors", "launch_us", "memory_gib"}},
      {"tier", {"gb_per_s"}},
      {"engines{}",
       {"gather_gb_per_s", "reduce_gb_per_s", "all_reduce_gb_per_s", "all_reduce_latency_us",
        "intra_gb_per_s", "hidden", "multiprocessors", "gradient_bits", "scatters_transfers", "fuses_sums"}},
      {"machine", {"name",         "intra",
                   "inter",        "net",
                   "memory",       "nic_bytes_per_us",
                   "crossing",     "burst_bytes",
                   "rails",        "nic_message_us",
                   "stripe_bytes", "engines",
                   "engine_us",    "engine_step_us",
                   "device_ranks", "thread_ranks",
                   "cores",        "switch_us",
                   "step_us",      "call_us"}},
      {"machine.intra", {"alpha_us", "overhead_us", "bytes_per_us", "by_cpu"}},
      {"machine.inter",
       {"alpha_us", "overhead_us", "bytes_per_us", "by_cpu", "sending_us", "behind_us", "gathered_us",
        "received_bytes_per_us", "sent_large_bytes_per_us", "received_large_bytes_per_us"}},
      {"machine.memory",
       {"cache_bytes", "large_bytes", "copy_cached", "copy_large", "reduce_cached", "reduce_large",
        "peer_cached", "peer_written", "peer_large", "peer_reduced", "peer_us", "mapped_near",
        "mapped_cached", "mapped_large", "node_bytes_per_us"}},
      {"fabric", {"nodes_per_leaf", "oversubscription"}},
      {"slow_nodes[]", {"node", "rate"}},
      {"slow_rails[]", {"node", "rail", "rate"}},
      {"incast[]", {"node", "streams"}},
  };
  return kParts;
}

std::string joined(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + "." + key;
}

Status wrong(const std::string& name, const Json& value, const char* right) {
  return fail(Code::invalid_argument, "{} is {}, must be {}", name, value.dump(), right);
}

/// A value may say where it is from: 12500, or {"value": 12500, "source": "data sheet"}; an object may have a
/// "source" for all that is in it. This removes the sources.
Status take_sources(Json& json, const std::string& name) {
  if (json.is_array()) {
    for (Json& item : json) LOOM_TRY(take_sources(item, name + "[]"));
  }
  if (!json.is_object()) return {};
  if (const auto source = json.find("source"); source != json.end()) {
    if (!source->is_string()) return wrong(joined(name, "source"), *source, "a text");
    json.erase("source");
  }
  if (!json.contains("value")) {
    for (const auto& [key, inner] : json.items()) LOOM_TRY(take_sources(inner, joined(name, key)));
    return {};
  }
  for (const auto& [key, other] : json.items()) {
    if (key != "value")
      return fail(Code::invalid_argument, "there is no key {}; beside a value there is only its source",
                  Json(joined(name, key)).dump());
  }
  Json value = std::move(json["value"]);
  json = std::move(value);
  return {};
}

Status check_value(const std::string& name, const std::string& key, const Json& value) {
  if (key == "name" || key == "net") return value.is_string() ? Status() : wrong(name, value, "a text");
  if (key == "by_cpu") return value.is_boolean() ? Status() : wrong(name, value, "true or false");
  return value.is_number() ? Status() : wrong(name, value, "a number");
}

/// Refuses what no part of a description has, and values that are of another type.
Status check_keys(const Json& json, const Part& part) {
  const std::string path = part.name;
  if (!json.is_object()) return wrong(path.empty() ? "this" : path, json, "an object");
  for (const auto& [key, value] : json.items()) {
    const std::string name = joined(path, key);
    if (std::find(part.keys.begin(), part.keys.end(), key) == part.keys.end()) {
      const std::string nearest = format::nearest_name(key, part.keys);
      return fail(Code::invalid_argument, "there is no key {}{}", Json(name).dump(),
                  nearest.empty() ? "" : "; did you mean " + joined(path, nearest) + "?");
    }
    const auto named = [&](const std::string& wanted) {
      return std::find_if(parts().begin(), parts().end(),
                          [&](const Part& other) { return other.name == wanted; });
    };
    if (const auto inner = named(name); inner != parts().end()) {
      LOOM_TRY(check_keys(value, *inner));
    } else if (const auto item_part = named(name + "[]"); item_part != parts().end()) {
      if (!value.is_array()) return wrong(name, value, "a list");
      for (const Json& item : value) LOOM_TRY(check_keys(item, *item_part));
    } else if (const auto any_part = named(name + "{}"); any_part != parts().end()) {
      if (!value.is_object()) return wrong(name, value, "an object");
      for (const auto& [own, item] : value.items())
        LOOM_TRY(check_keys(item, {joined(name, own), any_part->keys}));
    } else {
      LOOM_TRY(check_value(name, key, value));
    }
  }
  return {};
}

/// A part of the description, and what it is called in complaints.
class Section {
 public:
  Section(const Json& json, std::string name) : json_(&json), name_(std::move(name)) {}

  Section section(const char* key) const {
    static const Json kNothing = Json::object();
    const auto found = json_->find(key);
    return Section(found == json_->end() ? kNothing : *found, joined(name_, key));
  }

  /// Leaves `into` as it is where there is no such key.
  Status number(const char* key, double least, double most, double& into) const {
    const auto found = json_->find(key);
    if (found == json_->end()) return {};
    const double value = found->get<double>();
    if (!(value >= least && value <= most))
      return fail(Code::invalid_argument, "{} is {}, must be a number from {} to {}", joined(name_, key),
                  found->dump(), least, most);
    into = value;
    return {};
  }
  Status whole_number(const char* key, double least, double most, int64_t& into) const {
    double value = static_cast<double>(into);
    LOOM_TRY(number(key, least, most, value));
    if (value != std::floor(value))
      return fail(Code::invalid_argument, "{} is {}, must be a whole number", joined(name_, key), value);
    into = static_cast<int64_t>(value);
    return {};
  }

 private:
  const Json* json_;
  std::string name_;
};

/// What of one hop's time does not depend on its bytes: the way, and a CPU's part at both ends.
Status read_latency(const Section& link, double& latency_us) {
  double alpha = -1, overhead = 0;
  LOOM_TRY(link.number("alpha_us", 0, 1e6, alpha));
  LOOM_TRY(link.number("overhead_us", 0, 1e6, overhead));
  if (alpha >= 0) latency_us = alpha + 2 * overhead;
  return {};
}

Status read_machine(const Section& machine, Cluster& cluster) {
  constexpr double kMost = 1e9, kPerSecond = 1e6;  // µs in it
  const Section intra = machine.section("intra"), memory = machine.section("memory");
  LOOM_TRY(read_latency(intra, cluster.intra_latency_us));
  LOOM_TRY(read_latency(machine.section("inter"), cluster.inter_latency_us));
  double rank = 0, interface = 0, crossing = 1, copies = 0;
  int64_t rails = 1;
  LOOM_TRY(intra.number("bytes_per_us", 1, kMost, rank));
  LOOM_TRY(machine.number("nic_bytes_per_us", 1, kMost, interface));
  LOOM_TRY(machine.whole_number("rails", 1, 256, rails));
  LOOM_TRY(machine.number("crossing", 1e-3, 1, crossing));
  LOOM_TRY(memory.number("copy_large", 1, kMost, copies));
  cluster.intra_bandwidth = rank * kPerSecond;
  cluster.inter_bandwidth = interface * static_cast<double>(rails) * crossing * kPerSecond;
  cluster.interfaces = static_cast<int>(rails);
  cluster.memory_bandwidth = 2 * copies * kPerSecond;  // a copy reads and writes
  return {};
}

constexpr double kGiga = 1e9;

Status read_compute(const Section& part, Cluster& cluster) {
  Compute& compute = cluster.compute;
  double gflops = 0, fp32 = 0, gib = 0;
  int64_t multiprocessors = 0;
  LOOM_TRY(part.number("gflops", 0, 1e9, gflops));
  LOOM_TRY(part.number("fp32_gflops", 0, 1e9, fp32));
  LOOM_TRY(part.number("gemm_efficiency", 1e-3, 1, compute.gemm_efficiency));
  for (const auto& [key, into] : {std::pair{"memory_efficiency", &compute.memory_efficiency},
                                  {"flash_efficiency", &compute.flash_efficiency},
                                  {"product_efficiency", &compute.product_efficiency}})
    LOOM_TRY(part.number(key, 0, 1, *into));
  LOOM_TRY(part.whole_number("multiprocessors", 0, 1e5, multiprocessors));
  LOOM_TRY(part.number("launch_us", 0, 1e6, compute.launch_us));
  LOOM_TRY(part.number("memory_gib", 0, 1e6, gib));
  cluster.flops = gflops * kGiga;
  compute.fp32_flops = fp32 * kGiga;
  compute.memory_bytes = gib * (1 << 30);
  compute.multiprocessors = static_cast<int>(multiprocessors);
  return {};
}

Result<EngineRates> read_engine(const Section& part, const std::string& name) {
  EngineRates engine;
  engine.name = name;
  for (const auto& [key, into] : {std::pair{"gather_gb_per_s", &engine.gather_bandwidth},
                                  {"reduce_gb_per_s", &engine.reduce_bandwidth},
                                  {"all_reduce_gb_per_s", &engine.all_reduce_bandwidth},
                                  {"intra_gb_per_s", &engine.intra_bandwidth}}) {
    LOOM_TRY(part.number(key, 0, 1e6, *into));
    *into *= kGiga;
  }
  int64_t multiprocessors = 0, bits = engine.gradient_bits;
  LOOM_TRY(part.number("all_reduce_latency_us", 0, 1e6, engine.all_reduce_latency_us));
  LOOM_TRY(part.number("hidden", 0, 1, engine.hidden));
  LOOM_TRY(part.whole_number("multiprocessors", 0, 1e5, multiprocessors));
  LOOM_TRY(part.whole_number("gradient_bits", 16, 32, bits));
  if (bits != 16 && bits != 32)
    return fail(Code::invalid_argument, "engines.{}.gradient_bits is {}, must be 16 or 32", name, bits);
  int64_t scatters = 0, fuses = 0;
  LOOM_TRY(part.whole_number("scatters_transfers", 0, 1, scatters));
  LOOM_TRY(part.whole_number("fuses_sums", 0, 1, fuses));
  engine.scatters_transfers = scatters == 1;
  engine.fuses_sums = fuses == 1;
  engine.multiprocessors = static_cast<int>(multiprocessors);
  engine.gradient_bits = static_cast<int>(bits);
  return engine;
}

Result<Cluster> cluster_of(Json json) {
  const std::string text = json.dump();
  LOOM_TRY(take_sources(json, ""));
  LOOM_TRY(check_keys(json, parts().front()));
  const Section top(json, "");
  constexpr int64_t kMostRanks = 1 << 20;
  int64_t nodes = 0, ranks_per_node = 1;
  double tier = 0;
  LOOM_TRY(top.whole_number("nodes", 1, kMostRanks, nodes));
  if (nodes == 0) return fail(Code::invalid_argument, "nodes is missing, must be a number");
  LOOM_TRY(top.whole_number("ranks_per_node", 1, 4096, ranks_per_node));
  if (nodes * ranks_per_node > kMostRanks)
    return fail(Code::invalid_argument, "{} nodes of {} ranks have {} ranks, must have {} at most", nodes,
                ranks_per_node, nodes * ranks_per_node, kMostRanks);
  Cluster cluster;
  cluster.ranks_per_node = static_cast<int>(ranks_per_node);
  cluster.ranks = static_cast<int>(nodes * ranks_per_node);
  if (json.contains("name")) cluster.name = json["name"].get<std::string>();
  LOOM_TRY(read_machine(top.section("machine"), cluster));
  LOOM_TRY(read_compute(top.section("compute"), cluster));
  LOOM_TRY(top.section("tier").number("gb_per_s", 0, 1e6, tier));
  cluster.tier_bandwidth = tier * kGiga;
  if (json.contains("engines")) {
    for (const auto& [name, part] : json["engines"].items()) {
      Result<EngineRates> engine = read_engine(top.section("engines").section(name.c_str()), name);
      LOOM_TRY(engine.status());
      cluster.engines.push_back(engine.take());
    }
  }
  cluster.description = text;
  return cluster;
}

}  // namespace

Result<Cluster> read_cluster(const std::string& path) {
  Result<Json> json = format::read_json(path);
  LOOM_TRY(json.status());
  Result<Cluster> cluster = cluster_of(json.take());
  if (!cluster.ok()) return cluster.status().in(path);
  return cluster;
}

}  // namespace loom
