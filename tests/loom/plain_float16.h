// The 16-bit formats by the plain rules, one value at a time: what the conversions of base/ are checked by.
#pragma once

#include <bit>
#include <cstdint>

namespace loom::testing {

constexpr uint32_t kInfinityBits = 0x7f800000;

inline uint16_t plain_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t size = bits & 0x7fffffff;
  if (size > kInfinityBits) return static_cast<uint16_t>(sign | 0x7e00 | (size >> 13 & 0x3ff));
  if (size >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // 65520 and more round to infinity
  if (size < 0x38800000) {
    // Below 2^-14 a step is 2^-24: adding 0.5, whose last bit is 2^-24, lets the processor round.
    const float shifted = std::bit_cast<float>(size) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f)));
  }
  const uint32_t rounded = size + 0xfff + (size >> 13 & 1);
  return static_cast<uint16_t>(sign | ((rounded - (uint32_t{112} << 23)) >> 13));
}

inline float of_plain_f16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = bits >> 10 & 0x1f;
  const uint32_t fraction = bits & 0x3ff;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | kInfinityBits | fraction << 13);
  if (exponent == 0) {
    const float size = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(size));
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

}  // namespace loom::testing
