// Cluster: a number of nodes of one kind, the network between them, and its faults. The costs of a node and
// its links are a Machine (model/cost.h), the value that the tuner uses. A cluster adds the number of nodes,
// and Conditions.
//
// As JSON, where every value may name its source (model/sourced_json.h):
//
//   {"name": "p4d", "nodes": 16, "ranks_per_node": 8,
//    "machine": {…},
//    "compute": {…}, "tier": {…}, "engines": {…},
//    "fabric": {"nodes_per_leaf": 0, "oversubscription": 1},
//    "slow_nodes": [{"node": 3, "rate": 0.5}],
//    "slow_rails": [{"node": 0, "rail": 1, "rate": 0}],
//    "incast": [{"node": 0, "streams": 4}]}
//
// "machine" has the fields of Machine; the others keep their defaults. "compute", "tier" and "engines" are
// for `loom plan` (include/loom/plan.h): they are checked, and not used.
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

/// "nodes" is required; other keys have defaults. Errors (invalid_argument): no JSON object, unknown keys,
/// wrong types, values out of range, nodes or rails that do not exist, a node without a rail that is up. Each
/// error names the key and what would be right.
Result<Cluster> cluster_from_json(const std::string& text);
/// Whether `text` describes a cluster and not a machine, right or wrong: it has a number of nodes, or a
/// machine.
bool describes_cluster(const std::string& text);
/// As cluster_from_json, from a file.
Result<Cluster> read_cluster(const std::string& path);
/// The same checks on a cluster that was changed since it was read.
Status check_cluster(const Cluster& cluster);

}  // namespace weft::model
