// Random words for many elements at once: philox.h's function, several blocks side by side in the lanes of a
// register.
//
// Included only by files that are compiled once for each instruction set, hence the namespace of its own.
#pragma once

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <cstdint>
#include <cstring>
#include <utility>

#include "ops/philox.h"

namespace loom::ops::LOOM_ISA {

// A block has a lane of 64 bits, of which the upper half holds nothing that counts: the product of the lower
// halves is one instruction then.
#if defined(__AVX512F__)
using Lanes = uint64_t __attribute__((vector_size(64)));
inline Lanes product_of_low_halves(Lanes a, Lanes b) {
  return reinterpret_cast<Lanes>(
      _mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
#elif defined(__AVX2__)
using Lanes = uint64_t __attribute__((vector_size(32)));
inline Lanes product_of_low_halves(Lanes a, Lanes b) {
  return reinterpret_cast<Lanes>(
      _mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
#elif defined(__SSE2__)
using Lanes = uint64_t __attribute__((vector_size(16)));
inline Lanes product_of_low_halves(Lanes a, Lanes b) {
  return reinterpret_cast<Lanes>(_mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
}
#else
using Lanes = uint64_t __attribute__((vector_size(16)));
inline Lanes product_of_low_halves(Lanes a, Lanes b) { return (a & 0xffffffffu) * (b & 0xffffffffu); }
#endif

constexpr int kLanes = sizeof(Lanes) / sizeof(uint64_t);
constexpr int kRegisters = kLanes < 4 ? 4 : 2;  // in flight together: a round's products wait for each other
constexpr int kDrawn = 4 * kLanes * kRegisters;

/// Lanes of `a` and `b` in turn, from lane `first` on. GCC and clang have this function.
template <int first, size_t... lane>
Lanes lanes_in_turn(Lanes a, Lanes b, std::index_sequence<lane...>) {
  return __builtin_shufflevector(a, b, first + static_cast<int>(lane / 2 + lane % 2 * kLanes)...);
}

/// words[4i + lane] = philox(key, block + i).word[lane], kDrawn of them.
inline void draw(RandomKey key, uint64_t block, uint32_t* words) {
  Lanes c0[kRegisters], c1[kRegisters], c2[kRegisters], c3[kRegisters];
  for (int r = 0; r < kRegisters; ++r) {
    for (int lane = 0; lane < kLanes; ++lane) c0[r][lane] = block + static_cast<uint64_t>(r * kLanes + lane);
    c1[r] = c0[r] >> 32, c2[r] = Lanes{} + key.step, c3[r] = Lanes{} + key.site;
  }
  const Lanes multiplier0 = Lanes{} + kPhiloxMultiplier0, multiplier1 = Lanes{} + kPhiloxMultiplier1;
  uint32_t k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    for (int r = 0; r < kRegisters; ++r) {
      const Lanes product0 = product_of_low_halves(c0[r], multiplier0);
      const Lanes product1 = product_of_low_halves(c2[r], multiplier1);
      c0[r] = (product1 >> 32) ^ c1[r] ^ k0, c1[r] = product1;
      c2[r] = (product0 >> 32) ^ c3[r] ^ k1, c3[r] = product0;
    }
    k0 += kPhiloxKeyStep0, k1 += kPhiloxKeyStep1;
  }
  for (int r = 0; r < kRegisters; ++r) {
    const Lanes words01 = (c0[r] & 0xffffffffu) | (c1[r] << 32);
    const Lanes words23 = (c2[r] & 0xffffffffu) | (c3[r] << 32);
    const Lanes halves[] = {lanes_in_turn<0>(words01, words23, std::make_index_sequence<kLanes>()),
                            lanes_in_turn<kLanes / 2>(words01, words23, std::make_index_sequence<kLanes>())};
    std::memcpy(words + r * 4 * kLanes, halves, sizeof halves);
  }
}

/// body(words, skip, i, n): words[skip + j] is random_word(key, first + i + j), for j in [0, n) and i over
/// [0, count); skip + n is at most kDrawn, and all kDrawn words may be read.
template <typename F>
void for_draws(RandomKey key, uint64_t first, int64_t count, F&& body) {
  alignas(64) uint32_t words[kDrawn];
  int64_t skip = static_cast<int64_t>(first % 4);
  for (int64_t i = 0; i < count; skip = 0) {
    draw(key, (first + static_cast<uint64_t>(i)) / 4, words);
    const int64_t n = count - i < kDrawn - skip ? count - i : kDrawn - skip;
    body(static_cast<const uint32_t*>(words), skip, i, n);
    i += n;
  }
}

}  // namespace loom::ops::LOOM_ISA
