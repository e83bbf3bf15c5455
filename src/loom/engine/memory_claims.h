// Memory claims: whether the arenas of all ranks fit the machines that the ranks are on. Each by itself may,
// where all ranks of a machine together do not: the kernel would promise all of them their memory, and end
// some when they use it.
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
  int64_t arena_bytes = 0;
};

/// Of all ranks, by their numbers. Errors: out_of_memory, with how many ranks would fit.
Status check_claims(std::span<const MemoryClaim> claims);

/// The same of this rank's arena and those of all others, with the same answer on all. A collective. Errors
/// also: communication_error.
Status check_memory(int64_t arena_bytes, const Groups& groups);

}  // namespace loom::engine
