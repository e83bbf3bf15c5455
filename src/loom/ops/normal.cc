// Normally distributed numbers by counter (normal_pair.h). Weights begin with them, on every rank for itself,
// so this file is compiled without fused multiplications: the bits are the same for every instruction set,
// and ranks of unlike machines begin alike.
#include "ops/cpu.h"
#include "ops/draws.h"
#include "ops/normal_pair.h"

namespace loom::ops::LOOM_ISA {
namespace {

/// numbers[kDrawn] from words[kDrawn], by pairs.
inline void normal_of(const uint32_t* words, float deviation, float* numbers) {
#pragma omp simd
  for (int i = 0; i < kDrawn; i += 2) {
    const Point pair = normal_pair(words[i], words[i + 1], deviation);
    numbers[i] = pair.cosine;
    numbers[i + 1] = pair.sine;
  }
}

void normal(Workers& workers, RandomKey key, uint64_t first, float deviation, float* y, int64_t n) {
  for_ranges(workers, n, kPiece, [&](int64_t begin, int64_t end, int) {
    for_draws(key, first + static_cast<uint64_t>(begin), end - begin,
              [&](const uint32_t* words, int64_t skip, int64_t i, int64_t count) {
                alignas(64) float numbers[kDrawn];
                normal_of(words, deviation, numbers);
                for (int64_t j = 0; j < count; ++j) y[begin + i + j] = numbers[skip + j];
              });
  });
}

}  // namespace

template <typename T>
void add_normal(Operators<T>& table) {
  table.normal = normal;
}
LOOM_FOR_EVERY_TYPE(add_normal)

}  // namespace loom::ops::LOOM_ISA
