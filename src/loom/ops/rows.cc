// Rows that are put together from others, bytes, and sums over a few numbers.
#include "ops/cpu.h"

namespace loom::ops::LOOM_ISA {
namespace {

template <typename T>
void gather_rows(Workers& workers, const T* x, int64_t, const int32_t* row, T* y, int64_t rows,
                 int64_t width) {
  for_ranges(workers, rows, rows_per_piece(width), [&](int64_t begin, int64_t end, int) {
    for (int64_t to = begin; to < end; ++to) {
      T* const into = y + to * width;
      if (row[to] < 0) {
        for (int64_t c = 0; c < width; ++c) into[c] = T{};
        continue;
      }
      const T* const from = x + row[to] * width;
      for (int64_t c = 0; c < width; ++c) into[c] = from[c];
    }
  });
}

void clear(Workers& workers, void* to, int64_t bytes) {
  for_ranges(workers, bytes, kPiece * 4, [&](int64_t begin, int64_t end, int) {
    __builtin_memset(static_cast<char*>(to) + begin, 0, static_cast<size_t>(end - begin));
  });
}

void copy(Workers& workers, const void* from, void* to, int64_t bytes) {
  for_ranges(workers, bytes, kPiece * 4, [&](int64_t begin, int64_t end, int) {
    __builtin_memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin,
                     static_cast<size_t>(end - begin));
  });
}

void sum(Workers&, const double* x, double* sum, int64_t n) {
  double all = 0;
  for (int64_t i = 0; i < n; ++i) all += x[i];
  *sum = all;
}

template <typename A>
void count_right(Workers&, const void* of_rows, const int32_t* target, double* right, int64_t rows,
                 int64_t classes) {
  const A* scores = static_cast<const A*>(of_rows);
  for (int64_t row = 0; row < rows; ++row, scores += classes) {
    int64_t likeliest = 0;
    for (int64_t c = 1; c < classes; ++c)
      if (scores[c] > scores[likeliest]) likeliest = c;
    if (likeliest == target[row]) *right += 1;
  }
}

template <typename A>
void read_logits(Workers& workers, const void* logits, A* to, int64_t n) {
  copy(workers, logits, to, n * static_cast<int64_t>(sizeof(A)));
}

}  // namespace

template <typename T>
void add_rows(Operators<T>& table) {
  table.gather_rows = gather_rows<T>;
  table.clear = clear;
  table.copy = copy;
  table.sum = sum;
  table.read_logits = read_logits<acc_t<T>>;
  table.count_right = count_right<acc_t<T>>;
}
LOOM_FOR_EVERY_TYPE(add_rows)

}  // namespace loom::ops::LOOM_ISA
