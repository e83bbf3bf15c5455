// PlanTables: a plan with what its execution would otherwise search for or work out at every call, derived
// once. Cached by the communicator and shared by the operations that run it.
//
// Thread safety: a value that never changes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace weft::engine {

/// Scratch up to here is part of the operation.
inline constexpr size_t kInlineScratch = 4096;

/// The longest step that the fast path does.
inline constexpr uint64_t kFastStepBytes = 64 << 10;

struct PlanTables {
  plan::Plan plan;
  uint64_t bytes[3] = {};  // by Space: how long each buffer of a call is
  int streak = 1;          // how long the streak was expected to be that it was chosen for (CallStreak)
  float predicted_us = 0;  // what it was to take when it was chosen

  // Handles: each (peer, space) that a wait learns gets a number; -1 = none.
  uint32_t handles = 0;
  std::vector<int32_t> handle_of_notification;  // by notification number: which handle it carries
  std::vector<int32_t> handle_of_step;    // puts: the handle of the target, if it is learned by this plan
  std::vector<int32_t> handle_of_region;  // sources in a peer's memory
  // Puts are numbered so that each has a completion; -1 for other steps.
  uint32_t puts = 0;
  std::vector<int32_t> put_of_step;
  bool exposes[3] = {};         // by Space: whether any signal exposes it
  bool exposes_inside[3] = {};  // … to a rank of the same node
  bool between_nodes = false;   // any step talks to another node
  uint32_t algorithm_hash = 0;
  /// By peer, of an uneven AlltoAll: of the counts that the two ranks must agree on. Else empty.
  std::vector<uint32_t> pair_signatures;
  /// Nothing but short messages inside a node, copies and reductions, one after the other: the caller may do
  /// it alone (context/fast_path.h).
  bool fast = false;

  static std::shared_ptr<const PlanTables> make(plan::Plan plan, const topology::Layout& layout,
                                                int streak = 1, double predicted_us = 0);

 private:
  /// The number of a peer's space that this plan learns; -1: it learns none.
  using HandleOf = std::map<std::pair<int, plan::Space>, int32_t>;
  HandleOf number_handles();
  void derive_step(size_t id, const HandleOf& handle_of, const topology::Layout& layout);
  bool is_fast() const;
};

}  // namespace weft::engine
