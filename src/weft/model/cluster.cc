#include "model/cluster.h"

#include <fmt/ranges.h>

#include <set>

#include "base/read_file.h"
#include "model/sourced_json.h"

namespace weft::model {
namespace {

using Json = nlohmann::ordered_json;
using Keys = std::vector<std::string>;

/// One object of the file: reads its numbers, and knows what it is called in complaints.
class Section {
 public:
  Section(const Json& json, std::string path) : json_(json), path_(std::move(path)) {}

  Status check_keys(const Keys& known) const {
    if (!json_.is_object()) {
      return fail(Code::invalid_argument, "cluster: {} is {}, must be an object with {}", path_, json_.dump(),
                  fmt::join(known, ", "));
    }
    return model::check_keys(json_, "cluster", path_, known);
  }

  template <typename T>
  Status number(const char* key, T& into, double least = -1e9, double most = 1e9) const {
    const auto found = json_.find(key);
    if (found == json_.end()) return {};
    constexpr bool whole = std::is_integral_v<T>;
    if (whole ? !is_whole(*found) : !found->is_number()) {
      return fail(Code::invalid_argument, "cluster: {} is {}, must be a {}", name(key), found->dump(),
                  whole ? "whole number" : "number");
    }
    const double value = found->template get<double>();
    if (!(value >= least && value <= most)) {
      return fail(Code::invalid_argument, "cluster: {} is {}, must be in [{:g}, {:g}]", name(key),
                  found->dump(), least, most);
    }
    into = static_cast<T>(value);
    return {};
  }

  /// As number(), but it must be there.
  template <typename T>
  Status needed(const char* key, T& into, double least = -1e9, double most = 1e9) const {
    if (!json_.contains(key)) {
      return fail(Code::invalid_argument, "cluster: {} is missing, must be a number", name(key));
    }
    return number(key, into, least, most);
  }

