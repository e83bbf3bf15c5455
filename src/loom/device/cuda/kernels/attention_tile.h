// Tiles of attention's kernels: [rows, head] in shared memory. Their 16-byte chunks are permuted so that
// eight rows' chunks of one column lie in different banks. Also products of such tiles by one warp, whose
// sums are in registers in the layout of primitives.h's multiply().
//
// 16-bit types use tensor cores, fp32 plain multiplications and additions in the same layout.
#pragma once

#include "device/cuda/kernels/attention_arguments.h"

namespace loom::cuda {

/// Where chunk `chunk` of row `row` is, in elements.
template <typename T, int head>
LOOM_DEVICE int tile_offset(int row, int chunk) {
  constexpr int kChunk = 16 / static_cast<int>(sizeof(T)), kChunks = head / kChunk;
  static_assert(kChunks % 4 == 0);
  // Eight chunks are all banks. Rows of 12 chunks alternate between halves of the banks by themselves.
  const int permuted = kChunks % 8 == 0 ? chunk ^ (row & 7) : chunk ^ ((row >> 1) & 3);
  return row * head + permuted * kChunk;
}

/// Whose rows a tile has: one head's slice of an array [B, S, heads · head_size].
template <typename T>
struct HeadSlice {
  T* rows;         // of the first token of the sequence
  int64_t stride;  // between tokens, in elements

