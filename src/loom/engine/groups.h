// Groups: the communicators of a rank, one for each kind of group of its Layout. Ranks are placed node by
// node, so that what varies fastest in the placement stays inside nodes where it fits.
//
// Thread safety: one thread.
#pragma once

#include <weft/weft.h>

#include <array>
#include <vector>

#include "base/status.h"
#include "program/layout.h"

namespace loom::engine {

/// A rank's own failure, or else that of the first rank of `comm` that failed, with its sentence. A
/// collective; nullptr is one rank.
Status agree(weftComm_t comm, const Status& own);

class Groups {
 public:
  /// Divides `world`, which stays the caller's and must outlive this; nullptr is a job of one rank. A
  /// collective. Errors: invalid_argument (the layout is not right, or for other ranks), communication_error.
  ///
  /// Whoever destroys this after one of its communicators has failed aborts all of them.
  static Result<Groups> create(weftComm_t world, const program::Layout& layout, bool strict);

  Groups(Groups&& other) noexcept { swap(other); }
  Groups& operator=(Groups&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Groups();

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  const program::Layout& layout() const { return layout_; }
  int place() const { return place_; }
  program::Coordinates coordinates() const { return layout_.coordinates(place_); }
  int group() const { return layout_.group(place_); }
  int member() const { return layout_.member(place_); }
  int nodes() const { return nodes_; }

  /// nullptr where it would have one rank. Of all ranks; not the communicator that was divided, so that
  /// abort() may end it.
  weftComm_t world() const { return world_; }
  weftComm_t of(program::GroupKind kind) const { return groups_[static_cast<int>(kind)]; }
  weftComm_t partition() const { return of(program::GroupKind::partition); }
  weftComm_t replication() const { return of(program::GroupKind::replication); }
  weftComm_t ends() const { return of(program::GroupKind::ends); }
  weftComm_t tensor() const { return of(program::GroupKind::tensor); }
  /// Ranks of it are stages. What goes to later stages and what comes back have a communicator each, since
  /// sends between the same two ranks are matched in the order of the calls.
  weftComm_t pipeline() const { return of(program::GroupKind::pipeline); }
  weftComm_t pipeline_back() const { return pipeline_back_; }
  /// The partition group's where it is all of the model's.
  weftComm_t model() const {
    return layout_.pipeline * layout_.tensor > 1 ? of(program::GroupKind::model) : partition();
  }

  /// The place of a rank of the world.
  int place_of(int rank) const { return places_[rank]; }

  /// Waits until all ranks have come here.
  Status barrier() const;
  /// Over all ranks. A collective.
  Status agree(const Status& own) const { return engine::agree(world_, own); }
  /// Ends whatever this rank and its peers do in these groups: what a rank that fails owes the others, which
  /// would wait for it. They are told `why`. From then on the groups are of use to be destroyed only.
  void abort(const Status& why) const;

 private:
  Groups() = default;
  void swap(Groups& other) noexcept;
  Status place_ranks();
  std::array<weftComm_t, program::kGroupKinds + 2> all() const;
  /// ok where none has.
  Status failure_of_any() const;
  Status split(program::GroupKind kind, const char* name, bool strict, weftComm_t& into);

  weftComm_t world_ = nullptr, pipeline_back_ = nullptr;
  std::array<weftComm_t, program::kGroupKinds> groups_{};  // by kind
  program::Layout layout_;
  std::vector<int> places_ = {0};  // of each rank
  int rank_ = 0, ranks_ = 1, place_ = 0, nodes_ = 1;
};

}  // namespace loom::engine
