// bf16: the upper half of an fp32, as a type to store. Arithmetic is done in fp32; acc_t<T> says in which
// type sums over elements of T are kept.
//
// Not here: conversions of whole buffers of files (format/), which know more types.
#pragma once

#include <bit>
#include <cstdint>

namespace loom {

struct bf16 {
  uint16_t bits = 0;
};

/// Exact.
inline float to_float(bf16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

/// Rounds to nearest even; a NaN stays one.
inline bf16 to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return {static_cast<uint16_t>(is_nan ? (bits >> 16) | 0x40u : rounded)};
}

template <typename T>
struct Accumulator {
  using type = T;
};
template <>
struct Accumulator<bf16> {
  using type = float;
};
/// fp32 for 16-bit types and fp32, fp64 for fp64.
template <typename T>
using acc_t = typename Accumulator<T>::type;

inline float load(float x) { return x; }
inline double load(double x) { return x; }
inline float load(bf16 x) { return to_float(x); }

inline void store(float& at, float x) { at = x; }
inline void store(double& at, double x) { at = x; }
inline void store(bf16& at, float x) { at = to_bf16(x); }

}  // namespace loom
