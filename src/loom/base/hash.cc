#include "base/hash.h"

#include <cstring>

namespace loom {

void Hash64::add(std::span<const std::byte> bytes) {
  add(uint64_t{bytes.size()});
  for (size_t at = 0; at < bytes.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min<size_t>(8, bytes.size() - at));
    state_ = mix64(state_ ^ word);
  }
}

}  // namespace loom
