// Linear layers with weights stored [in, out], and the head: a linear layer whose weights are stored [out,
// in], because they are the embedding's.
#include "ops/product.h"

namespace loom::ops::LOOM_ISA {
namespace {

template <typename T>
void forward(Workers& workers, const T* x, const T* w, const T* bias, T* y, int64_t rows, int64_t in,
             int64_t out) {
  product(workers, {false, false, rows, out, in, in, out, out}, x, w, y, false, bias);
}

template <typename T>
void backward_input(Workers& workers, const T* dy, const T* w, T* dx, int64_t rows, int64_t in, int64_t out) {
  product<T, T, T, T>(workers, {false, true, rows, in, out, out, out, in}, dy, w, dx, false, nullptr);
}

/// Σ over rows, or that added to `sum`; each column by one worker.
template <typename T>
void sum_rows(Workers& workers, const T* x, acc_t<T>* sum, bool add, int64_t rows, int64_t width) {
  constexpr int64_t kColumns = 256;
  for_ranges(workers, width, kColumns, [&](int64_t begin, int64_t end, int) {
    acc_t<T> sums[kColumns] = {};
    for (int64_t row = 0; row < rows; ++row) {
      const T* from = x + row * width;
#pragma omp simd
      for (int64_t c = begin; c < end; ++c) sums[c - begin] += load(from[c]);
    }
    for (int64_t c = begin; c < end; ++c) sum[c] = (add ? sum[c] : acc_t<T>(0)) + sums[c - begin];
  });
}

template <typename T>
void backward_weight(Workers& workers, const T* x, const T* dy, acc_t<T>* dw, acc_t<T>* dbias, int64_t rows,
                     int64_t in, int64_t out) {
  product<T, T, acc_t<T>, T>(workers, {true, false, in, out, rows, in, out, out}, x, dy, dw, false, nullptr);
  if (dbias != nullptr) sum_rows(workers, dy, dbias, false, rows, out);
}

/// Logits are of A.
template <typename T>
void head_forward(Workers& workers, const T* x, const T* w, const T* bias, void* logits, int64_t rows,
                  int64_t width, int64_t vocabulary) {
  product<T, T, acc_t<T>, T>(workers, {false, true, rows, vocabulary, width, width, width, vocabulary}, x, w,
                             static_cast<acc_t<T>*>(logits), false, bias);
}

template <typename T>
void head_backward(Workers& workers, const void* of_logits, const T* x, const T* w, T* dx, acc_t<T>* dw,
                   acc_t<T>* dbias, bool add, int64_t rows, int64_t width, int64_t vocabulary) {
  const acc_t<T>* const dlogits = static_cast<const acc_t<T>*>(of_logits);
  product<acc_t<T>, T, T, T>(workers, {false, false, rows, width, vocabulary, vocabulary, width, width},
                             dlogits, w, dx, false, nullptr);
  product<acc_t<T>, T, acc_t<T>, T>(workers, {true, false, vocabulary, width, rows, vocabulary, width, width},
                                    dlogits, x, dw, add, nullptr);
  if (dbias != nullptr) sum_rows(workers, dlogits, dbias, add, rows, vocabulary);
}

}  // namespace

template <typename T>
void add_linear(Operators<T>& table) {
  table.linear_forward = forward<T>;
  table.linear_backward_input = backward_input<T>;
  table.linear_backward_weight = backward_weight<T>;
  table.head_forward = head_forward<T>;
  table.head_backward = head_backward<T>;
}
LOOM_FOR_EVERY_TYPE(add_linear)

}  // namespace loom::ops::LOOM_ISA
