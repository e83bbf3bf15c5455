// Normalization over the last dimension: layer norm, and by the root of the mean square (RMS norm), which is
// a layer norm whose mean and bias are 0.
#include <cmath>

#include "ops/cpu.h"

namespace loom::ops::LOOM_ISA {
namespace {

template <typename T>
void forward(Workers& workers, const T* x, const T* weight, const T* bias, T* y, acc_t<T>* mean,
             acc_t<T>* rstd, int64_t rows, int64_t width, float epsilon) {
  using A = acc_t<T>;
  for_ranges(workers, rows, rows_per_piece(width), [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const T* from = x + row * width;
      T* to = y + row * width;
      A sum = 0;
      if (mean != nullptr) {
#pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < width; ++c) sum += load(from[c]);
        mean[row] = sum / A(width);
      }
      const A average = sum / A(width);
      A squares = 0;  // of differences, in a second pass: x² - mean² cancels
#pragma omp simd reduction(+ : squares)
      for (int64_t c = 0; c < width; ++c) squares += (load(from[c]) - average) * (load(from[c]) - average);
      const A scale = A(1) / std::sqrt(squares / A(width) + A(epsilon));
      rstd[row] = scale;
      if (bias != nullptr) {
#pragma omp simd
        for (int64_t c = 0; c < width; ++c)
          store(to[c], (load(from[c]) - average) * scale * load(weight[c]) + load(bias[c]));
      } else {
#pragma omp simd
        for (int64_t c = 0; c < width; ++c) store(to[c], (load(from[c]) - average) * scale * load(weight[c]));
      }
    }
  });
}

/// One row: dx (+)= rstd · (g - avg(g) - x̂ · avg(g · x̂)) with g = dy · weight, and the row's share of the
/// parameters' gradients. avg(g) comes from the mean, and is left out where there is none.
template <bool kCentred, typename T>
void backward_row(const T* x, const T* weight, acc_t<T> average, acc_t<T> scale, const T* dy, T* dx, bool add,
                  acc_t<T>* dweight, acc_t<T>* dbias, int64_t width) {
  using A = acc_t<T>;
  A sum = 0, product = 0;
#pragma omp simd reduction(+ : sum, product)
  for (int64_t c = 0; c < width; ++c) {
    const A g = load(dy[c]) * load(weight[c]);
    if constexpr (kCentred) sum += g;
    product += g * ((load(x[c]) - average) * scale);
  }
  sum /= A(width);
  product /= A(width);
#pragma omp simd
  for (int64_t c = 0; c < width; ++c) {
    const A hat = (load(x[c]) - average) * scale;
    const A from = load(dy[c]);  // which dx may be
    const A g = from * load(weight[c]);
    const A before = add ? load(dx[c]) : A(0);
    store(dx[c], before + scale * (g - sum - hat * product));
    dweight[c] += from * hat;
    if constexpr (kCentred) dbias[c] += from;
  }
}

/// Sums over rows: body(row, sums) adds a row's to sums[of_part], and give(c, sum) gets those of all rows.
/// They are added up in a fixed number of parts and then over the parts, so that they do not depend on who
/// took which rows.
template <typename A, typename Body, typename Give>
void sum_over_rows(Workers& workers, int64_t rows, int64_t of_part, Body&& body, Give&& give) {
  constexpr int64_t kParts = 16;
  const int64_t rows_per_part = ceil_div(rows, kParts);
  A* const partial = reinterpret_cast<A*>(workers.scratch(0, sizeof(A) * kParts * of_part));
  for_parts(workers, kParts, [&](int64_t part, int) {
    A* const sums = partial + part * of_part;
    for (int64_t c = 0; c < of_part; ++c) sums[c] = 0;
    for (int64_t row = part * rows_per_part; row < min_of(rows, (part + 1) * rows_per_part); ++row)
      body(row, sums);
  });
  for (int64_t c = 0; c < of_part; ++c) {
    A total = 0;
    for (int64_t part = 0; part < kParts; ++part) total += partial[part * of_part + c];
    give(c, total);
  }
}

template <bool kCentred, typename T>
void backward_of(Workers& workers, const T* x, const T* weight, const acc_t<T>* mean, const acc_t<T>* rstd,
                 const T* dy, T* dx, bool add, acc_t<T>* dweight, acc_t<T>* dbias, int64_t rows,
                 int64_t width) {
  using A = acc_t<T>;
  sum_over_rows<A>(
      workers, rows, kCentred ? 2 * width : width,
      [&](int64_t row, A* sums) {
        backward_row<kCentred>(x + row * width, weight, kCentred ? mean[row] : A(0), rstd[row],
                               dy + row * width, dx + row * width, add, sums, sums + width, width);
      },
      [&](int64_t c, A sum) { (c < width ? dweight[c] : dbias[c - width]) = sum; });
}

template <typename T>
void backward(Workers& workers, const T* x, const T* weight, const acc_t<T>* mean, const acc_t<T>* rstd,
              const T* dy, T* dx, bool add, acc_t<T>* dweight, acc_t<T>* dbias, int64_t rows, int64_t width) {
  const auto chosen = mean != nullptr ? backward_of<true, T> : backward_of<false, T>;
  chosen(workers, x, weight, mean, rstd, dy, dx, add, dweight, dbias, rows, width);
}

template <typename T>
void heads_forward(Workers& workers, const HeadRows& s, const T* qkv, const T* weight, T* y, acc_t<T>* rstd,
                   float epsilon) {
  using A = acc_t<T>;
  const int64_t stride = s.stride(), size = s.head_size, normed = s.normed_heads();
  for_ranges(workers, s.rows, rows_per_piece(stride), [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t head = 0; head < normed; ++head) {
        const T* const from = qkv + row * stride + head * size;
        T* const to = y + row * stride + head * size;
        const T* const of_kind = weight + (head < s.heads ? 0 : size);
        A squares = 0;
#pragma omp simd reduction(+ : squares)
        for (int64_t c = 0; c < size; ++c) squares += load(from[c]) * load(from[c]);
        const A scale = A(1) / std::sqrt(squares / A(size) + A(epsilon));
        rstd[row * normed + head] = scale;
#pragma omp simd
        for (int64_t c = 0; c < size; ++c) store(to[c], load(from[c]) * scale * load(of_kind[c]));
      }
      for (int64_t c = row * stride + normed * size; c < (row + 1) * stride; ++c) y[c] = qkv[c];
    }
  });
}

template <typename T>
void heads_backward(Workers& workers, const HeadRows& s, const T* qkv, const T* weight, const acc_t<T>* rstd,
                    T* d, acc_t<T>* dweight) {
  using A = acc_t<T>;
  const int64_t stride = s.stride(), size = s.head_size, normed = s.normed_heads();
  sum_over_rows<A>(
      workers, s.rows, 2 * size,
      [&](int64_t row, A* sums) {
        for (int64_t head = 0; head < normed; ++head) {
          const int64_t at = row * stride + head * size, kind = head < s.heads ? 0 : size;
          backward_row<false>(qkv + at, weight + kind, A(0), rstd[row * normed + head], d + at, d + at, false,
                              sums + kind, static_cast<A*>(nullptr), size);
        }
      },
      [&](int64_t c, A sum) { dweight[c] = sum; });
}

}  // namespace

template <typename T>
void add_norm(Operators<T>& table) {
  table.norm_forward = forward<T>;
  table.norm_backward = backward<T>;
  table.head_norm_forward = heads_forward<T>;
  table.head_norm_backward = heads_backward<T>;
}
LOOM_FOR_EVERY_TYPE(add_norm)

}  // namespace loom::ops::LOOM_ISA
