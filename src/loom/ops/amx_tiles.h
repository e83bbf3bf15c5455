// Products on the CPU's tiles (AMX): one instruction multiplies 16 × 32 by 32 × 16 elements of bfloat16 and
// adds the products to 16 × 16 sums in fp32.
//
// Included only by files that are compiled for tiles.
#pragma once

#include "ops/packing.h"

namespace loom::ops::LOOM_ISA {

/// A thread's tiles, all of 16 rows of 64 bytes, while this lives.
class TileRegisters {
 public:
  TileRegisters() {
    alignas(64) struct {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } const all;
    _tile_loadconfig(&all);
  }
  ~TileRegisters() { _tile_release(); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;
};

/// sums[32, 32] = (`fresh` ? 0 : sums) + a strip of A times a strip of B over `steps` steps. Tiles 0 to 3
/// have the sums, 4 and 5 a part of A, 6 and 7 one of B; from pair to pair of parts only one of them changes.
template <int parts>
inline void multiply(const uint16_t* a, const uint16_t* b, int64_t steps, bool fresh, float* sums) {
  constexpr int kRow = kStrip * sizeof(float);
  if (fresh) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, sums, kRow);
    _tile_loadd(1, sums + 16, kRow);
    _tile_loadd(2, sums + 16 * kStrip, kRow);
    _tile_loadd(3, sums + 16 * kStrip + 16, kRow);
  }
  const auto left = [&](int part) {
    _tile_loadd(4, a + part * kPartElements, 64);
    _tile_loadd(5, a + part * kPartElements + kTileElements, 64);
  };
  const auto right = [&](int part) {
    _tile_loadd(6, b + part * kPartElements, 64);
    _tile_loadd(7, b + part * kPartElements + kTileElements, 64);
  };
  const auto add = [] {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  };
  for (int64_t step = 0; step < steps; ++step) {
    left(0);
    if constexpr (parts == 2) {
      right(1), add();
      right(0), add();
      left(1), add();
    } else {
      right(0), add();
    }
    a += parts * kPartElements;
    b += parts * kPartElements;
  }
  _tile_stored(0, sums, kRow);
  _tile_stored(1, sums + 16, kRow);
  _tile_stored(2, sums + 16 * kStrip, kRow);
  _tile_stored(3, sums + 16 * kStrip + 16, kRow);
}

}  // namespace loom::ops::LOOM_ISA