  template <typename Byte>  // std::byte or const
  LOOM_DEVICE HeadSlice(const AttentionArguments& a, Byte* array, unsigned heads, int batch, unsigned head)
      : rows(reinterpret_cast<T*>(array) +
             (static_cast<int64_t>(batch) * a.tokens * heads + head) * a.head_size),
        stride(static_cast<int64_t>(heads) * a.head_size) {}
};

/// The slices of qkv, or of its gradient, that belong to a head of queries, or to one of keys.
template <typename T, typename Byte>
LOOM_DEVICE HeadSlice<T> query_slice(const AttentionArguments& a, Byte* qkv, int batch, int head) {
  return {a, qkv, a.qkv_heads(), batch, static_cast<unsigned>(head)};
}
template <typename T, typename Byte>
LOOM_DEVICE HeadSlice<T> key_slice(const AttentionArguments& a, Byte* qkv, int batch, int key_head) {
  return {a, qkv, a.qkv_heads(), batch, a.heads + static_cast<unsigned>(key_head)};
}
template <typename T, typename Byte>
LOOM_DEVICE HeadSlice<T> value_slice(const AttentionArguments& a, Byte* qkv, int batch, int key_head) {
  return {a, qkv, a.qkv_heads(), batch, a.heads + a.key_heads + static_cast<unsigned>(key_head)};
}
/// … and that of out, or of its gradient.
template <typename T, typename Byte>
LOOM_DEVICE HeadSlice<T> out_slice(const AttentionArguments& a, Byte* out, int batch, int head) {
  return {a, out, a.heads, batch, static_cast<unsigned>(head)};
}

/// Begins to copy rows [first, first + count) of a head to shared memory; zeros stand where there are none.
template <typename Tiles, int count>
LOOM_DEVICE void load_tile(const AttentionArguments& a, const HeadSlice<const typename Tiles::Element>& from,
                           int first, typename Tiles::Element* to) {
  using T = typename Tiles::Element;
  constexpr int kChunk = 16 / static_cast<int>(sizeof(T)), kChunks = Tiles::kHead / kChunk;
  constexpr int kRowsAtOnce = Tiles::kThreads / kChunks;  // a thread copies chunks of one column
  const int tokens = static_cast<int>(a.tokens), size = static_cast<int>(a.head_size);
  const int thread = static_cast<int>(thread_index().x), column = thread % kChunks * kChunk;
  if (thread >= kRowsAtOnce * kChunks) return;
  const T* source = from.rows + (first + thread / kChunks) * from.stride + column;
#pragma unroll
  for (int row = thread / kChunks; row < count; row += kRowsAtOnce, source += kRowsAtOnce * from.stride) {
    const bool there = first + row < tokens && column < size;
    T* const target = to + tile_offset<T, Tiles::kHead>(row, thread % kChunks);
    if (a.in_chunks != 0) {
      copy_async(target, there ? source : from.rows, there);
    } else {
#pragma unroll 1
      for (int e = 0; e < kChunk; ++e) target[e] = there && column + e < size ? source[e] : T{};
    }
  }
}

/// Writes a warp's sums, times `factor[m][half]`, to its 16 · kRowTiles rows of an array, from row `first`
/// and column `column` of the head on. `tile` is the same rows' place in shared memory, which only this warp
/// uses: a barrier has been since its last use.
template <typename Tiles, int row_tiles, int n>
LOOM_DEVICE void store_rows(const AttentionArguments& a, const float (&sums)[row_tiles][n][4],
                            const float (&factor)[row_tiles][2], const HeadSlice<typename Tiles::Element>& to,
                            int first, int column, typename Tiles::Element* tile) {
  using T = typename Tiles::Element;
  constexpr int kChunk = 16 / static_cast<int>(sizeof(T)), kChunks = n * 8 / kChunk, kRows = 16 * row_tiles;
  const int lane = static_cast<int>(lane_index()), g = lane / 4, t = lane % 4;
#pragma unroll
  for (int m = 0; m < row_tiles; ++m)
#pragma unroll
    for (int b = 0; b < n; ++b)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int c = b * 8 + 2 * t;
        T* const at = tile + tile_offset<T, Tiles::kHead>(m * 16 + half * 8 + g, c / kChunk) + c % kChunk;
        at[0] = rounded<T>(sums[m][b][2 * half] * factor[m][half]);
        at[1] = rounded<T>(sums[m][b][2 * half + 1] * factor[m][half]);
      }
  warp_barrier();
  const int tokens = static_cast<int>(a.tokens), size = static_cast<int>(a.head_size);
  for (int i = lane; i < kRows * kChunks; i += static_cast<int>(kLanes)) {
    const int row = i / kChunks, c = column + i % kChunks * kChunk;
    if (first + row >= tokens || c >= size) continue;
    const T* const source = tile + tile_offset<T, Tiles::kHead>(row, i % kChunks);
    T* const target = to.rows + (first + row) * to.stride + c;
    if (a.in_chunks != 0) {
      store16(target, load16(source));
    } else {
#pragma unroll 1
      for (int e = 0; e < kChunk && c + e < size; ++e) target[e] = source[e];
    }
  }
}

/// sums[16 · row_tiles, 8n] = rows · othersᵀ: a warp's rows of one tile with all 8n rows of another one.
template <typename Tiles, int row_tiles, int n>
LOOM_DEVICE void product_of_rows(const typename Tiles::Element* rows, const typename Tiles::Element* others,
                                 float (&sums)[row_tiles][n][4]) {
  using T = typename Tiles::Element;
  const int lane = static_cast<int>(lane_index());
#pragma unroll
  for (int m = 0; m < row_tiles; ++m)
#pragma unroll
    for (int b = 0; b < n; ++b)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[m][b][i] = 0;
  if constexpr (Tiles::kIsFp32) {
    const int g = lane / 4, t = lane % 4;
#pragma unroll 1
    for (int chunk = 0; chunk < Tiles::kHead / 4; ++chunk) {
      Words4 x[2 * row_tiles];
#pragma unroll
      for (int r = 0; r < 2 * row_tiles; ++r)
        x[r] = load16(rows + tile_offset<T, Tiles::kHead>(r * 8 + g, chunk));
#pragma unroll
      for (int b = 0; b < n; ++b)
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const Words4 y = load16(others + tile_offset<T, Tiles::kHead>(b * 8 + 2 * t + c, chunk));
#pragma unroll
          for (int r = 0; r < 2 * row_tiles; ++r)
#pragma unroll
            for (int e = 0; e < 4; ++e)
              sums[r / 2][b][r % 2 * 2 + c] += float_of(x[r].word[e]) * float_of(y.word[e]);
        }
    }
  } else {
#pragma unroll
    for (int k = 0; k < Tiles::kHead / 16; ++k) {
      uint32_t x[row_tiles][4];
#pragma unroll
      for (int m = 0; m < row_tiles; ++m)
        load_matrices(x[m], rows + tile_offset<T, Tiles::kHead>(m * 16 + lane % 16, k * 2 + lane / 16));
#pragma unroll
      for (int b = 0; b < n / 2; ++b) {
        uint32_t y[4];
        load_matrices(y, others + tile_offset<T, Tiles::kHead>(b * 16 + lane % 8 + lane / 16 * 8,
                                                               k * 2 + lane / 8 % 2));
#pragma unroll
        for (int m = 0; m < row_tiles; ++m) {
          multiply<T>(sums[m][2 * b], x[m], y[0], y[1]);
          multiply<T>(sums[m][2 * b + 1], x[m], y[2], y[3]);
        }
      }
    }
  }
}

