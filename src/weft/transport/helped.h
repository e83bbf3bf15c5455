// Which reads of a local rank's plain memory its owner helps with (shm_help.h). The model must know that too,
// so it stands in a file of its own.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>

namespace weft::transport {

/// The kernel copies shorter data as fast, since that is still in caches.
inline constexpr uint64_t kHelpedBytes = 1 << 20;
/// The same where the owner is a root: it has its own part to do, and would help all other ranks.
inline constexpr uint64_t kRootHelpsBytes = 16 << 20;

constexpr bool is_helped(uint64_t bytes, bool owner_is_root) {
  return bytes >= (owner_is_root ? kRootHelpsBytes : kHelpedBytes);
}

/// How far the owner may be ahead of a single reader, and the least that it may be ahead of each of many.
inline constexpr uint64_t kHelpAheadBytes = 2 << 20, kLeastAheadBytes = 256 << 10;
constexpr uint64_t help_ahead_bytes(uint64_t readers) {
  const uint64_t each = kHelpAheadBytes / (readers > 0 ? readers : 1);
  return each > kLeastAheadBytes ? each : kLeastAheadBytes;
}

}  // namespace weft::transport
