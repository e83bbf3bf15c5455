// Layer normalization, a block for each row, and normalization by the root of the mean square (RMS norm),
// which has no mean: its arguments' `mean` is null. Heads of queries and keys are such rows, too (NormRows).
// Forward may make the row first: the residual and what a dropout leaves of a product are added, as every
// block of a model does before a norm. Backward may pass its result through the dropout that comes next on
// the way back.
//
// A thread keeps its part of the row, or of the sums over rows, in registers: up to `columns` elements, 16,
// or 32 of wide rows going backward.
#pragma once

#include "device/cuda/kernels/column_sums.h"
#include "device/cuda/kernels/dropout.h"

namespace loom::cuda {

inline constexpr unsigned kForwardNormThreads = 1024, kBackwardNormThreads = 512;
/// The longest row, and the longest of loom_norm_backward_<type>; longer ones take loom_norm_backward_wide_.
inline constexpr int64_t kLongestNorm = 16 * kForwardNormThreads, kNarrowNorm = 16 * kBackwardNormThreads;

/// body(pack, column) for each pack of a row that the thread has. Packs of one element, of rows that are not
/// whole packs, are rare: their loop stays one, and what the thread keeps is in local memory.
template <int columns, int n, typename Body>
LOOM_DEVICE void for_kept(int64_t width, Body&& body) {
  const auto one = [&](int pack) {
    const int64_t column = (int64_t{thread_count()} * pack + thread_index().x) * n;
    if (column < width) body(pack, column);
  };
  if constexpr (n > 1) {
#pragma unroll
    for (int pack = 0; pack < columns / n; ++pack) one(pack);
  } else {
#pragma unroll 1
    for (int pack = 0; pack < columns; ++pack) one(pack);
  }
}

/// Where the rows of a norm stand: one after the other, or `heads` of each row of q, k and v.
struct NormRows {
  unsigned heads = 1;  // 32 bits, since a division of 64 takes many registers
  int64_t stride = 0;  // elements from row to row of q, k and v; 0: one after the other

  LOOM_DEVICE int64_t begin(int64_t row, int64_t width) const {
    if (stride == 0) return row * width;
    const unsigned row_of_heads = static_cast<unsigned>(row) / heads,
                   head = static_cast<unsigned>(row) % heads;
    return row_of_heads * stride + head * width;
  }
  /// Elements of an array from the first of these rows to the end of the last.
  int64_t reach(int64_t rows, int64_t width) const {
    return stride == 0 ? rows * width : (rows / heads - 1) * stride + heads * width;
  }
};

/// y[M, C] = (x - mean) · rstd · weight + bias. The mean is 0 where it is null, and so is the bias. With a
/// sum, x is first added to: sum[M, C] = residual + dropout(x + added[C]), and y is the norm of that. `added`
/// may be null; `sum` may be residual or x.
template <typename T>
struct NormForwardArguments {
  const T *x, *weight, *bias;
  T* y;
  float *mean, *rstd;
  int64_t rows, width;
  float epsilon;
  const T *residual = nullptr, *added = nullptr;
  T* sum = nullptr;
  DropoutMask mask{};
  NormRows places = {};

