#include "plan/at_once.h"

#include <algorithm>

namespace weft::plan {
namespace {

/// Blocks longer than the first that come to more than the second altogether may meet.
constexpr uint64_t kBriefBlock = 16 << 10, kAllAtOnce = 512 << 10;

/// A node's ranks this many together, but each a few, lest its interface stands idle.
constexpr size_t kOfNode = 8, kOfRank = 4;

}  // namespace

bool may_meet(uint64_t block_bytes, int peers) {
  return block_bytes > kBriefBlock && block_bytes * static_cast<uint64_t>(peers) > kAllAtOnce;
}

size_t most_at_once(const Task& task, uint64_t block_bytes, int peers) {
  if (!task.limits.nic_bound || !may_meet(block_bytes, peers)) return SIZE_MAX;
  const size_t mates = task.layout.on_node(task.layout.node_of(task.rank)).size();
  return std::max(kOfNode / mates, kOfRank);
}

}  // namespace weft::plan
