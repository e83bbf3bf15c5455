// How operands of bfloat16 products are packed, for tiles (amx_tiles.h) and for products of pairs
// (bf16_pairs.h). A strip is 32 rows of A, or 32 columns of B. It is cut into steps of 32 of the depth. A
// part of a step is two tiles of 16 × 32 elements, in the order in which multiply() reads them.
//
// A product of an fp16, or of an fp32 with one, splits each number into two bfloat16: the rounded number and
// the rounded rest. Three of the four products of such parts count, so a product is right to 2⁻¹⁵, while
// fp16 itself is rounded by 2⁻¹¹. An fp32 beside a bfloat16 is rounded to one. The instructions take numbers
// below 2⁻¹²⁶ as zero. A product of two fp32 would take three parts and six products. It was not faster than
// the library's (docs/dev/design-log/2026-11-27-speed-of-training.md).
//
// Included only by files that are compiled for such products.
#pragma once

#include <immintrin.h>

#include "ops/cpu.h"

namespace loom::ops::LOOM_ISA {

constexpr int64_t kStrip = 32, kStep = 32;         // rows or columns of a strip; depth of a step
constexpr int64_t kTileElements = 16 * kStep;      // of bfloat16
constexpr int64_t kPartElements = kStrip * kStep;  // of one part of a step of a strip

/// Into how many parts elements are cut that are multiplied by each other: an operand that is a bfloat16 is
/// not told better by a longer one beside it.
template <typename TA, typename TB>
inline constexpr int kParts = __is_same(TA, bf16) || __is_same(TB, bf16) ? 1 : 2;

constexpr int64_t steps_of(int64_t depth) { return (depth + kStep - 1) / kStep; }
/// Elements of a packed strip.
constexpr int64_t strip_elements(int64_t depth, int parts) { return steps_of(depth) * parts * kPartElements; }

/// A or B: element (i, k) of A, or (k, i) of B, is at[i · stride + k] where rows go along the depth, else
/// at[k · stride + i].
template <typename T>
struct Operand {
  const T* at;
  int64_t stride;
  bool along_depth;

  Operand from(int64_t i, int64_t k) const {
    return {at + (along_depth ? i * stride + k : k * stride + i), stride, along_depth};
  }
};

/// The first `count` elements of 16, the others zero; count ≤ 16, and may be negative.
inline __mmask16 first_of_16(int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffff : count <= 0 ? 0 : (1 << count) - 1);
}

inline __m512 to_floats(__m256i bfloats) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bfloats), 16));
}

inline __m512 load_16(__mmask16 mask, const float* from) { return _mm512_maskz_loadu_ps(mask, from); }
inline __m512 load_16(__mmask16 mask, const bf16* from) {
  return to_floats(_mm256_maskz_loadu_epi16(mask, from));
}
inline __m512 load_16(__mmask16 mask, const fp16* from) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from));
}

