// Which reads of a node-mate's plain memory its owner helps with (shm_help.h). Here because the model must
// know what transports and engine do.
#pragma once

#include <cstdint>

namespace weft::transport {

/// What is shorter, and still in caches, the kernel copies as fast.
inline constexpr uint64_t kHelpedBytes = 1 << 20;
/// A root has its own part to do, and would help all others.
inline constexpr uint64_t kRootHelpsBytes = 16 << 20;

constexpr bool is_helped(uint64_t bytes, bool owner_is_root) {
  return bytes >= (owner_is_root ? kRootHelpsBytes : kHelpedBytes);
}

/// How far the owner may be ahead of one reader, and at least of each of many.
inline constexpr uint64_t kHelpAheadBytes = 2 << 20, kLeastAheadBytes = 256 << 10;
constexpr uint64_t help_ahead_bytes(uint64_t readers) {
  const uint64_t each = kHelpAheadBytes / (readers > 0 ? readers : 1);
  return each > kLeastAheadBytes ? each : kLeastAheadBytes;
}

}  // namespace weft::transport
