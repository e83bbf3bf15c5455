// Sums, conversions and squares of whole buffers.
#include "ops/cpu.h"

namespace loom::ops::LOOM_ISA {
namespace {

template <typename A>
void add(Workers& workers, const A* a, const A* b, A* sum, int64_t n) {
  for_ranges(workers, n, kPiece, [&](int64_t begin, int64_t end, int) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) sum[i] = a[i] + b[i];
  });
}

template <typename T>
void convert(Workers& workers, const acc_t<T>* from, T* to, int64_t n) {
  for_ranges(workers, n, kPiece, [&](int64_t begin, int64_t end, int) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) store(to[i], from[i]);
  });
}

template <typename A>
void sum_of_squares(Workers& workers, const A* x, int64_t n, int64_t size, double* chunk) {
  for_ranges(workers, n, size, [&](int64_t begin, int64_t end, int) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = begin; i < end; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    chunk[begin / size] = sum;
  });
}

}  // namespace

template <typename T>
void add_elementwise(Operators<T>& table) {
  table.add = add<acc_t<T>>;
  table.convert = convert<T>;
  table.sum_of_squares = sum_of_squares<acc_t<T>>;
}
LOOM_FOR_EVERY_TYPE(add_elementwise)

}  // namespace loom::ops::LOOM_ISA
