// A permutation of [0, n) that is computed, not stored: a balanced Feistel network (Luby, Rackoff, 1988)
// over the next even number of bits, with keys from (seed, epoch). A value out of range is permuted again
// until it is in range (Black, Rogaway, "Ciphers with arbitrary finite domains", 2002), 4 times at most on
// average. For shuffling only; it hides nothing.
//
// Thread safety: a value.
#pragma once

#include <array>
#include <cstdint>

namespace loom::text {

class Permutation {
 public:
  /// `size` must be at least 1.
  Permutation(uint64_t size, uint64_t seed, uint64_t epoch);
  /// `index` must be below the size.
  uint64_t operator()(uint64_t index) const;

 private:
  uint64_t once(uint64_t value) const;

  static constexpr int kRounds = 6;
  uint64_t size_;
  int half_bits_;
  std::array<uint64_t, kRounds> keys_{};
};

}  // namespace loom::text
