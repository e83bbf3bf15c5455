// A prepared plan: a plan with what the interpreter would otherwise search for at every step, worked out
// once. Cached by the communicator and shared by the operations that run it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "plan/plan.h"

namespace weft::engine {

/// Scratch up to here is part of the operation.
inline constexpr size_t kInlineScratch = 4096;

/// The longest step of a brief plan.
inline constexpr uint64_t kBriefBytes = 64 << 10;

struct Prepared {
  plan::Plan plan;
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
  /// Nothing but short messages inside a node, copies and reductions, one after the other: its caller may do
  /// it alone (fast_path.h).
  bool brief = false;

  static std::shared_ptr<const Prepared> make(plan::Plan plan, const topology::Layout& layout, int streak = 1,
                                              double predicted_us = 0);
};

}  // namespace weft::engine
