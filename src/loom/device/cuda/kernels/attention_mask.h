// Which keys a query sees, ALiBi's slopes, and which probabilities dropout drops: as ops/attention.cc has it.
#pragma once

#include "device/cuda/kernels/attention_arguments.h"

namespace loom::cuda {

inline constexpr float kLog2E = 1.44269504f, kLn2 = 0.69314718f;

LOOM_DEVICE int smaller(int a, int b) { return a < b ? a : b; }
LOOM_DEVICE int larger(int a, int b) { return a > b ? a : b; }

/// A query sees keys [first_key(query), last_key(query)).
struct VisibleKeys {
  int tokens, length, window;
  bool causal;
  int first_row;  // of the sequence, in the batch
  const AttentionArguments& arguments;

  LOOM_DEVICE VisibleKeys(const AttentionArguments& a, int batch)
      : tokens(static_cast<int>(a.tokens)),
        length(a.lengths != nullptr ? a.lengths[batch] : static_cast<int>(a.tokens)),
        window(static_cast<int>(a.window)),
        causal(a.causal != 0),
        first_row(batch * tokens),
        arguments(a) {}
  /// `query` is below `tokens`.
  LOOM_DEVICE int first_key(int query) const {
    const int in_window = window > 0 && query >= window ? query + 1 - window : 0;
    return arguments.begins != nullptr ? larger(arguments.begins[first_row + query], in_window) : in_window;
  }
  /// The queries that see any of the keys up to `key` are before this one. Causal only.
  LOOM_DEVICE int last_query(int key) const {
    if (key >= tokens) return tokens;
    const int in_window = window > 0 && window < tokens - key ? key + window : tokens;
    return arguments.ends != nullptr ? smaller(arguments.ends[first_row + key], in_window) : in_window;
  }
  LOOM_DEVICE int last_key(int query) const { return causal ? query + 1 : length; }
  LOOM_DEVICE bool sees(int query, int key) const {
    return query < tokens && key >= first_key(query) && key < last_key(query);
  }
  /// Whether each of `queries` queries from `query` on sees each of `keys` keys from `key` on.
  LOOM_DEVICE bool all_seen(int query, int queries, int key, int keys) const {
    return query + queries <= tokens && key >= first_key(query + queries - 1) &&
           key + keys <= last_key(query);
  }
};

/// Tiles [first, end), in numbers of tiles.
struct TileRange {
  int first, end;
};
/// The tiles of keys that any of the queries [query, query + queries) sees.
LOOM_DEVICE TileRange key_tiles(const VisibleKeys& visible, int query, int queries, int tile) {
  const int last = smaller(query + queries, visible.tokens) - 1, end = visible.last_key(last);
  return {visible.first_key(query) / tile, (end + tile - 1) / tile};
}
/// The tiles of queries that see any of the keys [key, key + keys).
LOOM_DEVICE TileRange query_tiles(const VisibleKeys& visible, int key, int keys, int tile) {
  if (!visible.causal) return {0, key < visible.length ? (visible.tokens + tile - 1) / tile : 0};
  return {key / tile, (visible.last_query(key + keys - 1) + tile - 1) / tile};
}

/// ops/attention.cc's slopes, for head `head` of all.
LOOM_DEVICE float alibi_slope(int head, int heads) {
  int power = 1;
  while (2 * power <= heads) power *= 2;
  const float place = head < power ? static_cast<float>(head + 1) : static_cast<float>(head - power) + 0.5f;
  return exp2_of(-8.0f * place / static_cast<float>(power));
}
/// What a key's distance adds to a score, before the scale.
LOOM_DEVICE float slope_before_scale(const AttentionArguments& a, int head) {
  return a.alibi != 0
             ? alibi_slope(static_cast<int>(a.first_head) + head, static_cast<int>(a.all_heads)) / a.scale
             : 0.0f;
}

/// Adds ALiBi's distances to a warp's scores, and hides keys that a query does not see. Rows are queries from
/// `row` on and columns keys from `column` on, or, transposed, rows are keys and columns queries.
template <bool transposed, int row_tiles, int n>
LOOM_DEVICE void mask_scores(const VisibleKeys& visible, float slope, int row, int column,
                             float (&scores)[row_tiles][n][4]) {
  const int lane = static_cast<int>(lane_index()), g = lane / 4, t = lane % 4;
  const bool hides = transposed ? !visible.all_seen(column, 8 * n, row, 16 * row_tiles)
                                : !visible.all_seen(row, 16 * row_tiles, column, 8 * n);
  if (!hides && slope == 0) return;
#pragma unroll
  for (int m = 0; m < row_tiles; ++m)
#pragma unroll
    for (int b = 0; b < n; ++b)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int of_row = row + m * 16 + i / 2 * 8 + g, of_column = column + b * 8 + 2 * t + i % 2;
        const int query = transposed ? of_column : of_row, key = transposed ? of_row : of_column;
        scores[m][b][i] += slope * static_cast<float>(key - query);
        if (hides && !visible.sees(query, key)) scores[m][b][i] = -INFINITY;
      }
}

