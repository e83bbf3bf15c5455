// Philox4x32-10: random numbers as a function of a key and a counter, with no state (Salmon et al., "Parallel
// Random Numbers: As Easy as 1, 2, 3", SC 2011). What is drawn for an element depends only on the key and on
// the element's own number, so any split of the work and any recomputation see the same draw. The functions
// are static: files for several instruction sets include them, and none may take another's copy. Kernels of
// GPUs have them, too.
#pragma once

#include <cstdint>

#include "base/on_device.h"

namespace loom::ops {

/// Which stream of random numbers: a seed and three numbers that tell its uses apart.
struct RandomKey {
  uint64_t seed = 0;
  uint32_t step = 0;
  uint32_t site = 0;  // unit and place in the unit; see model/
};

struct Philox4 {
  uint32_t word[4];
};

constexpr int kPhiloxRounds = 10;
constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53u, kPhiloxMultiplier1 = 0xCD9E8D57u;
constexpr uint32_t kPhiloxKeyStep0 = 0x9E3779B9u, kPhiloxKeyStep1 = 0xBB67AE85u;

/// Four words for counter (block, step, site) under `key.seed`. Each block serves four elements.
LOOM_ON_DEVICE static inline Philox4 philox(RandomKey key, uint64_t block) {
  uint32_t c0 = static_cast<uint32_t>(block), c1 = static_cast<uint32_t>(block >> 32);
  uint32_t c2 = key.step, c3 = key.site;
  uint32_t k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t product0 = uint64_t{kPhiloxMultiplier0} * c0;
    const uint64_t product1 = uint64_t{kPhiloxMultiplier1} * c2;
    const uint32_t n0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c0 = n0;
    c1 = static_cast<uint32_t>(product1);
    c2 = n2;
    c3 = static_cast<uint32_t>(product0);
    k0 += kPhiloxKeyStep0;
    k1 += kPhiloxKeyStep1;
  }
  return {{c0, c1, c2, c3}};
}

/// A word for element `index`.
LOOM_ON_DEVICE static inline uint32_t random_word(RandomKey key, uint64_t index) {
  return philox(key, index / 4).word[index % 4];
}

/// Uniform in (0, 1), never 0 or 1.
LOOM_ON_DEVICE static inline float uniform(uint32_t word) {
  return (static_cast<float>(word >> 9) + 0.5f) * (1.0f / 8388608.0f);
}

/// A word below this is dropped: probability `p` of all 2³² words.
LOOM_ON_DEVICE static inline uint32_t drop_threshold(float p) {
  return static_cast<uint32_t>(static_cast<double>(p) * 4294967296.0);
}

}  // namespace loom::ops
