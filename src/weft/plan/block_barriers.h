// Plans whose lanes are groups of thread blocks. Each block goes through all steps of its lane on a part of
// the bytes of its own: part b of a step's bytes is block b's. Notifications and dependencies are kept for
// each block: what block b waits for, the blocks b of other lanes and ranks have done.
//
// So a block may read only what its own block index has been told of. That holds by itself between steps that
// name the same bytes, since their parts are the same. Between steps that overlap otherwise, the blocks of a
// lane have to meet on the way: a barrier.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan.h"

namespace weft::plan {

/// The steps that need a barrier, by rank and step id. A block begins such a step when all blocks of its lane
/// are about to begin it.
struct BlockBarriers {
  std::vector<std::vector<bool>> before;
  /// How many there are in all plans.
  int count() const;
};

/// Where barriers are needed so that any number of blocks a lane gives what one gives, in place or not. None
/// in a world where each block reads only what its own index has been told of. `plans[r]` is rank r's;
/// verify() accepts them. Errors: those of verify() on structure and progress.
Result<BlockBarriers> find_block_barriers(std::span<const Plan> plans, const topology::Layout& layout,
                                          const Limits& limits);

}  // namespace weft::plan
