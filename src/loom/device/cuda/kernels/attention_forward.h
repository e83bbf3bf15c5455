// Attention forward, as FlashAttention has it (Dao et al., 2022; Dao, 2023): a block has some queries of one
// head of one sequence, tiles of keys and values go by, and each row keeps its largest score and its sum.
#pragma once

#include "device/cuda/kernels/attention_mask.h"
#include "device/cuda/kernels/attention_tile.h"

namespace loom::cuda {

/// What a lane keeps of its rows: row m·16 + half·8 + lane / 4 of its warp's.
template <int row_tiles>
struct SoftmaxRows {
  float largest[row_tiles][2];  // of the scores, before the scale
  float sum[row_tiles][2];      // of this lane's columns, as powers from `largest` on
};

/// Scores become probabilities up to the rows' new largest score, and what the rows have is scaled to it.
template <int row_tiles, int n, int columns>
LOOM_DEVICE void online_softmax(float scale, float (&p)[row_tiles][n][4], SoftmaxRows<row_tiles>& rows,
                                float (&out)[row_tiles][columns][4]) {
#pragma unroll
  for (int m = 0; m < row_tiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float high = rows.largest[m][half];
#pragma unroll
      for (int b = 0; b < n; ++b) high = larger(high, larger(p[m][b][2 * half], p[m][b][2 * half + 1]));
      high = larger(high, shuffle_xor(high, 1));
      high = larger(high, shuffle_xor(high, 2));
      const float base = high == -INFINITY ? 0.0f : high * scale;  // -inf: nothing seen yet
      const float shrink = exp2_of(rows.largest[m][half] * scale - base);
      rows.largest[m][half] = high;
      float sum = rows.sum[m][half] * shrink;
#pragma unroll
      for (int b = 0; b < n; ++b)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          p[m][b][i] = exp2_of(p[m][b][i] * scale - base);
          sum += p[m][b][i];
        }
      rows.sum[m][half] = sum;
#pragma unroll
      for (int b = 0; b < columns; ++b) {
        out[m][b][2 * half] *= shrink;
        out[m][b][2 * half + 1] *= shrink;
      }
    }
}

template <typename Tiles>
LOOM_DEVICE void attention_forward(const AttentionArguments& a) {
  using T = typename Tiles::Element;
  constexpr int kRowTiles = Tiles::kRowTiles, kKeys = Tiles::kStreamed;
  const int head = static_cast<int>(block_index().y), batch = static_cast<int>(block_index().z);
  // The last queries first: those of causal attention see the most keys.
  const int first = static_cast<int>(grid_size().x - 1 - block_index().x) * Tiles::kRows;
  const int warp = static_cast<int>(warp_index()), warp_row = warp * 16 * kRowTiles;
  const int key_head = head / static_cast<int>(a.sharing());
  const auto queries = query_slice<const T>(a, a.qkv, batch, head);
  const auto keys = key_slice<const T>(a, a.qkv, batch, key_head);
  T *const own = reinterpret_cast<T*>(shared_memory()), *const stages = own + Tiles::kResident;
  float* const scratch =
      reinterpret_cast<float*>(stages + 4 * Tiles::kStage) + warp * (Tiles::kScratch / Tiles::kWarps);

  const VisibleKeys visible(a, batch);
  const DroppedElements dropped(a, batch, head);
  const float slope = slope_before_scale(a, head), scale = a.scale * kLog2E;
  const TileRange tiles = key_tiles(visible, first, Tiles::kRows, kKeys);
  const auto load = [&](int tile) {
    T* const stage = stages + tile % 2 * 2 * Tiles::kStage;
    load_tile<Tiles, kKeys>(a, keys, tile * kKeys, stage);
    load_tile<Tiles, kKeys>(a, value_slice<const T>(a, a.qkv, batch, key_head), tile * kKeys,
                            stage + Tiles::kStage);
    commit_copies();
  };
  load_tile<Tiles, Tiles::kRows>(a, queries, first, own);
  commit_copies();
  if (tiles.first < tiles.end) load(tiles.first);

  float out[kRowTiles][Tiles::kHead / 8][4] = {};
  SoftmaxRows<kRowTiles> rows;
  for (int m = 0; m < kRowTiles; ++m)
    for (int half = 0; half < 2; ++half) rows.largest[m][half] = -INFINITY, rows.sum[m][half] = 0;
  for (int tile = tiles.first; tile < tiles.end; ++tile) {
    wait_for_copies<0>();
    barrier();  // this tile is there, and no warp reads the last one any more
    if (tile + 1 < tiles.end) load(tile + 1);
    const T* const stage = stages + tile % 2 * 2 * Tiles::kStage;
    float p[kRowTiles][kKeys / 8][4];
    product_of_rows<Tiles>(own + warp_row * Tiles::kHead, stage, p);
    mask_scores<false>(visible, slope, first + warp_row, tile * kKeys, p);
    online_softmax(scale, p, rows, out);
    if (a.drop_threshold != 0)
      drop(dropped.template of_queries<kRowTiles, kKeys / 8>(first + warp_row, tile * kKeys), 1, p);
    add_product<Tiles>(p, stage + Tiles::kStage, 0, out, scratch);
  }
  wait_for_copies<0>();
  barrier();  // without any tile, other warps' copies may still come

  float factor[kRowTiles][2];
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = rows.sum[m][half];
      sum += shuffle_xor(sum, 1);
      sum += shuffle_xor(sum, 2);
      factor[m][half] = sum > 0 ? a.keep / sum : 0.0f;  // 0: a sequence of length 0
      const int lane = static_cast<int>(lane_index()), row = first + warp_row + m * 16 + half * 8 + lane / 4;
      if (lane % 4 == 0 && row < visible.tokens)
        a.lse[(static_cast<int64_t>(batch) * a.heads + head) * a.tokens + row] =
            (rows.largest[m][half] * scale + log2_of(sum)) * kLn2;
    }
  const auto to = out_slice<T>(a, a.out, batch, head);
  store_rows<Tiles>(a, out, factor, to, first + warp_row, 0, own + warp_row * Tiles::kHead);
}

}  // namespace loom::cuda