  LaunchShape shape() const {
    return {{static_cast<unsigned>(rows), 1, 1},
            row_threads(ceil_div(width, 16), kForwardNormThreads),
            2 * kLanes * sizeof(float)};
  }
  template <typename Visit>
  void pointers(Visit&& visit) {
    const int64_t elements = places.reach(rows, width), summed = sum == nullptr ? 0 : elements;
    visit(x, elements), visit(weight, width), visit(bias, bias == nullptr ? 0 : width), visit(y, elements);
    visit(mean, mean == nullptr ? 0 : rows), visit(rstd, rows);
    visit(residual, summed), visit(added, added == nullptr ? 0 : width), visit(sum, summed);
  }
};

template <int columns, int n, typename T>
LOOM_DEVICE void norm_forward(const NormForwardArguments<T>& a) {
  const int64_t row = block_index().x, begin = a.places.begin(row, a.width);
  float* const scratch = reinterpret_cast<float*>(shared_memory());
  Floats<n> x[columns / n];
  float sum[1] = {0};
  for_kept<columns, n>(a.width, [&](int pack, int64_t column) {
    if (a.sum != nullptr) {
      x[pack] = residual_sum<n>(a.residual, a.x, a.added, a.mask, begin + column, column);
      store_pack(a.sum + begin + column, x[pack]);
#pragma unroll
      for (float& each : x[pack].at) each = kept<T>(each);
    } else {
      x[pack] = load_pack<n>(a.x + begin + column);
    }
#pragma unroll
    for (const float each : x[pack].at) sum[0] += each;
  });
  if (a.mean != nullptr) block_sums(sum, scratch);
  const float mean = a.mean != nullptr ? sum[0] / static_cast<float>(a.width) : 0.0f;

  float squares[1] = {0};  // of differences, after the mean is known: x² - mean² cancels
  for_kept<columns, n>(a.width, [&](int pack, int64_t) {
#pragma unroll
    for (const float each : x[pack].at) squares[0] += (each - mean) * (each - mean);
  });
  block_sums(squares, scratch + kLanes);
  const float rstd = 1.0f / sqrtf(squares[0] / static_cast<float>(a.width) + a.epsilon);

  for_kept<columns, n>(a.width, [&](int pack, int64_t column) {
    const Floats<n> weight = load_pack<n>(a.weight + column);
    Floats<n> bias{};
    if (a.bias != nullptr) bias = load_pack<n>(a.bias + column);
#pragma unroll
    for (int i = 0; i < n; ++i) x[pack].at[i] = (x[pack].at[i] - mean) * rstd * weight.at[i] + bias.at[i];
    store_pack(a.y + begin + column, x[pack]);
  });
  if (thread_index().x != 0) return;
  a.rstd[row] = rstd;
  if (a.mean != nullptr) a.mean[row] = mean;
}

template <int columns, typename T>
LOOM_DEVICE void norm_forward(const NormForwardArguments<T>& a) {
  const bool in_packs =
      a.width % kPack<T> == 0 && aligned(a.x, a.weight, a.bias, a.y, a.residual, a.added, a.sum);
  if (in_packs) norm_forward<columns, kPack<T>>(a);
  else norm_forward<columns, 1>(a);
}

/// dx[M, C] (+)= rstd · (g - avg(g) - x̂ · avg(g · x̂)) with g = dy · weight and x̂ = (x - mean) · rstd. avg(g)
/// is left out where the mean is null. dx may be dy where it is not added to. `masked`, unless null, is
/// dropout(dx). partial[parts, parameters, C] are sums over the rows of a part: of dy · x̂ and, where there is
/// a mean, of dy. fold() makes the gradients of weight and bias of them.
template <typename T>
struct NormBackwardArguments {
  const T *x, *weight;
  const float *mean, *rstd;
  const T* dy;
  T* dx;
  float* partial;
  int64_t rows, width;
  bool add;
  T* masked = nullptr;
  DropoutMask mask{};
  NormRows places = {};

