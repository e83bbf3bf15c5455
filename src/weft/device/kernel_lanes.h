// Lanes: how the kernels of one instruction set hold, load, convert and compare a few elements at a time,
// with the compiler's vector types. Arithmetic of the operators is in kernel_loops.h.
//
// Included only by kernel_loops.h. Everything has internal linkage or is inlined always: each instruction set
// has code of its own, and the linker may not take one's for another's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "device/float_format.h"

namespace weft::device {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

template <typename T, size_t lanes>
struct VectorOf {
  typedef T type __attribute__((vector_size(sizeof(T) * lanes)));
};
template <typename T>
struct VectorOf<T, 1> {
  using type = T;
};
/// `lanes` elements side by side; a plain T if there is one.
template <typename T, size_t lanes>
using Lanes = typename VectorOf<T, lanes>::type;

template <size_t lanes, typename T>
WEFT_ALWAYS_INLINE Lanes<T, lanes> load(const T* from) {
  Lanes<T, lanes> values;
  __builtin_memcpy(&values, from, sizeof values);
  return values;
}

template <typename T, typename Values>
WEFT_ALWAYS_INLINE void store(T* to, Values values) {
  __builtin_memcpy(to, &values, sizeof values);
}

/// Each lane as a To, as static_cast does.
template <typename To, size_t lanes, typename Values>
WEFT_ALWAYS_INLINE Lanes<To, lanes> convert(Values values) {
  if constexpr (lanes == 1) {
    return static_cast<To>(values);
  } else {
    return __builtin_convertvector(values, Lanes<To, lanes>);
  }
}

template <typename T, size_t lanes>
WEFT_ALWAYS_INLINE Lanes<T, lanes> all(T value) {
  return Lanes<T, lanes>{} + value;
}

// ---- NaN

template <typename T>
struct FloatBits;  // of fp32 and fp64
template <>
struct FloatBits<float> {
  using Int = int32_t;
  static constexpr Int kInfinity = kFloatInfinity, kNan = kFloatNan;
};
template <>
struct FloatBits<double> {
  using Int = int64_t;
  static constexpr Int kInfinity = Int{0x7ff} << 52, kNan = Int{0xfff} << 51;
};

/// Every NaN as the one quiet NaN: which payload an addition hands on depends on the order in which the
/// compiler happens to name its operands.
template <typename T, size_t lanes>
WEFT_ALWAYS_INLINE Lanes<T, lanes> canonical(Lanes<T, lanes> values) {
  const auto nan = bits_as<Lanes<T, lanes>>(all<typename FloatBits<T>::Int, lanes>(FloatBits<T>::kNan));
  return values == values ? values : nan;
}

// ---- Narrow floats

#if defined(__AVX512F__)
constexpr __mmask16 kAll16 = 0xffff;  // gcc warns of the unmasked intrinsics' undefined third operand
#endif

/// Format's elements as floats, exactly; a NaN stays one, of any payload.
template <typename Format, size_t lanes>
WEFT_ALWAYS_INLINE Lanes<float, lanes> decode(Lanes<typename Format::Storage, lanes> values) {
  using Floats = Lanes<float, lanes>;
#if defined(__F16C__)
  if constexpr (std::is_same_v<Format, E5m2> && lanes >= 8) {  // the upper half of a float16
    return decode<Half, lanes>(convert<uint16_t, lanes>(values) << 8);
  } else if constexpr (std::is_same_v<Format, Half> && lanes == 8) {
    return bits_as<Floats>(_mm256_cvtph_ps(bits_as<__m128i>(values)));
  }
#endif
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<Format, Half> && lanes == 16) {
    return bits_as<Floats>(_mm512_maskz_cvtph_ps(kAll16, bits_as<__m256i>(values)));
  }
#endif
  using Ints = Lanes<int32_t, lanes>;
  return decode_float<Format, Floats, Ints>(convert<int32_t, lanes>(values));
}

template <typename Format, size_t lanes>
WEFT_ALWAYS_INLINE Lanes<typename Format::Storage, lanes> encode(Lanes<float, lanes> values) {
  using Storage [[maybe_unused]] = Lanes<typename Format::Storage, lanes>;
#if defined(__F16C__)
  if constexpr (std::is_same_v<Format, Half> && lanes == 8) {
    return bits_as<Storage>(
        _mm256_cvtps_ph(bits_as<__m256>(canonical<float, lanes>(values)), _MM_FROUND_TO_NEAREST_INT));
  }
#endif
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<Format, Half> && lanes == 16) {
    return bits_as<Storage>(_mm512_maskz_cvtps_ph(kAll16, bits_as<__m512>(canonical<float, lanes>(values)),
                                                  _MM_FROUND_TO_NEAREST_INT));
  }
#endif
  using Ints = Lanes<int32_t, lanes>;
  return convert<typename Format::Storage, lanes>(encode_float<Format, Lanes<float, lanes>, Ints>(values));
}

}  // namespace
}  // namespace weft::device