/// sums[16 · row_tiles, 8n] += factors[16 · row_tiles, 8k] · others[8k, columns `column` to column + 8n),
/// with the factors in registers as sums are. `scratch`: kScratch / kWarps floats of this warp.
template <typename Tiles, int row_tiles, int n, int k>
LOOM_DEVICE void add_product(const float (&factors)[row_tiles][k][4], const typename Tiles::Element* others,
                             int column, float (&sums)[row_tiles][n][4], float* scratch) {
  using T = typename Tiles::Element;
  const int lane = static_cast<int>(lane_index());
  if constexpr (Tiles::kIsFp32) {
    const int g = lane / 4, t = lane % 4;
    warp_barrier();  // all lanes have read the last product's factors
#pragma unroll
    for (int m = 0; m < row_tiles; ++m)
#pragma unroll
      for (int b = 0; b < k; ++b)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          scratch[(m * 16 + i / 2 * 8 + g) * 8 * k + b * 8 + 2 * t + i % 2] = factors[m][b][i];
    warp_barrier();
#pragma unroll 1
    for (int j = 0; j < 8 * k; ++j) {
      float x[2 * row_tiles];
#pragma unroll
      for (int r = 0; r < 2 * row_tiles; ++r) x[r] = scratch[(r * 8 + g) * 8 * k + j];
#pragma unroll
      for (int b = 0; b < n; ++b) {
        const int c = column + b * 8 + 2 * t;
        const T* const y = others + tile_offset<T, Tiles::kHead>(j, c / 4) + c % 4;
#pragma unroll
        for (int r = 0; r < 2 * row_tiles; ++r)
#pragma unroll
          for (int e = 0; e < 2; ++e) sums[r / 2][b][r % 2 * 2 + e] += x[r] * value_of(y[e]);
      }
    }
  } else {
#pragma unroll
    for (int j = 0; j < k / 2; ++j) {
      uint32_t x[row_tiles][4];
#pragma unroll
      for (int m = 0; m < row_tiles; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float(&f)[4] = factors[m][2 * j + i / 2];
          x[m][i] = pack<T>(f[i % 2 * 2], f[i % 2 * 2 + 1]);
        }
#pragma unroll
      for (int b = 0; b < n / 2; ++b) {
        uint32_t y[4];
        load_matrices_transposed(
            y, others + tile_offset<T, Tiles::kHead>(j * 16 + lane % 16, column / 8 + b * 2 + lane / 16));
#pragma unroll
        for (int m = 0; m < row_tiles; ++m) {
          multiply<T>(sums[m][2 * b], x[m], y[0], y[1]);
          multiply<T>(sums[m][2 * b + 1], x[m], y[2], y[3]);
        }
      }
    }
  }
}

}  // namespace loom::cuda
