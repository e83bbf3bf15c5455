// The 16- and 8-bit float formats as integer arithmetic on fp32's bits: exact decoding, encoding to nearest
// even. Written once for scalars and for vectors: convert.h applies it to scalars, kernel_vec.h to vectors.
//
// The trick, for a format with a smaller exponent range than fp32: shift the magnitude's bits to where fp32
// has its exponent and mantissa, and correct the exponent's bias by an integer addition. Subnormals have no
// leading 1 there; they get one, and a float subtraction takes its value away again, exactly. Encoding goes
// the same way back, where the float unit's own rounding serves the subnormals and an integer addition of
// half a unit the rest.
//
// Everything is inlined always: the same templates are compiled for several instruction sets in one program,
// and for GPUs.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define WEFT_ALWAYS_INLINE __host__ __device__ __forceinline__
#else
#define WEFT_ALWAYS_INLINE [[gnu::always_inline]] inline
#endif

namespace weft::device {

/// Sign, exponent, mantissa; the bias is the usual one. kIeee: the highest exponent is for infinities and
/// NaN. Otherwise ("fn") only the all-ones pattern is NaN, there is no infinity, and what is too large
/// becomes the largest finite value.
template <typename Bits, int exponent_bits, int mantissa_bits, bool ieee>
struct FloatFormat {
  using Storage = Bits;
  static constexpr int kMantissa = mantissa_bits;
  static constexpr bool kIeee = ieee;
  static constexpr int kSignShift = exponent_bits + mantissa_bits;
  static constexpr int32_t kSign = 1 << kSignShift;
  static constexpr int32_t kMagnitude = kSign - 1;
  static constexpr int32_t kBias = (1 << (exponent_bits - 1)) - 1;
  static constexpr int32_t kInfinity = ((1 << exponent_bits) - 1) << mantissa_bits;          // if ieee
  static constexpr int32_t kNan = ieee ? kInfinity | 1 << (mantissa_bits - 1) : kMagnitude;  // the quiet one
  static constexpr int32_t kOverflow = ieee ? kInfinity : kNan - 1;  // what too large a value becomes
};
using Half = FloatFormat<uint16_t, 5, 10, true>;
using Bfloat = FloatFormat<uint16_t, 8, 7, true>;
using E5m2 = FloatFormat<uint8_t, 5, 2, true>;
using E4m3 = FloatFormat<uint8_t, 4, 3, false>;

inline constexpr int32_t kFloatInfinity = 0x7f800000;
inline constexpr int32_t kFloatNan = 0x7fc00000;

/// The same bits as another type.
template <typename To, typename From>
WEFT_ALWAYS_INLINE To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

/// `bits` holds the format's bits, zero-extended. Float is float or a vector of them, Int int32_t or as many
/// of those.
template <typename Format, typename Float, typename Int>
WEFT_ALWAYS_INLINE Float decode_float(Int bits) {
  constexpr int shift = 23 - Format::kMantissa;
  if constexpr (Format::kBias == 127) {  // bfloat16 is the upper half of fp32
    return bits_as<Float>(bits << shift);
  } else {
    constexpr int32_t one = (128 - Format::kBias) << 23;  // bits of the format's smallest normal value
    const Int magnitude = (bits & Format::kMagnitude) << shift;
    const Int normal = magnitude + ((127 - Format::kBias) << 23);
    const Int subnormal =
        bits_as<Int>(bits_as<Float>(magnitude + one) - bits_as<Float>((magnitude & 0) + one));
    Int result = magnitude < (1 << 23) ? subnormal : normal;
    if constexpr (Format::kIeee) {
      result = magnitude >= (Format::kInfinity << shift) ? magnitude | kFloatInfinity : result;
    } else {
      result = magnitude == (Format::kNan << shift) ? result | kFloatNan : result;
    }
    const Int sign = (bits & Format::kSign) << (31 - Format::kSignShift);
    return bits_as<Float>(result | sign);
  }
}

/// To nearest, ties to even. A NaN of either sign becomes the format's positive quiet NaN.
template <typename Format, typename Float, typename Int>
WEFT_ALWAYS_INLINE Int encode_float(Float value) {
  constexpr int shift = 23 - Format::kMantissa;
  const Int bits = bits_as<Int>(value);
  const Int magnitude = bits & 0x7fffffff;
  const Int half_less_tie =
      ((bits >> shift) & 1) + ((1 << (shift - 1)) - 1);  // what rounds up, ties only from odd to even
  Int result;
  if constexpr (Format::kBias == 127) {
    result = ((bits + half_less_tie) >> shift) & (Format::kSign | Format::kMagnitude);
  } else {
    constexpr int32_t one = (128 - Format::kBias) << 23;
    constexpr int32_t unit =
        one + (shift << 23);  // a power of two whose last bit is the format's smallest subnormal
    const Int normal = (magnitude - ((127 - Format::kBias) << 23) + half_less_tie) >> shift;
    const Int subnormal =
        bits_as<Int>(bits_as<Float>(magnitude) + bits_as<Float>((magnitude & 0) + unit)) - unit;
    result = magnitude < one ? subnormal : normal;
    result = result > Format::kOverflow ? (result & 0) + Format::kOverflow : result;
    result |= (bits >> (31 - Format::kSignShift)) & Format::kSign;
  }
  return magnitude > kFloatInfinity ? (result & 0) + Format::kNan : result;
}

}  // namespace weft::device
