// Clusters as weft_sim's descriptions have them: what of such a file a plan needs.
#include <cmath>

#include "format/json_file.h"
#include "loom/plan.h"

namespace loom {
namespace {

using format::Json;

/// A part of the description, and what it is called in complaints. In it a value may say where it is from:
/// 12500, or {"value": 12500, "source": "data sheet"}.
class Section {
 public:
  Section(const Json& json, std::string name) : json_(&json), name_(std::move(name)) {}

  Result<Section> section(const char* key) const {
    static const Json kNothing = Json::object();
    const auto found = json_->find(key);
    const std::string name = (name_.empty() ? "" : name_ + ".") + key;
    if (found == json_->end()) return Section(kNothing, name);
    if (!found->is_object())
      return fail(Code::invalid_argument, "{} is {}, must be an object", name, found->dump());
    return Section(*found, name);
  }

  /// Leaves `into` as it is where there is no such key.
  Status number(const char* key, double least, double most, double& into) const {
    const auto found = json_->find(key);
    if (found == json_->end()) return {};
    const Json& value = found->is_object() && found->contains("value") ? (*found)["value"] : *found;
    if (!value.is_number() || !(value.get<double>() >= least && value.get<double>() <= most))
      return fail(Code::invalid_argument, "{}{}{} is {}, must be a number from {} to {}", name_,
                  name_.empty() ? "" : ".", key, value.dump(), least, most);
    into = value.get<double>();
    return {};
  }
  Status whole_number(const char* key, double least, double most, int64_t& into) const {
    double value = static_cast<double>(into);
    LOOM_TRY(number(key, least, most, value));
    if (value != std::floor(value))
      return fail(Code::invalid_argument, "{}{}{} is {}, must be a whole number", name_,
                  name_.empty() ? "" : ".", key, value);
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
  const Result<Section> intra = machine.section("intra"), inter = machine.section("inter"),
                        memory = machine.section("memory");
  for (const Result<Section>* section : {&intra, &inter, &memory}) LOOM_TRY(section->status());
  LOOM_TRY(read_latency(*intra, cluster.intra_latency_us));
  LOOM_TRY(read_latency(*inter, cluster.inter_latency_us));
  double rank = 0, interface = 0, rails = 1, crossing = 1, copies = 0;
  LOOM_TRY(intra->number("bytes_per_us", 1, kMost, rank));
  LOOM_TRY(machine.number("nic_bytes_per_us", 1, kMost, interface));
  LOOM_TRY(machine.number("rails", 1, 1024, rails));
  LOOM_TRY(machine.number("crossing", 1e-3, 1, crossing));
  LOOM_TRY(memory->number("copy_large", 1, kMost, copies));
  if (rank > 0) cluster.intra_bandwidth = rank * kPerSecond;
  if (interface > 0) cluster.inter_bandwidth = interface * rails * crossing * kPerSecond;
  if (copies > 0) cluster.memory_bandwidth = 2 * copies * kPerSecond;  // a copy reads and writes
  return {};
}

Result<Cluster> cluster_of(const Json& json) {
  if (!json.is_object()) return fail(Code::invalid_argument, "a cluster must be an object");
  const Section top(json, "");
  constexpr int64_t kMostRanks = 1 << 20;
  int64_t nodes = 0, ranks_per_node = 1;
  double gflops = 0;
  LOOM_TRY(top.whole_number("nodes", 1, kMostRanks, nodes));
  if (nodes == 0) return fail(Code::invalid_argument, "nodes is missing, must be a number");
  LOOM_TRY(top.whole_number("ranks_per_node", 1, 4096, ranks_per_node));
  if (nodes * ranks_per_node > kMostRanks)
    return fail(Code::invalid_argument, "{} nodes of {} ranks have {} ranks, must have {} at most", nodes,
                ranks_per_node, nodes * ranks_per_node, kMostRanks);
  Cluster cluster;
  cluster.ranks_per_node = static_cast<int>(ranks_per_node);
  cluster.ranks = static_cast<int>(nodes * ranks_per_node);
  if (json.contains("name") && json["name"].is_string()) cluster.name = json["name"].get<std::string>();
  const Result<Section> machine = top.section("machine"), compute = top.section("compute");
  LOOM_TRY(machine.status());
  LOOM_TRY(compute.status());
  LOOM_TRY(read_machine(*machine, cluster));
  LOOM_TRY(compute->number("gflops", 0, 1e9, gflops));
  cluster.flops = gflops * 1e9;
  return cluster;
}

}  // namespace

Result<Cluster> read_cluster(const std::string& path) {
  const Result<Json> json = format::read_json(path);
  LOOM_TRY(json.status());
  Result<Cluster> cluster = cluster_of(*json);
  if (!cluster.ok()) return cluster.status().in(path);
  return cluster;
}

}  // namespace loom
