// Softmax and cross-entropy of logits whose columns are divided over ranks. No rank sees another's logits:
// each makes exponentials under its own maximum and three numbers a row of them, these numbers are gathered,
// and each finishes its own columns from all ranks' numbers. The exponentials are computed once; what another
// maximum changes is a factor of the row, which the scaling to probabilities needs anyway.
#include <cmath>

#include "ops/cpu.h"
#include "ops/math.h"

namespace loom::ops::LOOM_ISA {
namespace {

/// What a rank says of its columns of a row.
template <typename A>
struct Numbers {
  A largest, sum, wanted;  // maximum; Σ exp(logit - maximum); the target's logit, or 0 if it is another's
};

template <typename A>
Numbers<A> begin_row(A* logits, int32_t target, VocabularyRange own) {
  A largest = logits[0];
#pragma omp simd reduction(max : largest)
  for (int64_t v = 0; v < own.count; ++v) largest = logits[v] > largest ? logits[v] : largest;
  const A wanted = own.has(target) ? logits[target - own.first] : A(0);
  A sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t v = 0; v < own.count; ++v) {
    const A e = exp_of(logits[v] - largest);
    logits[v] = e;
    sum += e;
  }
  return {largest, sum, wanted};
}

template <typename A>
void begin(Workers& workers, void* of_rows, const int32_t* target, VocabularyRange own, A* numbers,
           int64_t rows) {
  A* const logits = static_cast<A*>(of_rows);
  for_ranges(workers, rows, rows_per_piece(own.count), [&](int64_t first, int64_t end, int) {
    for (int64_t row = first; row < end; ++row) {
      const Numbers<A> n = begin_row(logits + row * own.count, target[row], own);
      numbers[row * 3] = n.largest;
      numbers[row * 3 + 1] = n.sum;
      numbers[row * 3 + 2] = n.wanted;
    }
  });
}

/// The row's numbers over all ranks, as every rank computes them.
template <typename A>
Numbers<A> combine(const A* numbers, int64_t row, int64_t rows, int ranks) {
  const auto of = [&](int rank) { return numbers + (rank * rows + row) * 3; };
  Numbers<A> all{of(0)[0], 0, 0};
  for (int rank = 1; rank < ranks; ++rank)
    all.largest = of(rank)[0] > all.largest ? of(rank)[0] : all.largest;
  for (int rank = 0; rank < ranks; ++rank) {
    all.sum += of(rank)[1] * exp_of(of(rank)[0] - all.largest);
    all.wanted += of(rank)[2];
  }
  return all;
}

template <typename A>
void finish(Workers& workers, void* of_rows, const int32_t* target, VocabularyRange own, const A* numbers,
            int ranks, int rank, double* loss, int64_t rows, A scale) {
  A* const logits = static_cast<A*>(of_rows);
  for_ranges(workers, rows, rows_per_piece(own.count), [&](int64_t first, int64_t end, int) {
    for (int64_t row = first; row < end; ++row) {
      A* columns = logits + row * own.count;
      if (target[row] < 0) {
        for (int64_t v = 0; v < own.count; ++v) columns[v] = 0;
        loss[row] = 0;
        continue;
      }
      const Numbers<A> all = combine(numbers, row, rows, ranks);
      const A largest = numbers[(rank * rows + row) * 3];
      const A factor = scale * exp_of(largest - all.largest) / all.sum;
#pragma omp simd
      for (int64_t v = 0; v < own.count; ++v) columns[v] *= factor;
      if (own.has(target[row])) columns[target[row] - own.first] -= scale;
      loss[row] = std::log(static_cast<double>(all.sum)) + static_cast<double>(all.largest) -
                  static_cast<double>(all.wanted);
    }
  });
}

}  // namespace

template <typename T>
void add_split_cross_entropy(Operators<T>& table) {
  table.split_cross_entropy_begin = begin<acc_t<T>>;
  table.split_cross_entropy_finish = finish<acc_t<T>>;
}
LOOM_FOR_EVERY_TYPE(add_split_cross_entropy)

}  // namespace loom::ops::LOOM_ISA
