// Rows that are put together from others, and what a classification's evaluation counts.
#pragma once

#include "device/cuda/kernels/packs.h"

namespace loom::cuda {

/// y[M, C] = x[row, C] of x[of, C]; zeros where `row` is negative. A block for each row.
template <typename T>
struct GatherRowsArguments {
  const T* x;
  const int32_t* row;
  T* y;
  int64_t of, rows, width;

  LaunchShape shape() const { return shape_of_rows<kPack<T>>(rows, width, kElementThreads); }
  template <typename Visit>
  void pointers(Visit&& visit) {
    visit(x, of * width), visit(row, rows), visit(y, rows * width);
  }
};

template <typename T>
LOOM_DEVICE void gather_rows(const GatherRowsArguments<T>& a) {
  const int64_t to = block_index().x, from = a.row[to];
  for_row<kPack<T>>(a.width, aligned(a.x, a.y) && a.width % kPack<T> == 0, [&]<int n>(int64_t column) {
    Floats<n> x{};
    if (from >= 0) x = load_pack<n>(a.x + from * a.width + column);
    store_pack(a.y + to * a.width + column, x);
  });
}

/// Adds to *right the rows of scores[M, classes], `stride` elements apart, whose target has the largest
/// score, of equals the first. One block; a thread takes a row, since classes and rows are few.
template <typename T>
struct CountRightArguments {
  const T* scores;
  const int32_t* target;
  double* right;
  int64_t rows, classes, stride;

  LaunchShape shape() const { return {{1, 1, 1}, kElementThreads, kElementThreads * sizeof(int32_t)}; }
  template <typename Visit>
  void pointers(Visit&& visit) {
    visit(scores, rows * stride), visit(target, rows), visit(right, 1);
  }
};

template <typename T>
LOOM_DEVICE void count_right(const CountRightArguments<T>& a) {
  int32_t* const of_threads = reinterpret_cast<int32_t*>(shared_memory());
  int32_t mine = 0;
  for (int64_t row = thread_index().x; row < a.rows; row += kElementThreads) {
    const T* const scores = a.scores + row * a.stride;
    int32_t likeliest = 0;
    for (int32_t c = 1; c < a.classes; ++c)
      if (value_of(scores[c]) > value_of(scores[likeliest])) likeliest = c;
    mine += likeliest == a.target[row] ? 1 : 0;
  }
  of_threads[thread_index().x] = mine;
  barrier();
  if (thread_index().x != 0) return;
  for (unsigned thread = 1; thread < kElementThreads; ++thread) mine += of_threads[thread];
  *a.right += mine;
}

}  // namespace loom::cuda
