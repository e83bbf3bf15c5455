// Groups: which ranks share a copy of the model's state, and which hold the same part of it. MiCS's partition
// and replication groups, as communicators of Weft.
//
// Ranks are placed node by node; a partition group is `degree` places next to each other, so that groups stay
// inside nodes where they fit. Member m of group g has place g·degree + m; replication groups are the members
// of equal number.
//
// Thread safety: one thread.
#pragma once

#include <weft/weft.h>

#include <vector>

#include "base/status.h"

namespace loom::engine {

class Groups {
 public:
  /// Divides `world`, which stays the caller's and must outlive this; nullptr is a job of one rank. A
  /// collective. Errors: invalid_argument (the degree does not divide the ranks), communication_error.
  static Result<Groups> create(weftComm_t world, int degree, bool strict);

  Groups(Groups&& other) noexcept { swap(other); }
  Groups& operator=(Groups&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Groups();

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  int degree() const { return degree_; }
  int group() const { return place_ / degree_; }
  int member() const { return place_ % degree_; }
  int nodes() const { return nodes_; }

  /// nullptr where it would have one rank.
  weftComm_t world() const { return world_; }
  weftComm_t partition() const { return partition_; }
  weftComm_t replication() const { return replication_; }

  /// The place of a rank of the world.
  int place_of(int rank) const { return places_[rank]; }

  /// Waits until all ranks have come here.
  Status barrier() const;
  /// A rank's own failure, or else that of the first rank that failed, with its sentence. A collective.
  Status agree(const Status& own) const;

 private:
  Groups() = default;
  void swap(Groups& other) noexcept;
  Status place_ranks();

  weftComm_t world_ = nullptr, partition_ = nullptr, replication_ = nullptr;
  std::vector<int> places_ = {0};  // of each rank
  int rank_ = 0, ranks_ = 1, degree_ = 1, place_ = 0, nodes_ = 1;
};

}  // namespace loom::engine