  int64_t parameters() const { return mean != nullptr ? 2 : 1; }
  /// 8 MiB of partial sums, but from 256 to 1024 blocks.
  int64_t parts() const {
    int64_t parts = (int64_t{8} << 20) / (2 * width * static_cast<int64_t>(sizeof(float)));
    parts = parts < 256 ? 256 : parts > 1024 ? 1024 : parts;
    return parts < rows ? parts : rows;
  }
  LaunchShape shape() const {
    return {{static_cast<unsigned>(parts()), 1, 1},
            row_threads(ceil_div(width, width <= kNarrowNorm ? 16 : 32), kBackwardNormThreads),
            4 * kLanes * sizeof(float)};
  }
  FoldArguments fold(float* dweight, float* dbias) const {
    return {partial, dweight, dbias, parts(), parameters() * width, width, false};
  }
  template <typename Visit>
  void pointers(Visit&& visit) {
    const int64_t elements = places.reach(rows, width);
    visit(x, elements), visit(weight, width), visit(mean, mean == nullptr ? 0 : rows), visit(rstd, rows);
    visit(dy, elements), visit(dx, elements), visit(partial, parts() * parameters() * width);
    visit(masked, masked == nullptr ? 0 : elements);
  }
};

template <int columns, int n, typename T>
LOOM_DEVICE void norm_backward(const NormBackwardArguments<T>& a) {
  const bool has_mean = a.mean != nullptr;
  float* scratch = reinterpret_cast<float*>(shared_memory());
  float* other_scratch = scratch + 2 * kLanes;  // a row's, while some threads still read the last one's
  Floats<n> dweight[columns / n] = {}, dbias[columns / n] = {};
  for (int64_t row = block_index().x; row < a.rows; row += grid_size().x) {
    const int64_t begin = a.places.begin(row, a.width);
    const float mean = has_mean ? a.mean[row] : 0.0f, rstd = a.rstd[row];
    // x̂ and dy of a pack. They are read twice, for the sums and for dx: registers are for the parameters'
    // sums.
    const auto read = [&](int64_t column, Floats<n>& hat, Floats<n>& dy) {
      hat = load_pack<n>(a.x + begin + column);
#pragma unroll
      for (float& each : hat.at) each = (each - mean) * rstd;
      dy = load_pack<n>(a.dy + begin + column);
    };
    float sums[2] = {0, 0};  // of g and of g · x̂
    for_kept<columns, n>(a.width, [&](int pack, int64_t column) {
      Floats<n> hat, dy;
      read(column, hat, dy);
      const Floats<n> weight = load_pack<n>(a.weight + column);
#pragma unroll
      for (int i = 0; i < n; ++i) {
        dweight[pack].at[i] += dy.at[i] * hat.at[i];
        dbias[pack].at[i] += dy.at[i];
        sums[0] += dy.at[i] * weight.at[i];
        sums[1] += dy.at[i] * weight.at[i] * hat.at[i];
      }
    });
    block_sums(sums, scratch);
    float* const swapped = scratch;
    scratch = other_scratch, other_scratch = swapped;
    const float average = has_mean ? sums[0] / static_cast<float>(a.width) : 0.0f,
                product = sums[1] / static_cast<float>(a.width);
    for_kept<columns, n>(a.width, [&](int, int64_t column) {
      Floats<n> hat, dy, dx{};
      read(column, hat, dy);
      const Floats<n> weight = load_pack<n>(a.weight + column);
      if (a.add) dx = load_pack<n>(a.dx + begin + column);
#pragma unroll
      for (int i = 0; i < n; ++i)
        dx.at[i] = kept<T>(dx.at[i] + rstd * (dy.at[i] * weight.at[i] - average - hat.at[i] * product));
      store_pack(a.dx + begin + column, dx);
      if (a.masked == nullptr) return;
      a.mask.apply(begin + column, dx);
      store_pack(a.masked + begin + column, dx);
    });
  }
  float* const to = a.partial + int64_t{block_index().x} * (has_mean ? 2 : 1) * a.width;
  for_kept<columns, n>(a.width, [&](int pack, int64_t column) {
    store_pack(to + column, dweight[pack]);
    if (has_mean) store_pack(to + a.width + column, dbias[pack]);
  });
}

template <int columns, typename T>
LOOM_DEVICE void norm_backward(const NormBackwardArguments<T>& a) {
  const bool in_packs = a.width % kPack<T> == 0 && aligned(a.x, a.weight, a.dy, a.dx, a.partial, a.masked);
  if (in_packs) norm_backward<columns, kPack<T>>(a);
  else norm_backward<columns, 1>(a);
}

}  // namespace loom::cuda
