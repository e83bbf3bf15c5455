// Membership: which ranks of a job a communicator has, under which numbers, on which nodes, and how each is
// reached.
//
// Thread safety: a value that is never changed.
#pragma once

#include <utility>
#include <vector>

#include "topology/layout.h"
#include "transport/transport.h"

namespace weft::engine {

class Membership {
 public:
  /// `worlds`: the members' ranks of the job, in the order of their ranks here. `world` is this process's.
  /// `job` and `routes`, by rank: the nodes of the job's ranks, and the transport that reaches each from
  /// here.
  Membership(const topology::Layout& job, const std::vector<transport::Transport*>& routes, int world,
             std::vector<int> worlds)
      : world_of_(std::move(worlds)), rank_of_world_(routes.size(), -1), layout_({0}) {
    std::vector<int> node_of;
    for (int rank = 0; rank < size(); ++rank) {
      const int its = world_of_[rank];
      rank_of_world_[its] = rank;
      node_of.push_back(job.node_of(its));
      routes_.push_back(routes[its]);
    }
    rank_ = rank_of_world_[world];
    layout_ = topology::Layout(node_of);
  }

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(world_of_.size()); }
  int world_rank(int rank) const { return world_of_[rank]; }
  /// -1 if a rank of the job is not a member.
  int rank_of_world(int world) const { return rank_of_world_[world]; }
  const std::vector<int>& worlds() const { return world_of_; }
  const topology::Layout& layout() const { return layout_; }
  /// Null for oneself.
  transport::Transport* route(int rank) const { return routes_[rank]; }

 private:
  int rank_ = 0;
  std::vector<int> world_of_;
  std::vector<int> rank_of_world_;
  topology::Layout layout_;
  std::vector<transport::Transport*> routes_;
};

}  // namespace weft::engine
