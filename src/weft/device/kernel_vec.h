// Vec: how the kernels of one instruction set hold, load, convert and compare a few elements at a time,
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
constexpr __mmask16 kAll16 = 0xffff;  // gcc warns of the unmasked intrinsics' undefined third operand
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
using Vec = typename VectorOf<T, lanes>::type;

template <size_t lanes, typename T>
WEFT_ALWAYS_INLINE Vec<T, lanes> load(const T* from) {
  Vec<T, lanes> values;
  __builtin_memcpy(&values, from, sizeof values);
  return values;
}

template <typename T, typename Values>
WEFT_ALWAYS_INLINE void store(T* to, Values values) {
  __builtin_memcpy(to, &values, sizeof values);
}

/// The first n bytes, 1 to 8, of memory as a word's low bytes; and back. Two pieces overlap.
WEFT_ALWAYS_INLINE uint64_t load_bytes(const char* from, size_t n) {
  const auto pieces = [&](auto piece) __attribute__((always_inline)) {
    using Piece = decltype(piece);
    const uint64_t high = load<1>(reinterpret_cast<const Piece*>(from + n - sizeof(Piece)));
    return load<1>(reinterpret_cast<const Piece*>(from)) | high << 8 * (n - sizeof(Piece));
  };
  return n >= 4 ? pieces(uint32_t{}) : n >= 2 ? pieces(uint16_t{}) : pieces(uint8_t{});
}
WEFT_ALWAYS_INLINE void store_bytes(char* to, size_t n, uint64_t word) {
  const auto pieces = [&](auto piece) __attribute__((always_inline)) {
    using Piece = decltype(piece);
    store(to, static_cast<Piece>(word));
    store(to + n - sizeof(Piece), static_cast<Piece>(word >> 8 * (n - sizeof(Piece))));
  };
  n >= 4 ? pieces(uint32_t{}) : n >= 2 ? pieces(uint16_t{}) : pieces(uint8_t{});
}

/// The first `count` elements, 1 to lanes, of a vector of 8 or 16 bytes; other lanes hold zeros. By way of
/// words, since a vector's load would wait for the smaller stores that put it together.
template <size_t lanes, typename T>
WEFT_ALWAYS_INLINE Vec<T, lanes> load_part(const T* elements, size_t count) {
  const auto* from = reinterpret_cast<const char*>(elements);
  const size_t n = count * sizeof(T);
  if constexpr (lanes * sizeof(T) == 8) {
    return bits_as<Vec<T, lanes>>(load_bytes(from, n));
  } else {
    Vec<uint64_t, 2> words = {};
    words[0] = load_bytes(from, n < 8 ? n : 8);
    if (n > 8) words[1] = load_bytes(from + 8, n - 8);
    return bits_as<Vec<T, lanes>>(words);
  }
}
template <size_t lanes, typename T>
WEFT_ALWAYS_INLINE void store_part(T* elements, size_t count, Vec<T, lanes> values) {
  auto* to = reinterpret_cast<char*>(elements);
  const size_t n = count * sizeof(T);
  if constexpr (lanes * sizeof(T) == 8) {
    store_bytes(to, n, bits_as<uint64_t>(values));
  } else {
    const auto words = bits_as<Vec<uint64_t, 2>>(values);
    store_bytes(to, n < 8 ? n : 8, words[0]);
    if (n > 8) store_bytes(to + 8, n - 8, words[1]);
  }
}

/// Each lane as a To, as static_cast does.
template <typename To, size_t lanes, typename Values>
WEFT_ALWAYS_INLINE Vec<To, lanes> convert(Values values) {
  if constexpr (lanes == 1) {
    return static_cast<To>(values);
  } else {
    return __builtin_convertvector(values, Vec<To, lanes>);
  }
}

// The compilers convert between bytes, halves and words an element at a time where the CPU has an instruction
// for all of them; these name it.

/// Unsigned 8- or 16-bit lanes as words.
template <typename Bits, size_t lanes>
WEFT_ALWAYS_INLINE Vec<int32_t, lanes> widen_bits(Vec<Bits, lanes> values) {
#if defined(__AVX512F__)
  if constexpr (lanes == 16 && sizeof(Bits) == 1) {
    return bits_as<Vec<int32_t, lanes>>(_mm512_maskz_cvtepu8_epi32(kAll16, bits_as<__m128i>(values)));
  } else if constexpr (lanes == 16) {
    return bits_as<Vec<int32_t, lanes>>(_mm512_maskz_cvtepu16_epi32(kAll16, bits_as<__m256i>(values)));
  }
#endif
#if defined(__AVX2__)
  if constexpr (lanes == 8 && sizeof(Bits) == 1) {
    return bits_as<Vec<int32_t, lanes>>(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(bits_as<int64_t>(values))));
  } else if constexpr (lanes == 8) {
    return bits_as<Vec<int32_t, lanes>>(_mm256_cvtepu16_epi32(bits_as<__m128i>(values)));
  }
#elif defined(__SSE2__)
  if constexpr (lanes == 4 && sizeof(Bits) == 1) {
    const __m128i halves =
        _mm_unpacklo_epi8(_mm_cvtsi32_si128(bits_as<int32_t>(values)), _mm_setzero_si128());
    return bits_as<Vec<int32_t, lanes>>(_mm_unpacklo_epi16(halves, _mm_setzero_si128()));
  } else if constexpr (lanes == 4) {
    const __m128i halves = _mm_cvtsi64_si128(bits_as<int64_t>(values));
    return bits_as<Vec<int32_t, lanes>>(_mm_unpacklo_epi16(halves, _mm_setzero_si128()));
  }
