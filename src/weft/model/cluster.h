// Cluster: so many nodes of one kind, the network between them, and what is wrong with it. What a node and
// its links cost is a Machine (model/cost.h), the same value that the tuner uses: a cluster adds how many of
// them there are, and Conditions.
//
// As JSON, where every value may name its source (model/sourced_json.h):
//
//   {"name": "p4d", "nodes": 16, "ranks_per_node": 8,
//    "machine": {…},                              the fields of Machine; those left out keep their defaults
//    "compute": {…}, "tier": {…}, "engines": {…}, for `loom plan` (include/loom/plan.h): checked, and not
//    used "fabric": {"nodes_per_leaf": 0, "oversubscription": 1}, "slow_nodes": [{"node": 3, "rate": 0.5}],
//    "slow_rails": [{"node": 0, "rail": 1, "rate": 0}],
//    "incast": [{"node": 0, "streams": 4}]}
//
// Thread safety: values and pure functions.
#pragma once

#include <string>

#include "base/status.h"
#include "model/conditions.h"
#include "model/cost.h"

namespace weft::model {

inline constexpr int kMostNodes = 16384;
inline constexpr int kMostRanksPerNode = 1024;

struct Cluster {
  std::string name = "cluster";
  int nodes = 0;
  int ranks_per_node = 1;
  Machine machine;
  Conditions conditions;
};

/// "nodes" must be there; what else is left out keeps its default. Errors (invalid_argument): no JSON object,
/// unknown keys, wrong types, values out of range, nodes or rails that do not exist, a node without a rail
/// that is up; each by name, with what would be right.
Result<Cluster> cluster_from_json(const std::string& text);
/// Whether `text` is a cluster's description, right or wrong, and not a machine's: it says how many nodes
/// there are, or has a machine in it.
bool describes_cluster(const std::string& text);
/// As cluster_from_json, from a file.
Result<Cluster> read_cluster(const std::string& path);
/// The same checks on a cluster that was changed since it was read.
Status check_cluster(const Cluster& cluster);

}  // namespace weft::model
