// Which elements a dropout drops, by the CPU's random bits: element i of the global batch has word i % 4 of
// Philox block i / 4 (ops/philox.h).
#pragma once

#include "device/cuda/kernels/packs.h"
#include "ops/operators.h"

namespace loom::cuda {

/// ops::Dropout with what follows from its probability.
struct DropoutMask {
  ops::RandomKey key;
  uint64_t first = 0;
  uint32_t threshold = 0;
  float keep = 1;
  bool drops = false;

  DropoutMask() = default;
  explicit DropoutMask(const ops::Dropout& dropout)
      : key(dropout.key),
        first(dropout.first),
        threshold(ops::drop_threshold(dropout.probability)),
        keep(1.0f / (1.0f - dropout.probability)),
        drops(dropout.probability != 0) {}

  /// x times 0 or 1 / (1 - p), where x.at[0] is element `element` of the array.
  template <int n>
  LOOM_DEVICE void apply(int64_t element, Floats<n>& x) const {
    if (!drops) return;
    constexpr unsigned kBlocks = n / 4 + 1;  // the last is needed where the pack does not begin with a block
    const uint64_t begin = first + static_cast<uint64_t>(element);
    const unsigned skip = static_cast<unsigned>(begin % 4);
    uint32_t word[4 * kBlocks];
#pragma unroll
    for (unsigned block = 0; block < kBlocks; ++block) {
      ops::Philox4 drawn{};
      if (4 * block < skip + n) drawn = ops::philox(key, begin / 4 + block);
#pragma unroll
      for (int i = 0; i < 4; ++i) word[4 * block + i] = drawn.word[i];
    }
#pragma unroll
    for (int i = 0; i < n; ++i) {  // no index that is known at run time only: words stay in registers
      const uint32_t low = (skip & 1) != 0 ? word[i + 1] : word[i];
      const uint32_t high = (skip & 1) != 0 ? word[i + 3] : word[i + 2];
      x.at[i] *= ((skip & 2) != 0 ? high : low) < threshold ? 0.0f : keep;
    }
  }
};

}  // namespace loom::cuda
