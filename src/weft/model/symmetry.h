// Symmetry: plans that are the same on every node, except for the nodes that they name.
//
// Most algorithms treat nodes alike. What a rank of node 0 does towards node j, its counterpart on node i
// does towards node i + j (rotation: rings, all-to-all) or i xor j (exchange: partners at powers of two).
// Then the plans of node 0 are enough. A simulation keeps only them, and moves them to the node that
// executes them. If nothing distinguishes nodes, it executes only node 0: what node 0 sends to node j
// arrives at node 0 at the same moment, from the node for which node 0 is j. Events of one moment are
// ordered by what they are and not by their node. So both are exact, to the last bit.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>

#include "plan/plan.h"
#include "topology/layout.h"

namespace weft::model {

enum class Symmetry : uint8_t { none, rotation, exchange };

/// Where `node`, as node 0 sees it, lies for node `by`.
inline int moved_node(Symmetry symmetry, int nodes, int node, int by) {
  if (symmetry == Symmetry::exchange) return node ^ by;
  return node + by < nodes ? node + by : node + by - nodes;
}
/// How node 0 lies for `node`: moved_node(…, inverse_node(…, node), node) == 0.
inline int inverse_node(Symmetry symmetry, int nodes, int node) {
  return symmetry == Symmetry::exchange || node == 0 ? node : nodes - node;
}

/// Whether ranks lie in equal blocks, rank r on node r / g: what symmetry takes for granted.
bool in_blocks(const topology::Layout& layout);

/// Whether `other`, of node `by`, is `original`, of the same place on node 0, moved there; offsets in buffers
/// do not count.
bool is_moved(const plan::Plan& original, const plan::Plan& other, Symmetry symmetry,
              const topology::Layout& layout, int by);

/// The symmetry that plans of this request have. Compares all nodes up to 16, beyond that a sample of 8 that
/// depends on the number of nodes alone.
Symmetry find_symmetry(const plan::Algorithm& algorithm, const plan::Request& request,
                       const topology::Layout& layout, const plan::Limits& limits);

}  // namespace weft::model
