// Products of matrices by the library's product of one thread, with elements of any type on each side.
// Elements of another type than the sums are converted a panel at a time into the worker's scratch, so that
// the panel stays in the cache.
#pragma once

#include "ops/gemm.h"
#include "ops/product.h"

namespace loom::ops::LOOM_ISA {

/// How C is cut into tiles, by its shape alone, so that results do not depend on the number of workers.
struct Tiles {
  int64_t rows, columns;

  static Tiles of(int64_t m, int64_t n) {
    constexpr int64_t kLargest = 1 << 20, kSmallest = 1 << 15, kFewest = 4, kGrain = 48;
    Tiles tile{m, n};
    const auto halve = [](int64_t& side) { side = ceil_div(ceil_div(side, 2), kGrain) * kGrain; };
    while (tile.rows > kGrain || tile.columns > kGrain) {
      const int64_t area = tile.rows * tile.columns;
      const int64_t count = ceil_div(m, tile.rows) * ceil_div(n, tile.columns);
      if (area <= kLargest && (count >= kFewest || area <= kSmallest)) break;
      halve(tile.rows >= tile.columns ? tile.rows : tile.columns);
    }
    return tile;
  }
};

/// A block of rows × columns of `from` as type A in `to`, or where it is when it has that type.
template <typename A, typename T>
const A* panel(const T* from, int64_t rows, int64_t columns, int64_t stride, A* to, int64_t* leading) {
  if constexpr (__is_same(A, T)) {
    *leading = stride;
    return from;
  } else {
    for (int64_t r = 0; r < rows; ++r)
#pragma omp simd
      for (int64_t c = 0; c < columns; ++c) to[r * columns + c] = load(from[r * stride + c]);
    *leading = columns;
    return to;
  }
}

/// product() of what is not too deep.
template <typename TA, typename TB, typename TC, typename TBias>
void shallow_product(Workers& workers, const ProductShape& s, const TA* a, const TB* b, TC* c, bool add,
                     const TBias* bias) {
  using A = acc_t<TC>;
  constexpr bool kConvertA = !__is_same(A, TA), kConvertB = !__is_same(A, TB), kConvertC = !__is_same(A, TC);
  const int64_t depth = kConvertA || kConvertB ? 1024 : s.k;  // of a panel
  const Tiles tile = Tiles::of(s.m, s.n);
  const int64_t across = ceil_div(s.n, tile.columns);
  for_parts(workers, ceil_div(s.m, tile.rows) * across, [&](int64_t part, int worker) {
    const int64_t row = part / across * tile.rows, column = part % across * tile.columns;
    const int64_t m = min_of(tile.rows, s.m - row), n = min_of(tile.columns, s.n - column);
    const int64_t a_size = kConvertA ? tile.rows * depth : 0, b_size = kConvertB ? tile.columns * depth : 0;
    A* scratch = nullptr;
    if constexpr (kConvertA || kConvertB || kConvertC)
      scratch = reinterpret_cast<A*>(workers.scratch(
          worker, sizeof(A) * (a_size + b_size + (kConvertC ? tile.rows * tile.columns : 0))));
    A* sums;
    int64_t sums_stride = s.ldc;
    if constexpr (kConvertC) sums = scratch + a_size + b_size, sums_stride = n;
    else sums = c + row * s.ldc + column;
    for (int64_t k = 0; k < s.k; k += depth) {
      const int64_t kd = min_of(depth, s.k - k);
      int64_t lda, ldb;
      const A* left = s.a_transposed ? panel<A>(a + k * s.lda + row, kd, m, s.lda, scratch, &lda)
                                     : panel<A>(a + row * s.lda + k, m, kd, s.lda, scratch, &lda);
      const A* right = s.b_transposed
                           ? panel<A>(b + column * s.ldb + k, n, kd, s.ldb, scratch + a_size, &ldb)
                           : panel<A>(b + k * s.ldb + column, kd, n, s.ldb, scratch + a_size, &ldb);
      gemm(s.a_transposed, s.b_transposed, m, n, kd, left, lda, right, ldb, A(k > 0 || add ? 1 : 0), sums,
           sums_stride);
    }
    if (!kConvertC && bias == nullptr) return;
    for (int64_t r = 0; r < m; ++r) {
      TC* to = c + (row + r) * s.ldc + column;
      const A* from = sums + r * sums_stride;
      if (bias == nullptr) {
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) store(to[i], from[i]);
      } else {
        const TBias* plus = bias + column;
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) store(to[i], from[i] + load(plus[i]));
      }
    }
  });
}

/// C = op(A)·op(B) + bias, or C + op(A)·op(B) if `add`. bias [n] may be null. The head's gradient of its
/// input is as deep as the vocabulary: all tiles take one piece of A and B before any takes the next, so that
/// each piece comes from memory once. Pieces depend on the depth alone.
template <typename TA, typename TB, typename TC, typename TBias>
void product(Workers& workers, const ProductShape& s, const TA* a, const TB* b, TC* c, bool add,
             const TBias* bias) {
  constexpr int64_t kDeep = 8192, kPieceDepth = 1024;
  const bool rounds = !__is_same(TC, acc_t<TC>);  // so that sums must not be stored before the end
  if (rounds || s.k <= kDeep) return shallow_product(workers, s, a, b, c, add, bias);
  for (int64_t k = 0; k < s.k; k += kPieceDepth) {
    ProductShape piece = s;
    piece.k = min_of(kPieceDepth, s.k - k);
    shallow_product(workers, piece, a + (s.a_transposed ? k * s.lda : k),
                    b + (s.b_transposed ? k : k * s.ldb), c, add || k > 0,
                    k + piece.k == s.k ? bias : nullptr);
  }
}

/// C = op(A)·op(B), or C + op(A)·op(B) if `add`, on the calling thread, for models of T. `scratch` has
/// small_scratch() bytes, none here.
template <typename T>
void small_product(const ProductShape& s, const acc_t<T>* a, const acc_t<T>* b, bool add, acc_t<T>* c,
                   std::byte* /*scratch*/) {
  gemm(s.a_transposed, s.b_transposed, s.m, s.n, s.k, a, s.lda, b, s.ldb, acc_t<T>(add ? 1 : 0), c, s.ldc);
}

template <typename T>
int64_t small_scratch(int64_t /*side*/, int64_t /*other*/) {
  return 0;
}

}  // namespace loom::ops::LOOM_ISA
