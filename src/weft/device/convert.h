// Scalar conversions between fp32 and the 16- and 8-bit floats, with the bits of reduce.h's kernels. They
// round to nearest even. A NaN becomes the target's one quiet NaN. float16, bfloat16 and float8e5m2 overflow
// to infinity. float8e4m3 (the OCP "fn" variant: no infinity, NaN 0x7f and 0xff, largest 448) saturates,
// infinities too.
//
// Thread safety: pure functions. They assume the default rounding mode and no flushing of subnormals.
#pragma once

#include <cstdint>

#include "device/float_format.h"

namespace weft::device {

template <typename Format>
inline float to_float(typename Format::Storage bits) {
  return decode_float<Format, float, int32_t>(bits);
}
template <typename Format>
inline typename Format::Storage from_float(float value) {
  return static_cast<typename Format::Storage>(encode_float<Format, float, int32_t>(value));
}

inline float half_to_float(uint16_t bits) { return to_float<Half>(bits); }
inline uint16_t float_to_half(float value) { return from_float<Half>(value); }
inline float bfloat16_to_float(uint16_t bits) { return to_float<Bfloat>(bits); }
inline uint16_t float_to_bfloat16(float value) { return from_float<Bfloat>(value); }
inline float e4m3_to_float(uint8_t bits) { return to_float<E4m3>(bits); }
inline uint8_t float_to_e4m3(float value) { return from_float<E4m3>(value); }
inline float e5m2_to_float(uint8_t bits) { return to_float<E5m2>(bits); }
inline uint8_t float_to_e5m2(float value) { return from_float<E5m2>(value); }

}  // namespace weft::device
