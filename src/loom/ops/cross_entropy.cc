// Softmax and cross-entropy with its gradient, in the place of the logits. Logits are the largest array of a
// step. Once the maximum is known, one read and one write of them are enough.
#include <cmath>

#include "ops/cpu.h"
#include "ops/math.h"

namespace loom::ops::LOOM_ISA {
namespace {

/// dlogits = (softmax - onehot(target)) · scale; rows without a target get zeros.
template <typename A>
double one_row(A* logits, int32_t target, int64_t vocabulary, A scale) {
  if (target < 0) {
    for (int64_t v = 0; v < vocabulary; ++v) logits[v] = 0;
    return 0;
  }
  A largest = logits[0];
#pragma omp simd reduction(max : largest)
  for (int64_t v = 0; v < vocabulary; ++v) largest = logits[v] > largest ? logits[v] : largest;
  const A wanted = logits[target];
  A sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t v = 0; v < vocabulary; ++v) {
    const A e = exp_of(logits[v] - largest);
    logits[v] = e;
    sum += e;
  }
  const A factor = scale / sum;
#pragma omp simd
  for (int64_t v = 0; v < vocabulary; ++v) logits[v] *= factor;
  logits[target] -= scale;
  return std::log(static_cast<double>(sum)) + static_cast<double>(largest) - static_cast<double>(wanted);
}

template <typename A>
void cross_entropy(Workers& workers, void* of_rows, const int32_t* target, double* loss, int64_t rows,
                   int64_t vocabulary, A scale) {
  A* const logits = static_cast<A*>(of_rows);
  for_ranges(workers, rows, rows_per_piece(vocabulary), [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row)
      loss[row] = one_row(logits + row * vocabulary, target[row], vocabulary, scale);
  });
}

}  // namespace

template <typename T>
void add_cross_entropy(Operators<T>& table) {
  table.cross_entropy = cross_entropy<acc_t<T>>;
}
LOOM_FOR_EVERY_TYPE(add_cross_entropy)

}  // namespace loom::ops::LOOM_ISA
