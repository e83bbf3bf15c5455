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

/// The parameters' gradients are added up in a fixed number of parts and then over the parts, so that they do
/// not depend on who took which rows.
template <bool kCentred, typename T>
void backward_of(Workers& workers, const T* x, const T* weight, const acc_t<T>* mean, const acc_t<T>* rstd,
                 const T* dy, T* dx, bool add, acc_t<T>* dweight, acc_t<T>* dbias, int64_t rows,
                 int64_t width) {
  using A = acc_t<T>;
  constexpr int64_t kParts = 16, kGradients = kCentred ? 2 : 1;
  const int64_t rows_per_part = ceil_div(rows, kParts), of_part = kGradients * width;
  A* partial = reinterpret_cast<A*>(workers.scratch(0, sizeof(A) * kParts * of_part));
  for_parts(workers, kParts, [&](int64_t part, int) {
    A* const weights = partial + part * of_part;
    for (int64_t c = 0; c < of_part; ++c) weights[c] = 0;
    for (int64_t row = part * rows_per_part; row < min_of(rows, (part + 1) * rows_per_part); ++row)
      backward_row<kCentred>(x + row * width, weight, kCentred ? mean[row] : A(0), rstd[row],
                             dy + row * width, dx + row * width, add, weights, weights + width, width);
  });
  const auto add_up = [&](const A* first, A* to) {
    for (int64_t c = 0; c < width; ++c) {
      A total = 0;
      for (int64_t part = 0; part < kParts; ++part) total += first[part * of_part + c];
      to[c] = total;
    }
  };
  add_up(partial, dweight);
  if constexpr (kCentred) add_up(partial + width, dbias);
}

template <typename T>
void backward(Workers& workers, const T* x, const T* weight, const acc_t<T>* mean, const acc_t<T>* rstd,
              const T* dy, T* dx, bool add, acc_t<T>* dweight, acc_t<T>* dbias, int64_t rows, int64_t width) {
  const auto chosen = mean != nullptr ? backward_of<true, T> : backward_of<false, T>;
  chosen(workers, x, weight, mean, rstd, dy, dx, add, dweight, dbias, rows, width);
}

}  // namespace

template <typename T>
void add_norm(Operators<T>& table) {
  table.norm_forward = forward<T>;
  table.norm_backward = backward<T>;
}
LOOM_FOR_EVERY_TYPE(add_norm)

}  // namespace loom::ops::LOOM_ISA