/// Which elements of a warp's probabilities dropout drops. Philox makes words for four keys at once, whose
/// number is a multiple of 4; where rows begin at such multiples, lanes share them.
class DroppedElements {
 public:
  LOOM_DEVICE DroppedElements(const AttentionArguments& a, int batch, int head)
      : key_(a.key),
        threshold_(a.drop_threshold),
        first_(a.first_drawn + (uint64_t{static_cast<unsigned>(batch)} * a.all_heads + a.first_head + head) *
                                   a.tokens * a.tokens),
        tokens_(a.tokens),
        aligned_(a.first_drawn % 4 == 0 && a.tokens % 4 == 0) {}

  /// Bit 4·(m·n + b) + i: element i of sums[m][b] as multiply() has them, where rows are queries from q on
  /// and columns keys from k on.
  template <int row_tiles, int n>
  LOOM_DEVICE uint64_t of_queries(int q, int k) const {
    return bits<row_tiles, n>([&](int m, int b) { return tile_of_queries(q + m * 16, k + b * 8); });
  }
  /// The same where rows are keys and columns queries.
  template <int row_tiles, int n>
  LOOM_DEVICE uint64_t of_keys(int q, int k) const {
    return bits<row_tiles, n>([&](int m, int b) { return tile_of_keys(q + b * 8, k + m * 16); });
  }

 private:
  template <int row_tiles, int n, typename Tile>
  LOOM_DEVICE uint64_t bits(Tile tile) const {
    static_assert(4 * row_tiles * n <= 64);
    uint64_t all = 0;
#pragma unroll 1  // Philox is long
    for (int i = 0; i < row_tiles * n; ++i) all |= uint64_t{tile(i / n, i % n)} << (4 * i);
    return all;
  }
  LOOM_DEVICE uint64_t number_of(int q, int k) const {
    return first_ + static_cast<uint64_t>(q * tokens_ + k);
  }
  LOOM_DEVICE uint32_t bit(uint32_t word, int i) const { return word < threshold_ ? 1u << i : 0u; }
  /// x[i] without an address, so that x stays in registers.
  LOOM_DEVICE static uint32_t chosen(const uint32_t (&x)[4], int i) {
    const uint32_t low = i % 2 == 0 ? x[0] : x[1], high = i % 2 == 0 ? x[2] : x[3];
    return i < 2 ? low : high;
  }
  LOOM_DEVICE uint32_t drawn_alone(int q, int k) const {
    const uint64_t number = number_of(q, k);
    return chosen(ops::philox(key_, number / 4).word, static_cast<int>(number % 4));
  }

  LOOM_DEVICE uint32_t tile_of_queries(int q, int k) const {
    const int lane = static_cast<int>(lane_index()), g = lane / 4, t = lane % 4;
    uint32_t all = 0;
    if (aligned_) {  // an even lane draws for row g, the odd one beside it for row g + 8
      const bool odd = lane % 2 != 0;
      const ops::Philox4 drawn = ops::philox(key_, number_of(q + g + (odd ? 8 : 0), k + t / 2 * 4) / 4);
      const uint32_t other0 = shuffle_xor(odd ? drawn.word[0] : drawn.word[2], 1);
      const uint32_t other1 = shuffle_xor(odd ? drawn.word[1] : drawn.word[3], 1);
      all = bit(odd ? other0 : drawn.word[0], 0) | bit(odd ? other1 : drawn.word[1], 1) |
            bit(odd ? drawn.word[2] : other0, 2) | bit(odd ? drawn.word[3] : other1, 3);
    } else {
#pragma unroll 1
      for (int i = 0; i < 4; ++i) all |= bit(drawn_alone(q + g + i / 2 * 8, k + 2 * t + i % 2), i);
    }
    return all;
  }

  LOOM_DEVICE uint32_t tile_of_keys(int q, int k) const {
    const int lane = static_cast<int>(lane_index()), g = lane / 4, t = lane % 4;
    uint32_t all = 0;
    if (aligned_) {  // of four lanes with neighbouring keys, lane r draws for the element r of each
      const int r = g % 4;
      const ops::Philox4 drawn =
          ops::philox(key_, number_of(q + 2 * t + r % 2, k + g / 4 * 4 + r / 2 * 8) / 4);
#pragma unroll
      for (int s = 0; s < 4; ++s) all |= bit(shuffle_xor(chosen(drawn.word, r ^ s), s * 4), r ^ s);
    } else {
#pragma unroll 1
      for (int i = 0; i < 4; ++i) all |= bit(drawn_alone(q + 2 * t + i % 2, k + g + i / 2 * 8), i);
    }
    return all;
  }

  ops::RandomKey key_;
  uint32_t threshold_;
  uint64_t first_;  // the number of query 0 and key 0
  int64_t tokens_;
  bool aligned_;
};

/// Zeros in the dropped elements, `keep` times the other ones.
template <int row_tiles, int n>
LOOM_DEVICE void drop(uint64_t dropped, float keep, float (&x)[row_tiles][n][4]) {
#pragma unroll
  for (int m = 0; m < row_tiles; ++m)
#pragma unroll
    for (int b = 0; b < n; ++b)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        x[m][b][i] = (dropped >> (4 * (m * n + b) + i) & 1) != 0 ? 0.0f : x[m][b][i] * keep;
}

}  // namespace loom::cuda
