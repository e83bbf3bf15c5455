// Sums over rows, of each column: gradients of biases, and of what all tokens share. Rows are divided into
// parts, each summed by a block, and then the parts' sums are folded. The order depends on the shape alone,
// so the bits are always the same.
#pragma once

#include "device/cuda/kernels/packs.h"

namespace loom::cuda {

/// The sums over `groups` groups of rows of 32 packs of columns that begin at `column`, by a block of
/// 32 · groups threads: emit(column, sum) once for each column. Group g takes rows first + g, first + g +
/// groups, ... before `last`. `stride` is from row to row.
template <int n, unsigned groups, typename T, typename Emit>
LOOM_DEVICE void sum_columns(const T* x, int64_t stride, int64_t first, int64_t last, int64_t column,
                             int64_t width, Emit&& emit) {
  constexpr unsigned kColumns = kLanes * n;
  float* const of_groups = reinterpret_cast<float*>(shared_memory()) + warp_index() * kColumns;
  const bool in_packs = aligned(x) && stride % n == 0 && column + kColumns <= width;
  Floats<n> sum{};
  for (int64_t row = first + warp_index(); row < last; row += groups) {
    const T* const from = x + row * stride + column;
    if (in_packs) {
      add_pack(sum, from + lane_index() * n);
    } else {  // the lane's columns are 32 apart
#pragma unroll
      for (int i = 0; i < n; ++i)
        if (const unsigned c = i * kLanes + lane_index(); column + c < width) sum.at[i] += value_of(from[c]);
    }
  }
#pragma unroll
  for (int i = 0; i < n; ++i)
    of_groups[in_packs ? lane_index() * n + i : i * kLanes + lane_index()] = sum.at[i];
  barrier();
  const float* const all_groups = reinterpret_cast<const float*>(shared_memory());
  for (unsigned c = thread_index().x; c < kColumns && column + c < width; c += kLanes * groups) {
    float total = 0;
    for (unsigned group = 0; group < groups; ++group) total += all_groups[group * kColumns + c];
    emit(column + c, total);
  }
}

/// partial[parts, C] of x[M, C], whose rows are `stride` elements apart.
template <typename T>
struct ColumnSumsArguments {
  const T* x;
  float* partial;
  int64_t rows, width, stride;

  static constexpr unsigned kGroups = 8;
  static constexpr int64_t kColumns = int64_t{kLanes} * kPack<T>;
  int64_t tiles() const { return ceil_div(width, kColumns); }
  /// Some thousand blocks in all.
  int64_t parts() const {
    int64_t parts = 2048 / tiles();
    parts = parts < 16 ? 16 : parts > 256 ? 256 : parts;
    return parts < rows ? parts : rows;
  }
  LaunchShape shape() const {
    return {{static_cast<unsigned>(tiles()), static_cast<unsigned>(parts()), 1},
            kLanes * kGroups,
            kGroups * kColumns * sizeof(float)};
  }
  template <typename Visit>
  void pointers(Visit&& visit) {
    visit(x, rows * stride), visit(partial, parts() * width);
  }
};

template <typename T>
LOOM_DEVICE void column_sums(const ColumnSumsArguments<T>& a) {
  using Arguments = ColumnSumsArguments<T>;
  const int64_t part = block_index().y, parts = grid_size().y;
  float* const to = a.partial + part * a.width;
  sum_columns<kPack<T>, Arguments::kGroups>(a.x, a.stride, a.rows * part / parts, a.rows * (part + 1) / parts,
                                            block_index().x * Arguments::kColumns, a.width,
                                            [&](int64_t column, float sum) { to[column] = sum; });
}

/// The sums over parts of partial[parts, columns]: of columns [0, split) to low[split], of the others, if
/// there are any, to high[columns - split]; or added to them.
struct FoldArguments {
  const float* partial;
  float *low, *high;
  int64_t parts, columns, split;
  bool add;

  static constexpr unsigned kGroups = 32;
  LaunchShape shape() const {
    return {{static_cast<unsigned>(ceil_div(columns, kLanes)), 1, 1},
            kLanes * kGroups,
            kGroups * kLanes * sizeof(float)};
  }
  template <typename Visit>
  void pointers(Visit&& visit) {
    visit(partial, parts * columns), visit(low, split), visit(high, columns - split);
  }
};

LOOM_DEVICE void fold(const FoldArguments& a) {
  sum_columns<1, FoldArguments::kGroups>(a.partial, a.columns, 0, a.parts, int64_t{block_index().x} * kLanes,
                                         a.columns, [&](int64_t column, float sum) {
                                           float& to =
                                               column < a.split ? a.low[column] : a.high[column - a.split];
                                           to = a.add ? to + sum : sum;
                                         });
}

}  // namespace loom::cuda
