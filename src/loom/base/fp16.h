// fp16: IEEE 754's binary16, as a type to store, like bf16. It has eleven bits of mantissa, bf16 has eight.
// But its largest value is 65504 and its smallest 6e-8, so gradients must be scaled to be stored in it.
//
// The conversions are written without branches, in integers but for two operations, so that loops of them
// become vectors on every instruction set; GCC 12 leaves loops of _Float16 as they are written, one
// conversion after the other.
#pragma once

#include <bit>
#include <cstdint>

#include "base/bf16.h"

namespace loom {

struct fp16 {
  uint16_t bits = 0;
};

/// Exact.
inline float to_float(fp16 x) {
  const uint32_t magnitude = x.bits & 0x7fffu, sign = (x.bits & 0x8000u) << 16;
  constexpr uint32_t kBias = 112u << 23;  // between the exponents of both types
  const uint32_t special =
      magnitude >= 0x7c00u ? kBias : 0u;  // infinity, NaN: the largest exponent there, too
  const uint32_t normal = (magnitude << 13) + kBias + special;
  const uint32_t small =
      std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  return std::bit_cast<float>((magnitude < 0x400u ? small : normal) | sign);
}

/// Rounds to nearest even; from 65520 on to infinity. A NaN stays one.
inline fp16 to_fp16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & 0x7fffffffu;
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Below 2^-14 the addition rounds: 1/2's last bit is worth what fp16's is worth there.
  const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  uint32_t rounded = magnitude < 0x38800000u ? small : normal;
  rounded = magnitude >= 0x477ff000u ? 0x7c00u : rounded;
  rounded = magnitude > 0x7f800000u ? 0x7e00u : rounded;
  return {static_cast<uint16_t>(rounded | ((bits >> 16) & 0x8000u))};
}

template <>
struct Accumulator<fp16> {
  using type = float;
};

inline float load(fp16 x) { return to_float(x); }
inline void store(fp16& at, float x) { at = to_fp16(x); }

}  // namespace loom