#endif
  return convert<int32_t, lanes>(values);
}

/// Words as unsigned 8- or 16-bit lanes, where they fit.
template <typename Bits, size_t lanes>
WEFT_ALWAYS_INLINE Vec<Bits, lanes> narrow_bits(Vec<int32_t, lanes> values) {
#if defined(__AVX512F__)
  if constexpr (lanes == 16 && sizeof(Bits) == 1) {
    return bits_as<Vec<Bits, lanes>>(_mm512_maskz_cvtepi32_epi8(kAll16, bits_as<__m512i>(values)));
  } else if constexpr (lanes == 16) {
    return bits_as<Vec<Bits, lanes>>(_mm512_maskz_cvtepi32_epi16(kAll16, bits_as<__m512i>(values)));
  }
#endif
#if defined(__AVX2__)
  if constexpr (lanes == 8) {
    const __m256i words = bits_as<__m256i>(values);
    // Each half of the register is packed by itself; the permutation brings their results together.
    const __m128i halves =
        _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0x08));
    if constexpr (sizeof(Bits) == 2) return bits_as<Vec<Bits, lanes>>(halves);
    else return bits_as<Vec<Bits, lanes>>(_mm_cvtsi128_si64(_mm_packus_epi16(halves, halves)));
  }
#elif defined(__SSE2__)
  if constexpr (lanes == 4) {
    // There is only a packing of signed words that saturates; sign extension makes it take all 16 bits as
    // they are.
    const __m128i words = bits_as<__m128i>((values << 16) >> 16);
    const __m128i halves = _mm_packs_epi32(words, words);
    if constexpr (sizeof(Bits) == 2) return bits_as<Vec<Bits, lanes>>(_mm_cvtsi128_si64(halves));
    else return bits_as<Vec<Bits, lanes>>(_mm_cvtsi128_si32(_mm_packus_epi16(halves, halves)));
  }
#endif
  return convert<Bits, lanes>(values);
}

template <typename T, size_t lanes>
WEFT_ALWAYS_INLINE Vec<T, lanes> all(T value) {
  return Vec<T, lanes>{} + value;
}

/// 8-bit integers as floats, and floats truncated to them.
template <typename T, size_t lanes>
WEFT_ALWAYS_INLINE Vec<float, lanes> byte_to_float(Vec<T, lanes> values) {
  const auto bytes = bits_as<Vec<uint8_t, lanes>>(values);
  const auto words = widen_bits<uint8_t, lanes>(bytes);
  return convert<float, lanes>(std::is_signed_v<T> ? (words ^ 0x80) - 0x80 : words);
}
template <typename T, size_t lanes>
WEFT_ALWAYS_INLINE Vec<T, lanes> float_to_byte(Vec<float, lanes> values) {
  return bits_as<Vec<T, lanes>>(narrow_bits<uint8_t, lanes>(convert<int32_t, lanes>(values) & 0xff));
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
WEFT_ALWAYS_INLINE Vec<T, lanes> canonical(Vec<T, lanes> values) {
  const auto nan = bits_as<Vec<T, lanes>>(all<typename FloatBits<T>::Int, lanes>(FloatBits<T>::kNan));
  return values == values ? values : nan;
}

// ---- Narrow floats

/// Format's elements as floats, exactly; a NaN stays one, of any payload.
template <typename Format, size_t lanes>
WEFT_ALWAYS_INLINE Vec<float, lanes> decode(Vec<typename Format::Storage, lanes> values) {
  using Floats = Vec<float, lanes>;
#if defined(__F16C__)
  if constexpr (std::is_same_v<Format, E5m2> && lanes == 16) {  // the upper half of a float16
    return decode<Half, lanes>(bits_as<Vec<uint16_t, lanes>>(_mm256_cvtepu8_epi16(bits_as<__m128i>(values)))
                               << 8);
  } else if constexpr (std::is_same_v<Format, E5m2> && lanes == 8) {
    const __m128i bytes = _mm_cvtsi64_si128(bits_as<int64_t>(values));
    return decode<Half, lanes>(bits_as<Vec<uint16_t, lanes>>(_mm_cvtepu8_epi16(bytes)) << 8);
  } else if constexpr (std::is_same_v<Format, Half> && lanes == 8) {
    return bits_as<Floats>(_mm256_cvtph_ps(bits_as<__m128i>(values)));
  }
#endif
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<Format, Half> && lanes == 16) {
    return bits_as<Floats>(_mm512_maskz_cvtph_ps(kAll16, bits_as<__m256i>(values)));
  }
#endif
  using Ints = Vec<int32_t, lanes>;
  return decode_float<Format, Floats, Ints>(widen_bits<typename Format::Storage, lanes>(values));
}

template <typename Format, size_t lanes>
WEFT_ALWAYS_INLINE Vec<typename Format::Storage, lanes> encode(Vec<float, lanes> values) {
  using Storage [[maybe_unused]] = Vec<typename Format::Storage, lanes>;
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
  using Ints = Vec<int32_t, lanes>;
  return narrow_bits<typename Format::Storage, lanes>(encode_float<Format, Vec<float, lanes>, Ints>(values));
}

}  // namespace
}  // namespace weft::device
