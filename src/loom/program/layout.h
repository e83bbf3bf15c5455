// Layout: the division of a job's ranks over data, pipeline and tensor degrees, and the place of each rank.
// Rank arithmetic and the names of placements are those of the SageMaker model parallel library.
//
// Ranks are placed node by node. A rank's place is a number from 0. Its coordinates are the digits of that
// number in the mixed base that the placement names. In "DPT" the tensor rank varies fastest, then the
// stage, then the data rank: tensor = place mod T, stage = ⌊place / T⌋ mod P, data = ⌊place / (T·P)⌋.
//
// `shard` neighbours among the D data ranks share one copy of the state: data rank g·shard + m is member m
// of group g.
//
// Thread safety: a value; pure functions.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace loom::program {

struct Coordinates {
  int data = 0;
  int stage = 0;
  int tensor = 0;
  bool operator==(const Coordinates&) const = default;
};

/// Ranks that communicate with each other, by what for.
enum class GroupKind {
  partition,    // share one copy of a stage's state: gathers and reduce-scatters
  replication,  // hold the same shard of it: AllReduce of gradients
  pipeline,     // the stages that a microbatch goes through, in their order
  ends,         // first and last stage of a pipeline: they share a tied embedding
  tensor,       // hold parts of the same layers
  model,        // hold one copy of the whole model between them: partition × pipeline × tensor
};
constexpr int kGroupKinds = 6;

const char* group_name(GroupKind kind);

struct Layout {
  int data = 1;      // D
  int pipeline = 1;  // P
  int tensor = 1;    // T
  int shard = 1;     // p; divides D
  /// "cluster" (DPT), "spread" (TPD), or any permutation of the letters D, P and T: the rightmost varies
  /// fastest.
  std::string placement = "cluster";

  int ranks() const { return data * pipeline * tensor; }
  int replicas() const { return data / shard; }

  /// invalid_argument, naming what is wrong and what would be right.
  Status check() const;
  /// The placement as three letters. The layout must be right, here and below.
  std::string order() const;

  /// The place of each rank, from its node, a number from 0. Nodes keep their order, and so do the ranks of
  /// a node. If nodes have unequal numbers of ranks, the ranks of a node beyond whole partition groups come
  /// last. So they do not split a group that could lie inside a node.
  std::vector<int> places(const std::vector<int>& node_of) const;

  Coordinates coordinates(int place) const;
  int place(const Coordinates& at) const;
  int group(int place) const { return coordinates(place).data / shard; }
  int member(int place) const { return coordinates(place).data % shard; }

  /// Places of the group of that kind that `place` is in, in the group's order; itself alone where it has no
  /// peers, also in the middle of a pipeline for `ends`.
  std::vector<int> peers(GroupKind kind, int place) const;
  /// Whether those peers lie on more than one node, at so many ranks a node.
  bool spans_nodes(GroupKind kind, int place, int ranks_per_node) const;

 private:
  /// Places next to each other that whole partition groups fill.
  int partition_places() const;
  int degree_of(char letter) const { return letter == 'D' ? data : letter == 'P' ? pipeline : tensor; }
};

/// "8 ranks (D 4, P 2, T 1, p 2, DPT)".
std::string to_string(const Layout& layout);
/// The place of each rank: a line a node, a cell a rank. A cell has data rank, stage and tensor rank, as in
/// "d0p1t0". If there are only data ranks, it has the partition group and the number in it, as in "g1m0". Of
/// many nodes, and of many ranks a node, the first ones and the last are drawn.
std::string picture(const Layout& layout, int ranks_per_node);
/// The groups of each kind that have more than one rank, a line a kind, with places; long lists are cut.
/// Where there are data ranks only, a partition group is a whole model, and has one line.
std::string groups_text(const Layout& layout);

}  // namespace loom::program
