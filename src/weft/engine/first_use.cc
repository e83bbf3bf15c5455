#include "engine/first_use.h"

#include <algorithm>

namespace weft::engine {

bool FirstUse::note(plan::Collective collective, uint64_t bytes, const std::array<uint64_t, 2>& buffers) {
  uint64_t& longest = longest_[static_cast<size_t>(collective)];
  bool first = bytes > longest;
  longest = std::max(longest, bytes);
  if (buffers_.size() >= kRemembered) buffers_.clear();
  for (const uint64_t buffer : buffers)
    if (buffer != 0) first |= buffers_.insert(buffer).second;
  return first;
}

}  // namespace weft::engine
