// Memory claims: checks that a machine has the memory that all its ranks together want: arenas, or on GPUs
// pinned memory. The kernel promises each rank its memory even if the sum does not fit. It would end ranks
// when they use it.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "engine/groups.h"

namespace loom::engine {

/// What a rank will take, and of what.
struct MemoryClaim {
  uint64_t machine = 0;
  int64_t machine_bytes = 0;
  uint64_t group = 0;  // the control group whose memory is limited; 0: none is
  int64_t group_bytes = 0;
  int64_t bytes = 0;
};

/// What the memory is for, of one rank and of several.
struct MemoryUse {
  const char *one, *several;
};
inline constexpr MemoryUse kForArenas{"for its arena", "for their arenas"},
    kForPinned{"of pinned memory", "of pinned memory"};

/// Of all ranks, by their numbers. Errors: out_of_memory, with how many ranks would fit.
Status check_claims(std::span<const MemoryClaim> claims, const MemoryUse& use = kForArenas);

/// The same of what this rank takes and what all others take, with the same answer on all. A collective.
/// Errors also: communication_error.
Status check_memory(int64_t bytes, const Groups& groups, const MemoryUse& use = kForArenas);

}  // namespace loom::engine
