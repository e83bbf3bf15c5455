// at_once: how many long blocks a rank asks for, and sends, at a time. Where transfers are NIC-bound
// (Limits::nic_bound), all at once meet in the network's queues, which lose what they do not hold, and
// whoever has lost waits for a timeout. So a rank asks for some, and for another when half of one is there;
// it sends to as few, who have asked it first. Both go by distance: where ranks send to the one before them
// first, they ask the one after them first. So all that a transfer waits for are transfers over less, and
// nobody waits for anybody in a circle. Private to plan/.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "plan/schedule.h"

namespace weft::plan {

/// The longest put to another node that needs no exposed target where ranks send to all others at once.
inline uint64_t eager_bytes_meeting(const topology::Layout& layout, const Limits& limits) {
  return layout.ranks() > 2 ? std::min(limits.eager_inter_bytes, limits.eager_incast_bytes)
                            : limits.eager_inter_bytes;
}

/// Whether blocks of so many bytes, one for each of `peers`, are so long that they are asked for, even where
/// each could go eagerly.
bool may_meet(uint64_t block_bytes, int peers);

/// How many of these go at once; SIZE_MAX: all. Where they do not, they want two slices at least.
size_t most_at_once(const Task& task, uint64_t block_bytes, int peers);

/// The slice after which a rank asks for the next block.
inline int asks_after(const Slices& slices) { return (slices.count() - 1) / 2; }

}  // namespace weft::plan
