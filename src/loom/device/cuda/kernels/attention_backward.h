// Attention backward (attention_arguments.h): with p the probabilities, dp = dout · vᵀ their gradients, and
// ds = p · (dp - delta), dv = pᵀ · dout, dq = scale · ds · k and dk = scale · dsᵀ · q. With dropout, p is
// dropped in dv, and dp is dropped in ds.
#pragma once

#include "device/cuda/kernels/attention_mask.h"
#include "device/cuda/kernels/attention_tile.h"

namespace loom::cuda {

/// From a score, before the scale (-inf: hidden), and its query's lse in powers of 2.
LOOM_DEVICE float probability(float score, float scale, float lse) { return exp2_of(score * scale - lse); }

/// dQ of a block's queries; keys and values go by.
template <typename Tiles>
LOOM_DEVICE void attention_backward_queries(const AttentionArguments& a) {
  using T = typename Tiles::Element;
  constexpr int kRowTiles = Tiles::kRowTiles, kKeys = Tiles::kStreamed;
  const int head = static_cast<int>(block_index().y), batch = static_cast<int>(block_index().z);
  const int first = static_cast<int>(grid_size().x - 1 - block_index().x) * Tiles::kRows;
  const int lane = static_cast<int>(lane_index());
  const int warp = static_cast<int>(warp_index()), warp_row = warp * 16 * kRowTiles;
  const int key_head = head / static_cast<int>(a.sharing());
  const auto queries = query_slice<const T>(a, a.qkv, batch, head);
  const auto keys = key_slice<const T>(a, a.qkv, batch, key_head);
  const auto values = value_slice<const T>(a, a.qkv, batch, key_head);
  const auto douts = out_slice<const T>(a, a.dout, batch, head);
  T *const own = reinterpret_cast<T*>(shared_memory()), *const stages = own + 2 * Tiles::kResident;
  T *const own_queries = own + warp_row * Tiles::kHead, *const own_douts = own_queries + Tiles::kResident;
  float* const scratch =
      reinterpret_cast<float*>(stages + 4 * Tiles::kStage) + warp * (Tiles::kScratch / Tiles::kWarps);

  const VisibleKeys visible(a, batch);
  const DroppedElements dropped(a, batch, head);
  const float slope = slope_before_scale(a, head), scale = a.scale * kLog2E;
  const TileRange tiles = key_tiles(visible, first, Tiles::kRows, kKeys);
  const auto load = [&](int tile) {
    T* const stage = stages + tile % 2 * 2 * Tiles::kStage;
    load_tile<Tiles, kKeys>(a, keys, tile * kKeys, stage);
    load_tile<Tiles, kKeys>(a, values, tile * kKeys, stage + Tiles::kStage);
    commit_copies();
  };
  load_tile<Tiles, Tiles::kRows>(a, queries, first, own);
  load_tile<Tiles, Tiles::kRows>(a, douts, first, own + Tiles::kResident);
  commit_copies();
  if (tiles.first < tiles.end) load(tiles.first);

  float lse[kRowTiles][2], delta[kRowTiles][2];
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first + warp_row + m * 16 + half * 8 + lane / 4;
      const int64_t at = (static_cast<int64_t>(batch) * a.heads + head) * a.tokens + row;
      lse[m][half] = row < visible.tokens ? a.lse[at] * kLog2E : 0.0f;
      delta[m][half] = row < visible.tokens ? a.delta[at] : 0.0f;
    }
  float dq[kRowTiles][Tiles::kHead / 8][4] = {};
  for (int tile = tiles.first; tile < tiles.end; ++tile) {
    wait_for_copies<0>();
    barrier();  // this tile is there, and no warp reads the last one any more
    if (tile + 1 < tiles.end) load(tile + 1);
    const T* const stage = stages + tile % 2 * 2 * Tiles::kStage;
    float p[kRowTiles][kKeys / 8][4], ds[kRowTiles][kKeys / 8][4];
    product_of_rows<Tiles>(own_queries, stage, p);
    product_of_rows<Tiles>(own_douts, stage + Tiles::kStage, ds);
    if (a.drop_threshold != 0)
      drop(dropped.template of_queries<kRowTiles, kKeys / 8>(first + warp_row, tile * kKeys), a.keep, ds);
    mask_scores<false>(visible, slope, first + warp_row, tile * kKeys, p);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int b = 0; b < kKeys / 8; ++b)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          p[m][b][i] = probability(p[m][b][i], scale, lse[m][i / 2]);
          ds[m][b][i] = p[m][b][i] * (ds[m][b][i] - delta[m][i / 2]);
        }
    add_product<Tiles>(ds, stage, 0, dq, scratch);
  }
  wait_for_copies<0>();
  barrier();  // without any tile, other warps' copies may still come
  float factor[kRowTiles][2];
  for (int m = 0; m < kRowTiles; ++m)
    for (int half = 0; half < 2; ++half) factor[m][half] = a.scale;
  const auto to = query_slice<T>(a, a.dqkv, batch, head);
  store_rows<Tiles>(a, dq, factor, to, first + warp_row, 0, own_queries);
}

