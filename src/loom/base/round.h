// Quotients and multiples that are rounded up.
//
// Always inlined: files that are compiled for one instruction set use them, and the linker must not keep a
// copy of theirs for all (ops/cpu.h).
#pragma once

#include <cstdint>

#include "base/on_device.h"

namespace loom {

/// ⌈a / b⌉ of a ≥ 0, b > 0.
[[gnu::always_inline]] LOOM_ON_DEVICE constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
/// The least multiple of b that is at least a.
[[gnu::always_inline]] LOOM_ON_DEVICE constexpr int64_t round_up(int64_t a, int64_t b) {
  return ceil_div(a, b) * b;
}

}  // namespace loom
