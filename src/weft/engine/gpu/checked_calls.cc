#include "engine/gpu/checked_calls.h"

#include <algorithm>

namespace weft::engine {

CheckedCalls& CheckedCalls::of_this_thread() {
  static thread_local CheckedCalls own;
  return own;
}

void CheckedCalls::note_buffer(const void* address, const cuda::Place& place) {
  const auto known = std::find_if(buffers_.begin(), buffers_.end(),
                                  [address](const auto& buffer) { return buffer.first == address; });
  if (known != buffers_.end()) known->second = place;
  else if (buffers_.size() < kKept) buffers_.emplace_back(address, place);
}

const cuda::Place* CheckedCalls::find(const void* address) const {
  const auto known = std::find_if(buffers_.begin(), buffers_.end(),
                                  [address](const auto& buffer) { return buffer.first == address; });
  return known == buffers_.end() ? nullptr : &known->second;
}

void CheckedCalls::forget() {
  capture_.reset();
  buffers_.clear();
}

}  // namespace weft::engine
