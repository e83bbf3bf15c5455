// at_once: how many long blocks a rank requests, and sends, at a time. If transfers are NIC-bound
// (Limits::nic_bound), all blocks at once would meet in the network's queues. These lose what they cannot
// hold, and a sender that has lost data waits for a timeout. So a rank requests some blocks, and another
// when half of one has arrived. It sends to as few ranks, in the order of their requests. Both go by
// distance: if ranks send to the rank before them first, they request from the rank after them first. So a
// transfer only waits for transfers over shorter distances, and there is no circle of waits. Private to
// plan/.
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