/// dK and dV of a block's keys; queries and dout of each head that shares them go by, with lse and delta.
/// Products are transposed: rows are keys, columns queries, so that probabilities are in registers as the
/// next products' factors.
template <typename Tiles>
LOOM_DEVICE void attention_backward_keys(const AttentionArguments& a) {
  using T = typename Tiles::Element;
  constexpr int kRowTiles = Tiles::kRowTiles, kQueries = Tiles::kStreamed;
  const int key_head = static_cast<int>(block_index().y), batch = static_cast<int>(block_index().z);
  const int first = static_cast<int>(block_index().x) / Tiles::kShares * Tiles::kRows;
  const int column = static_cast<int>(block_index().x) % Tiles::kShares * Tiles::kColumns;
  const int lane = static_cast<int>(lane_index());
  const int warp = static_cast<int>(warp_index()), warp_row = warp * 16 * kRowTiles;
  const auto keys = key_slice<const T>(a, a.qkv, batch, key_head);
  const auto values = value_slice<const T>(a, a.qkv, batch, key_head);
  T *const own = reinterpret_cast<T*>(shared_memory()), *const stages = own + 2 * Tiles::kResident;
  T *const own_keys = own + warp_row * Tiles::kHead, *const own_values = own_keys + Tiles::kResident;
  float* const statistics =
      reinterpret_cast<float*>(stages + 4 * Tiles::kStage);  // [2 stages, lse and delta, queries]
  float* const scratch = statistics + 4 * kQueries + warp * (Tiles::kScratch / Tiles::kWarps);

  const VisibleKeys visible(a, batch);
  const float scale = a.scale * kLog2E;
  const TileRange tiles = query_tiles(visible, first, Tiles::kRows, kQueries);
  // Steps are the tiles of the first of the heads, then those of the next one.
  const int of_head = tiles.end - tiles.first, steps = of_head * static_cast<int>(a.sharing());
  const int first_head = key_head * static_cast<int>(a.sharing());
  const auto load = [&](int step) {
    const int head = first_head + step / of_head, tile = tiles.first + step % of_head;
    T* const stage = stages + step % 2 * 2 * Tiles::kStage;
    load_tile<Tiles, kQueries>(a, query_slice<const T>(a, a.qkv, batch, head), tile * kQueries, stage);
    load_tile<Tiles, kQueries>(a, out_slice<const T>(a, a.dout, batch, head), tile * kQueries,
                               stage + Tiles::kStage);
    commit_copies();
    const int i = static_cast<int>(thread_index().x), row = tile * kQueries + i;
    if (i < kQueries) {
      const int64_t at = (static_cast<int64_t>(batch) * a.heads + head) * a.tokens + row;
      float* const to = statistics + step % 2 * 2 * kQueries + i;
      to[0] = row < visible.tokens ? a.lse[at] * kLog2E : 0.0f;
      to[kQueries] = row < visible.tokens ? a.delta[at] : 0.0f;
    }
  };
  load_tile<Tiles, Tiles::kRows>(a, keys, first, own);
  load_tile<Tiles, Tiles::kRows>(a, values, first, own + Tiles::kResident);
  commit_copies();
  if (steps > 0) load(0);

  float dk[kRowTiles][Tiles::kColumns / 8][4] = {}, dv[kRowTiles][Tiles::kColumns / 8][4] = {};
  for (int step = 0; step < steps; ++step) {
    wait_for_copies<0>();
    barrier();  // this tile is there, and no warp reads the last one any more
    if (step + 1 < steps) load(step + 1);
    const int head = first_head + step / of_head, tile = tiles.first + step % of_head;
    const T* const stage = stages + step % 2 * 2 * Tiles::kStage;
    const float* const of_stage = statistics + step % 2 * 2 * kQueries;
    float p[kRowTiles][kQueries / 8][4], ds[kRowTiles][kQueries / 8][4];
    product_of_rows<Tiles>(own_keys, stage, p);
    product_of_rows<Tiles>(own_values, stage + Tiles::kStage, ds);
    uint64_t bits = 0;
    if (a.drop_threshold != 0) {
      const DroppedElements dropped(a, batch, head);
      bits = dropped.template of_keys<kRowTiles, kQueries / 8>(tile * kQueries, first + warp_row);
      drop(bits, a.keep, ds);
    }
    mask_scores<true>(visible, slope_before_scale(a, head), first + warp_row, tile * kQueries, p);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int b = 0; b < kQueries / 8; ++b)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int query = b * 8 + lane % 4 * 2 + i % 2;
          p[m][b][i] = probability(p[m][b][i], scale, of_stage[query]);
          ds[m][b][i] = p[m][b][i] * (ds[m][b][i] - of_stage[kQueries + query]);
        }
    if (a.drop_threshold != 0) drop(bits, a.keep, p);
    add_product<Tiles>(p, stage + Tiles::kStage, column, dv, scratch);
    add_product<Tiles>(ds, stage, column, dk, scratch);
  }
  wait_for_copies<0>();
  barrier();  // without any tile, other warps' copies may still come
  float factor[kRowTiles][2], one[kRowTiles][2];
  for (int m = 0; m < kRowTiles; ++m)
    for (int half = 0; half < 2; ++half) factor[m][half] = a.scale, one[m][half] = 1;
  const auto dkeys = key_slice<T>(a, a.dqkv, batch, key_head);
  const auto dvalues = value_slice<T>(a, a.dqkv, batch, key_head);
  store_rows<Tiles>(a, dk, factor, dkeys, first + warp_row, column, own_keys);
  store_rows<Tiles>(a, dv, one, dvalues, first + warp_row, column, own_values);
}

}  // namespace loom::cuda