 private:
  std::string name(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }
  const Json& json_;
  const std::string path_;
};

/// Reads a list of objects, `read(section, item)` one of them.
template <typename Item, typename Read>
Status read_list(const Json& json, const char* key, const Keys& known, std::vector<Item>& into, Read read) {
  const auto list = json.find(key);
  if (list == json.end()) return {};
  if (!list->is_array()) {
    return fail(Code::invalid_argument, "cluster: {} is {}, must be a list", key, list->dump());
  }
  for (size_t i = 0; i < list->size(); ++i) {
    const Section section((*list)[i], fmt::format("{}[{}]", key, i));
    WEFT_TRY(section.check_keys(known));
    WEFT_TRY(read(section, into.emplace_back()));
  }
  return {};
}

Status read_conditions(const Json& json, Conditions& conditions) {
  if (json.contains("fabric")) {
    const Section fabric(json["fabric"], "fabric");
    WEFT_TRY(fabric.check_keys({"nodes_per_leaf", "oversubscription"}));
    WEFT_TRY(fabric.number("nodes_per_leaf", conditions.fabric.nodes_per_leaf));
    WEFT_TRY(fabric.number("oversubscription", conditions.fabric.oversubscription));
  }
  WEFT_TRY(read_list(json, "slow_nodes", {"node", "rate"}, conditions.slow_nodes,
                     [](const Section& section, SlowNode& slow) -> Status {
                       WEFT_TRY(section.needed("node", slow.node));
                       return section.needed("rate", slow.rate);
                     }));
  WEFT_TRY(read_list(json, "slow_rails", {"node", "rail", "rate"}, conditions.slow_rails,
                     [](const Section& section, SlowRail& slow) -> Status {
                       WEFT_TRY(section.needed("node", slow.node));
                       WEFT_TRY(section.needed("rail", slow.rail));
                       return section.needed("rate", slow.rate);
                     }));
  return read_list(json, "incast", {"node", "streams"}, conditions.incasts,
                   [](const Section& section, Incast& incast) -> Status {
                     WEFT_TRY(section.needed("node", incast.node));
                     return section.needed("streams", incast.streams);
                   });
}

/// The sections that `loom plan` reads. They are checked here, so that every tool refuses a misspelt key.
Status check_planning(const Json& json) {
  const auto check = [](const Json& part, const std::string& path, const Keys& known) -> Status {
    const Section section(part, path);
    WEFT_TRY(section.check_keys(known));
    double ignored = 0;
    for (const std::string& key : known) WEFT_TRY(section.number(key.c_str(), ignored, 0));
    return {};
  };
  if (const auto compute = json.find("compute"); compute != json.end())
    WEFT_TRY(check(*compute, "compute",
                   {"gflops", "fp32_gflops", "gemm_efficiency", "memory_efficiency", "flash_efficiency",
                    "product_efficiency", "multiprocessors", "launch_us", "memory_gib"}));
  if (const auto tier = json.find("tier"); tier != json.end()) WEFT_TRY(check(*tier, "tier", {"gb_per_s"}));
  const auto engines = json.find("engines");
  if (engines == json.end()) return {};
  if (!engines->is_object())
    return fail(Code::invalid_argument, "cluster: engines is {}, must be an object", engines->dump());
  for (const auto& [name, engine] : engines->items())
    WEFT_TRY(check(engine, "engines." + name,
                   {"gather_gb_per_s", "reduce_gb_per_s", "all_reduce_gb_per_s", "all_reduce_latency_us",
                    "intra_gb_per_s", "hidden", "multiprocessors", "gradient_bits", "scatters_transfers",
                    "fuses_sums"}));
  return {};
}

Status check_index(const char* what, int value, int count) {
  if (value >= 0 && value < count) return {};
  return fail(Code::invalid_argument, "cluster: {} is {}, must be in [0, {})", what, value, count);
}

Status check_range(const char* what, double value, double least, double most) {
  if (value >= least && value <= most) return {};
  return fail(Code::invalid_argument, "cluster: {} is {:g}, must be in [{:g}, {:g}]", what, value, least,
              most);
}

constexpr double kSlowest = 1e-3;

}  // namespace

Status check_cluster(const Cluster& cluster) {
  const Conditions& conditions = cluster.conditions;
  WEFT_TRY(check_range("nodes", cluster.nodes, 1, kMostNodes));
  WEFT_TRY(check_range("ranks_per_node", cluster.ranks_per_node, 1, kMostRanksPerNode));
  WEFT_TRY(check_range("fabric.nodes_per_leaf", conditions.fabric.nodes_per_leaf, 0, kMostNodes));
  WEFT_TRY(check_range("fabric.oversubscription", conditions.fabric.oversubscription, 1, 1000));
  for (const SlowNode& slow : conditions.slow_nodes) {
    WEFT_TRY(check_index("slow_nodes: node", slow.node, cluster.nodes));
    WEFT_TRY(check_range("slow_nodes: rate", slow.rate, kSlowest, 1));
  }
  std::set<std::pair<int, int>> down;
  for (const SlowRail& slow : conditions.slow_rails) {
    WEFT_TRY(check_index("slow_rails: node", slow.node, cluster.nodes));
    WEFT_TRY(check_index("slow_rails: rail", slow.rail, cluster.machine.rails));
    if (slow.rate == 0) down.emplace(slow.node, slow.rail);
    else WEFT_TRY(check_range("slow_rails: rate (or 0, for one that is down)", slow.rate, kSlowest, 1));
  }
  // Any two nodes must have a rail that is up at both. Few rails are down.
  std::set<int> down_somewhere;
  for (const auto& [node, rail] : down) down_somewhere.insert(rail);
  if (static_cast<int>(down_somewhere.size()) >= cluster.machine.rails) {
    return fail(Code::invalid_argument,
                "cluster: each of the {} rails is down at some node, must be one that is up at all",
                cluster.machine.rails);
  }
  for (const Incast& incast : conditions.incasts) {
    WEFT_TRY(check_index("incast: node", incast.node, cluster.nodes));
    WEFT_TRY(check_range("incast: streams", incast.streams, 0, 1e6));
  }
  return {};
}

Result<Cluster> cluster_from_json(const std::string& text) {
  const Result<Json> json = parse_sourced(text, "cluster");
  if (!json.ok()) return json.status();
  const Section top(*json, "");
  // What ranks compute is for who plans programs that do.
  WEFT_TRY(top.check_keys({"name", "nodes", "ranks_per_node", "compute", "tier", "engines", "machine",
                           "fabric", "slow_nodes", "slow_rails", "incast"}));
  WEFT_TRY(check_planning(*json));
  Cluster cluster;
  if (const auto name = json->find("name"); name != json->end()) {
    if (!is_name(*name)) {
      return fail(Code::invalid_argument, "cluster: name is {}, must be a string without control characters",
                  name->dump());
    }
    cluster.name = name->get<std::string>();
  }
  WEFT_TRY(top.needed("nodes", cluster.nodes, 1, kMostNodes));
  WEFT_TRY(top.number("ranks_per_node", cluster.ranks_per_node, 1, kMostRanksPerNode));
  if (const auto machine = json->find("machine"); machine != json->end()) {
    if (!machine->is_object()) {
      return fail(Code::invalid_argument, "cluster: machine is {}, must be an object", machine->dump());
    }
    Result<Machine> read = machine_from_json(machine->dump());
    if (!read.ok()) return read.status().in("cluster");
    cluster.machine = read.take();
  }
  if (!json->contains("machine") || !json->at("machine").contains("name"))
    cluster.machine.name = cluster.name;
  WEFT_TRY(read_conditions(*json, cluster.conditions));
  WEFT_TRY(check_cluster(cluster));
  return cluster;
}

bool describes_cluster(const std::string& text) {
  const Result<Json> json = parse_sourced(text, "cluster");
  return json.ok() && (json->contains("nodes") || json->contains("machine"));
}

Result<Cluster> read_cluster(const std::string& path) {
  const Result<std::string> text = read_file(path);
  if (!text.ok()) return text.status();
  Result<Cluster> cluster = cluster_from_json(*text);
  if (!cluster.ok()) return cluster.status().in(path);
  return cluster;
}

}  // namespace weft::model
