#include "engine/gpu/may_call_driver.h"

#include <bit>

namespace weft::engine {

bool MayCallDriver::note(plan::Collective collective, uint64_t bytes,
                         const std::array<uint64_t, 2>& buffers) {
  uint64_t& classes = classes_[static_cast<size_t>(collective)];
  const uint64_t size_class = uint64_t{1} << (std::bit_width(bytes) % 64);
  bool first = (classes & size_class) == 0;
  classes |= size_class;
  if (buffers_.size() >= kRemembered) buffers_.clear();
  for (const uint64_t buffer : buffers)
    if (buffer != 0) first |= buffers_.insert(buffer).second;
  return first;
}

}  // namespace weft::engine
