// Groups: the communicators of a rank, one for each kind of group of its Layout. Ranks are placed node by
// node, so that what varies fastest in the placement stays inside nodes where it fits.
//
// Thread safety: one thread.
#pragma once

#include <weft/weft.h>

#include <array>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/status.h"
#include "engine/arena.h"
#include "program/layout.h"

namespace loom::engine {

/// A rank's own failure, or else that of the first rank of `comm` that failed, with its sentence. A
/// collective; nullptr is one rank.
Status agree(weftComm_t comm, const Status& own);

class Groups {
 public:
  /// Divides `world`, which stays the caller's and must outlive this; nullptr is a job of one rank. A
  /// collective. What moves a rank's arena moves memory of GPU `gpu`; -1: of the host. All ranks have a GPU,
  /// or none has. Errors: invalid_argument (the layout is not right, or for other ranks),
  /// communication_error.
  ///
  /// If one of its communicators has failed, the destructor aborts all of them.
  static Result<Groups> create(weftComm_t world, const program::Layout& layout, bool strict, int gpu = -1);

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
  int gpu() const { return gpu_; }

  /// nullptr where it would have one rank. Of all ranks; not the communicator that was divided, so that
  /// abort() may end it.
  weftComm_t world() const { return world_; }
  weftComm_t of(program::GroupKind kind) const { return groups_[static_cast<int>(kind)]; }
  weftComm_t partition() const { return of(program::GroupKind::partition); }
  weftComm_t tensor() const { return of(program::GroupKind::tensor); }
  /// Ranks of it are stages.
  weftComm_t pipeline() const { return of(program::GroupKind::pipeline); }
  /// Of the same ranks, for what is in the arena: on a GPU it moves that GPU's memory, while all others move
  /// the host's. On CPUs it is the other one.
  weftComm_t moving(program::GroupKind kind) const { return moving_[static_cast<int>(kind)]; }
  /// What comes back from later stages, and what goes to them by moving(pipeline), have a communicator each,
  /// since sends between the same two ranks are matched in the order of the calls.
  weftComm_t pipeline_back() const { return pipeline_back_; }
  /// The partition group's where it is all of the model's.
  weftComm_t model() const {
    return layout_.pipeline * layout_.tensor > 1 ? of(program::GroupKind::model) : partition();
  }

  /// The place of a rank of the world.
  int place_of(int rank) const { return places_[rank]; }

  /// All of them, each once; nullptr for what would have one rank.
  std::vector<weftComm_t> communicators() const;
  /// Of these, those that move what is in the arena.
  std::vector<weftComm_t> of_arena() const;
  /// communication_error, with its sentence, where one of them has failed.
  Status failure() const;

  // What ranks tell each other outside of programs. It travels by the *desk*, memory that is registered once,
  // in pieces where it is larger. Collectives, but for send() and receive().

  /// Waits until all ranks have come here.
  Status barrier() const;
  /// As engine::agree().
  Status agree(const Status& own) const;
  /// What each rank has as `own`, by their numbers.
  template <typename T>
  Result<std::vector<T>> gather(const T& own) const {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kMostTold);
    std::vector<T> all(static_cast<size_t>(ranks_), own);
    LOOM_TRY(gather_bytes(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all))));
    return all;
  }
  /// The largest of all ranks' numbers.
  Result<int64_t> most(int64_t own) const;
  /// What rank 0 of the world has as `own`; or of a group of host memory, which calls it.
  Result<std::string> of_first(std::string own) const { return of_first(std::move(own), world_); }
  Result<std::string> of_first(std::string own, weftComm_t comm) const;
  Status send(std::span<const std::byte> bytes, int peer) const;
  Status receive(std::span<std::byte> bytes, int peer) const;

  /// Ends whatever this rank and its peers do in these groups: what a rank that fails owes the others, which
  /// would wait for it. They are told `why`. From then on the groups are of use to be destroyed only.
  void abort(const Status& why) const;

 private:
  Groups() = default;
  void swap(Groups& other) noexcept;
  Status place_ranks();
  static constexpr int64_t kMostTold = 128;  // bytes, by a rank to all others at once

  Status make_desk();
  Status gather_bytes(std::span<const std::byte> own, std::span<std::byte> all) const;
  Status make_groups(bool strict);
  Status split(program::GroupKind kind, const std::string& name, bool strict, int gpu, weftComm_t& into);

  weftComm_t world_ = nullptr, pipeline_back_ = nullptr;
  std::optional<Arena> desk_;                                         // of the world
  std::array<weftComm_t, program::kGroupKinds> groups_{}, moving_{};  // by kind
  program::Layout layout_;
  std::vector<int> places_ = {0};  // of each rank
  int rank_ = 0, ranks_ = 1, place_ = 0, nodes_ = 1, gpu_ = -1;
};

/// Whether some rank says yes. A collective.
Result<bool> any_rank(const Groups& groups, bool own);

}  // namespace loom::engine
