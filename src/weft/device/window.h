// Windows: memory that every rank of the node can reach without a copy. A process-wide allocator over
// segments; large windows have a segment each, small ones are carved from shared segments. What weftMemAlloc
// hands out for host memory.
//
// Thread safety: every function. find_window() takes no lock while the set of segments does not change.
#pragma once

#include <cstddef>
#include <optional>

#include "base/status.h"
#include "device/segment.h"

namespace weft::device {

/// From this size on a window has a segment of its own, page-aligned, and freeing it returns its memory at
/// once; that segment, which peers may map still, never holds another window.
inline constexpr size_t kLargeWindowBytes = 1 << 20;
inline constexpr size_t kWindowAlignment = 64;

/// Where a range of window memory lies, in terms that a peer can use. `serial` is never 0 and never used
/// twice in a process.
struct WindowRef {
  SegmentName segment;
  uint64_t serial = 0;
  uint64_t offset = 0;  // of the range in the segment, bytes
};

/// `bytes` of shared memory, aligned to 64 bytes (to pages if large), content undefined. 0 bytes gives a
/// valid pointer that must be freed, too. Fails with out_of_memory.
Result<void*> window_alloc(size_t bytes);

/// Gives back what window_alloc returned. Null is allowed; any other pointer fails with invalid_pointer.
Status window_free(void* window);

/// The same for a window that a peer may still map and write to: its segment, also a shared one, never holds
/// another window. A shared one keeps its address.
Status window_retire(void* window);

/// Gives the memory of a window back, and leaves its address taken until window_free(): for one that somebody
/// may still write to who cannot be told to stop. Of a small one that is the pages that it does not share.
/// What it held reads as zero then, or as it was. Fails with invalid_pointer as window_free.
Status window_discard(void* window);

/// The segment that holds all of [address, address + bytes), if it is window memory.
std::optional<WindowRef> find_window(const void* address, size_t bytes);

}  // namespace weft::device
