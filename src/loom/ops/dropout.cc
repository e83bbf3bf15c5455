// Dropout by counter: the mask is a function of the key and the element's number in the global batch.
#include "ops/cpu.h"
#include "ops/draws.h"

namespace loom::ops::LOOM_ISA {
namespace {

/// body(i, factor), for elements [begin, end) of the array; factor is 0 or 1 / (1 - p).
template <typename F>
void with_mask(const Dropout& dropout, int64_t begin, int64_t end, F&& body) {
  const uint32_t threshold = drop_threshold(dropout.probability);
  const float keep = 1.0f / (1.0f - dropout.probability);
  for_draws(dropout.key, dropout.first + static_cast<uint64_t>(begin), end - begin,
            [&](const uint32_t* words, int64_t skip, int64_t i, int64_t n) {
#pragma omp simd
              for (int64_t j = 0; j < n; ++j) body(begin + i + j, words[skip + j] < threshold ? 0.0f : keep);
            });
}

template <typename T>
void apply(Workers& workers, const Dropout& dropout, const T* x, T* y, int64_t n) {
  for_ranges(workers, n, kPiece, [&](int64_t begin, int64_t end, int) {
    if (dropout.probability == 0) {
      for (int64_t i = begin; i < end; ++i) y[i] = x[i];
      return;
    }
    with_mask(dropout, begin, end, [&](int64_t i, float factor) { store(y[i], load(x[i]) * factor); });
  });
}

template <typename T>
void add_apply(Workers& workers, const Dropout& dropout, const T* residual, const T* x, const T* bias, T* y,
               int64_t rows, int64_t width) {
  for_ranges(workers, rows, rows_per_piece(width), [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t first = row * width;
      const auto value = [&](int64_t i) {
        return bias == nullptr ? load(x[i]) : load(x[i]) + load(bias[i - first]);
      };
      if (dropout.probability == 0) {
#pragma omp simd
        for (int64_t i = first; i < first + width; ++i) store(y[i], load(residual[i]) + value(i));
      } else {
        with_mask(dropout, first, first + width,
                  [&](int64_t i, float factor) { store(y[i], load(residual[i]) + value(i) * factor); });
      }
    }
  });
}

}  // namespace

template <typename T>
void add_dropout(Operators<T>& table) {
  table.dropout = apply<T>;
  table.add_dropout = add_apply<T>;
}
LOOM_FOR_EVERY_TYPE(add_dropout)

}  // namespace loom::ops::LOOM_ISA
