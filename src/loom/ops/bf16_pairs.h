// Products by AVX512_BF16: one instruction multiplies 16 pairs of bfloat16 by 16 others, and adds both
// products of each pair to 16 sums in fp32. A pair of A goes to all 16 columns of a row of the sums.
//
// Included only by files that are compiled for it.
#pragma once

#include <string.h>

#include "ops/packing.h"

namespace loom::ops::LOOM_ISA {

/// What a thread has to do before and after; nothing here.
struct TileRegisters {
  TileRegisters() {}
};

/// sums[32, 32] = (`fresh` ? 0 : sums) + a strip of A times a strip of B over `steps` steps. The sums of 8
/// rows are in registers while two vectors of B go by: 16 products for 10 loads.
template <int parts>
inline void multiply(const uint16_t* a, const uint16_t* b, int64_t steps, bool fresh, float* sums) {
  static_assert(parts == 1, "in parts, fp32 is faster");
  constexpr int kRows = 8, kPairs = kStep / 2;
  const auto vector = [](const uint16_t* from) {
    return reinterpret_cast<__m512bh>(_mm512_load_si512(from));
  };
  for (int row = 0; row < kStrip; row += kRows) {
    __m512 low[kRows], high[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      float* const at = sums + (row + r) * kStrip;
      low[r] = fresh ? _mm512_setzero_ps() : _mm512_load_ps(at);
      high[r] = fresh ? _mm512_setzero_ps() : _mm512_load_ps(at + 16);
    }
    const uint16_t* left = a + row * kStep;
    const uint16_t* right = b;
    for (int64_t step = 0; step < steps; ++step, left += kPartElements, right += kPartElements)
      for (int pair = 0; pair < kPairs; ++pair) {
        const __m512bh to_low = vector(right + 32 * pair),
                       to_high = vector(right + kTileElements + 32 * pair);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          int32_t both;
          memcpy(&both, left + r * kStep + 2 * pair, sizeof both);
          const auto spread = reinterpret_cast<__m512bh>(_mm512_set1_epi32(both));
          low[r] = _mm512_dpbf16_ps(low[r], spread, to_low);
          high[r] = _mm512_dpbf16_ps(high[r], spread, to_high);
        }
      }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      float* const at = sums + (row + r) * kStrip;
      _mm512_store_ps(at, low[r]);
      _mm512_store_ps(at + 16, high[r]);
    }
  }
}

}  // namespace loom::ops::LOOM_ISA
