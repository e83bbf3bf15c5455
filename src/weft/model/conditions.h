// Conditions: the network between nodes and its faults. The default, which the tuner assumes, is a switch
// without limits and a healthy cluster.
//
// Thread safety: values.
#pragma once

#include <vector>

namespace weft::model {

/// The switches. Nodes 0 … nodes_per_leaf - 1 hang on one, and so on; leaves meet in a core.
struct Fabric {
  int nodes_per_leaf = 0;       // 0: one switch, through which everybody gets the full rate to everybody
  double oversubscription = 1;  // what a leaf's nodes can send, over what the leaf can: 1 is none
};

/// A node all of whose parts (CPUs, engines, memory, interfaces) run at `rate` of their speed.
struct SlowNode {
  int node = 0;
  double rate = 1;  // in (0, 1]
};

/// An interface at `rate` of its speed, in both directions. At 0 it is down: both ends send what would use
/// it, or its counterpart, over the other rails.
struct SlowRail {
  int node = 0;
  int rail = 0;
  double rate = 1;  // in [0, 1]
};

/// Senders outside the job that send to a node all the time. The node's interfaces give every stream the same
/// share.
struct Incast {
  int node = 0;
  double streams = 0;
};

struct Conditions {
  Fabric fabric;
  std::vector<SlowNode> slow_nodes;
  std::vector<SlowRail> slow_rails;
  std::vector<Incast> incasts;

  bool healthy() const { return slow_nodes.empty() && slow_rails.empty() && incasts.empty(); }
  /// No node differs from another, and none shares a switch's uplink.
  bool all_nodes_alike() const { return healthy() && fabric.nodes_per_leaf == 0; }
};

}  // namespace weft::model
