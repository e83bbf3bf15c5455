#include "text/permutation.h"

#include <algorithm>
#include <bit>

#include "base/hash.h"

namespace loom::text {

Permutation::Permutation(uint64_t size, uint64_t seed, uint64_t epoch)
    : size_(size), half_bits_(std::max(1, (static_cast<int>(std::bit_width(size - 1)) + 1) / 2)) {
  Hash64 keys;
  keys.add(seed);
  keys.add(epoch);
  for (uint64_t& key : keys_) {
    keys.add(uint64_t{1});
    key = keys.value();
  }
}

uint64_t Permutation::once(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_, right = value & mask;
  for (const uint64_t key : keys_) {
    const uint64_t mixed = left ^ (mix64(right ^ key) & mask);
    left = right;
    right = mixed;
  }
  return left << half_bits_ | right;
}

uint64_t Permutation::operator()(uint64_t index) const {
  // A bijection of the larger range: walking along its cycle must come back into the smaller one.
  do {
    index = once(index);
  } while (index >= size_);
  return index;
}

}  // namespace loom::text