inline void store_16(__mmask16 mask, float* to, __m512 x) { _mm512_mask_storeu_ps(to, mask, x); }
inline void store_16(__mmask16 mask, bf16* to, __m512 x) {
  _mm256_mask_storeu_epi16(to, mask, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
}
inline void store_16(__mmask16 mask, fp16* to, __m512 x) {
  _mm256_mask_storeu_epi16(to, mask, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/// 32 elements, the first 16 from `low`, cut: part p goes to to + p · kPartElements.
template <int parts, bool interleave, typename T>
inline void cut(__mmask16 mask_low, const T* low, __mmask16 mask_high, const T* high, uint16_t* to) {
  alignas(64) static constexpr uint16_t kInterleave[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                           21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                           11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const auto put = [&](int part, __m512i x) {
    if constexpr (interleave) x = _mm512_permutexvar_epi16(_mm512_load_si512(kInterleave), x);
    _mm512_store_si512(to + part * kPartElements, x);
  };
  if constexpr (parts == 1 && __is_same(T, bf16)) {
    put(0, _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_maskz_loadu_epi16(mask_low, low)),
                              _mm256_maskz_loadu_epi16(mask_high, high), 1));
  } else {
    __m512 x = load_16(mask_low, low), y = load_16(mask_high, high);
    for (int part = 0; part < parts; ++part) {
      const __m512i rounded = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(y, x));
      put(part, rounded);
      if (part + 1 == parts) break;
      x = _mm512_sub_ps(x, to_floats(_mm512_castsi512_si256(rounded)));
      y = _mm512_sub_ps(y, to_floats(_mm512_extracti64x4_epi64(rounded, 1)));
    }
  }
}

/// 16 × 16 pairs of elements, in place.
inline void transpose(uint16_t* tile) {
  __m512i x[16], y[16];
  for (int i = 0; i < 16; ++i) x[i] = _mm512_load_si512(tile + 32 * i);
  for (int i = 0; i < 8; ++i) {
    y[2 * i] = _mm512_unpacklo_epi32(x[2 * i], x[2 * i + 1]);
    y[2 * i + 1] = _mm512_unpackhi_epi32(x[2 * i], x[2 * i + 1]);
  }
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 2; ++j) {
      x[4 * i + 2 * j] = _mm512_unpacklo_epi64(y[4 * i + j], y[4 * i + 2 + j]);
      x[4 * i + 2 * j + 1] = _mm512_unpackhi_epi64(y[4 * i + j], y[4 * i + 2 + j]);
    }
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 4; ++j) {
      y[8 * i + j] = _mm512_shuffle_i32x4(x[8 * i + j], x[8 * i + 4 + j], 0x88);
      y[8 * i + 4 + j] = _mm512_shuffle_i32x4(x[8 * i + j], x[8 * i + 4 + j], 0xdd);
    }
  for (int j = 0; j < 8; ++j) {
    x[j] = _mm512_shuffle_i32x4(y[j], y[8 + j], 0x88);
    x[8 + j] = _mm512_shuffle_i32x4(y[j], y[8 + j], 0xdd);
  }
  for (int i = 0; i < 16; ++i) _mm512_store_si512(tile + 32 * i, x[i]);
}

/// Packs a step of a strip: up to 32 of what `from` begins with, and as deep; what is missing of whole tiles
/// is zero. A tile of A has a row of it in each of its rows, a tile of B (`right`) two rows of it, element by
/// element in turn.
template <int parts, bool right, typename T>
inline void pack_step(const Operand<T>& from, int64_t count, int64_t depth, uint16_t* to) {
  for (int64_t i = 0; i < kStrip; i += 16) {
    uint16_t* const tile = to + i * kStep;
    if (from.along_depth) {
      const __mmask16 low = first_of_16(depth), high = first_of_16(depth - 16);
      for (int64_t r = 0; r < 16; ++r) {
        const bool there = i + r < count;
        const T* const row = from.at + (there ? (i + r) * from.stride : 0);
        cut<parts, false>(there ? low : __mmask16{0}, row, there ? high : __mmask16{0}, row + 16,
                          tile + 32 * r);
      }
    } else {
      const __mmask16 mask = first_of_16(count - i);
      for (int64_t r = 0; r < 32; r += 2) {
        const T* const row = from.at + r * from.stride + i;
        cut<parts, true>(r < depth ? mask : __mmask16{0}, row, r + 1 < depth ? mask : __mmask16{0},
                         row + from.stride, tile + 16 * r);
      }
    }
    if (from.along_depth == right)
      for (int part = 0; part < parts; ++part) transpose(tile + part * kPartElements);
  }
}

/// Packs strips of `count` rows of A, or columns of B, in the order in which they lie in memory.
template <int parts, bool right, typename T>
void pack(const Operand<T>& from, int64_t count, int64_t depth, uint16_t* to) {
  const int64_t strip = strip_elements(depth, parts);
  const auto step = [&](int64_t i, int64_t k) {
    pack_step<parts, right>(from.from(i, k), count - i, depth - k,
                            to + i / kStrip * strip + k * parts * kStrip);
  };
  if (from.along_depth) {
    for (int64_t i = 0; i < count; i += kStrip)
      for (int64_t k = 0; k < depth; k += kStep) step(i, k);
  } else {
    for (int64_t k = 0; k < depth; k += kStep)
      for (int64_t i = 0; i < count; i += kStrip) step(i, k);
  }
}

}  // namespace loom::ops::LOOM_ISA
