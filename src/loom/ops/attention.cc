// Attention in tiles with an online softmax. No array of S × S elements exists, so memory grows linearly
// with the sequence. The method is FlashAttention's (Dao et al., 2022, and 2023 for the backward pass). Rows
// keep a running maximum and sum while tiles of keys go by. The backward pass computes the probabilities
// again from the rows' log Σ exp.
//
// A query sees a range of keys: up to itself, or up to the end of its sequence, and with a window only the
// last ones. Where a sequence holds several texts, the range begins with the query's
// own. Tiles that no query sees are left out.
//
// A part is one head of one sequence; its q, k and v are first copied side by side, as type A. Backward,
// queries' heads that share keys are one part, one after the other, so that only it adds to their gradients.
#include <cmath>

#include "ops/draws.h"
#include "ops/math.h"
#include "ops/product.h"

namespace loom::ops::LOOM_ISA {
namespace {

constexpr int64_t kTile = 128;  // queries and keys of a tile

/// ALiBi's slopes (Press et al., 2022): for 2ⁿ heads 2^(-8/2ⁿ) and its powers; else those of the next smaller
/// 2ⁿ, and then every second one of 2ⁿ⁺¹.
inline float alibi_slope(int64_t head, int64_t heads) {
  int64_t power = 1;
  while (2 * power <= heads) power *= 2;
  const double exponent = head < power
                              ? static_cast<double>(head + 1) / static_cast<double>(power)
                              : (static_cast<double>(head - power) + 0.5) / static_cast<double>(power);
  return static_cast<float>(std::exp2(-8.0 * exponent));
}

/// Which head of which sequence (its number among all heads of all sequences), and where its slices are.
struct Place {
  int64_t head, first_row, stride;
  int64_t query, key, value;  // first columns
  int64_t last_key;           // behind the last key of the sequence
  float slope;                // of ALiBi, or 0

  Place(const AttentionShape& s, int64_t part, int64_t columns)
      : head(part / s.heads * (s.all_heads > 0 ? s.all_heads : s.heads) + s.first_head + part % s.heads),
        first_row(part / s.heads * s.tokens),
        stride(columns),
        query(part % s.heads * s.head_size),
        key(s.width() + part % s.heads / (s.heads / s.key_heads()) * s.head_size),
        value(key + s.key_width()),
        last_key(s.lengths != nullptr ? s.lengths[part / s.heads] : s.tokens),
        slope(s.alibi ? alibi_slope(s.first_head + part % s.heads, s.all_heads > 0 ? s.all_heads : s.heads)
                      : 0.0f) {}
};

/// The keys [first, last) that a query sees.
struct Keys {
  int64_t first, last;

  Keys(const AttentionShape& s, const Place& at, int64_t query)
      : first(max_of(s.window > 0 ? query + 1 - s.window : 0,
                     s.begins != nullptr ? s.begins[at.first_row + query] : 0)),
        last(s.causal ? query + 1 : at.last_key) {}
};

/// Whether any of queries [i, i + rows) sees any of keys [j, j + keys). Ranges grow with the query.
inline bool any_visible(const AttentionShape& s, const Place& at, int64_t i, int64_t rows, int64_t j,
                        int64_t keys) {
  return Keys(s, at, i + rows - 1).last > j && Keys(s, at, i).first < j + keys;
}

/// to[S, D] = a head's slice of from[M, stride] times `factor`.
template <typename T, typename A>
void pack(const AttentionShape& s, const Place& at, int64_t column, const T* from, A factor, A* to) {
  for (int64_t t = 0; t < s.tokens; ++t) {
    const T* row = from + (at.first_row + t) * at.stride + column;
#pragma omp simd
    for (int64_t d = 0; d < s.head_size; ++d) to[t * s.head_size + d] = load(row[d]) * factor;
  }
}

template <typename T, typename A>
void unpack(const AttentionShape& s, const Place& at, int64_t column, const A* from, A factor, T* to) {
  for (int64_t t = 0; t < s.tokens; ++t) {
    T* row = to + (at.first_row + t) * at.stride + column;
#pragma omp simd
    for (int64_t d = 0; d < s.head_size; ++d) store(row[d], from[t * s.head_size + d] * factor);
  }
}

/// Multiplies row `query`, columns [0, n), by the mask of the probabilities from key `first_key` on.
template <typename A>
void drop(const AttentionShape& s, const Place& at, int64_t query, int64_t first_key, int64_t n, A* row) {
  const float keep = 1.0f / (1.0f - s.dropout.probability);
  const uint32_t threshold = drop_threshold(s.dropout.probability);
  const uint64_t first = s.dropout.first + (at.head * s.tokens + query) * s.tokens + first_key;
  for_draws(s.dropout.key, first, n, [&](const uint32_t* words, int64_t skip, int64_t i, int64_t count) {
#pragma omp simd
    for (int64_t j = 0; j < count; ++j)
      row[i + j] = words[skip + j] < threshold ? A(0) : row[i + j] * A(keep);
  });
}

/// What a query sees of a tile of keys: columns [begin, end) of its row, with ALiBi's distances added.
template <typename A>
struct VisibleRow {
  int64_t begin, end;

  VisibleRow(const AttentionShape& s, const Place& at, int64_t query, int64_t j, int64_t keys, A* row) {
    const Keys seen(s, at, query);
    begin = min_of(keys, max_of(0, seen.first - j));
    end = max_of(begin, min_of(keys, seen.last - j));
    if (at.slope == 0) return;
    for (int64_t k = begin; k < end; ++k) row[k] += A(at.slope) * A(j + k - query);
  }
};

/// Zeros in the columns that are not seen.
template <typename A>
void clear_hidden(const VisibleRow<A>& visible, int64_t keys, A* row) {
  for (int64_t k = 0; k < visible.begin; ++k) row[k] = 0;
  for (int64_t k = visible.end; k < keys; ++k) row[k] = 0;
}

/// A tile of scores, of queries from i and keys from j on, becomes probabilities up to the rows' new maximum;
/// the rows' sums and what they have of the output are scaled to it.
template <typename A>
void online_softmax(const AttentionShape& s, const Place& at, A* scores, int64_t i, int64_t rows, int64_t j,
                    int64_t keys, A* largest, A* sum, A* out) {
  const int64_t width = s.head_size;
  for (int64_t r = 0; r < rows; ++r) {
    A* row = scores + r * keys;
    const VisibleRow<A> visible(s, at, i + r, j, keys, row);
    const int64_t begin = visible.begin, end = visible.end;
    A high = largest[r];
#pragma omp simd reduction(max : high)
    for (int64_t k = begin; k < end; ++k) high = row[k] > high ? row[k] : high;
    A total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t k = begin; k < end; ++k) {
      row[k] = exp_of(row[k] - high);
      total += row[k];
    }
    clear_hidden(visible, keys, row);
    const A shrink = exp_of(largest[r] - high);
    largest[r] = high;
    sum[r] = sum[r] * shrink + total;
#pragma omp simd
    for (int64_t d = 0; d < width; ++d) out[r * width + d] *= shrink;
  }
}

template <typename T>
void forward(Workers& workers, const AttentionShape& s, const T* qkv, T* out, acc_t<T>* lse) {
  using A = acc_t<T>;
  const int64_t slice = s.tokens * s.head_size;
  const int64_t tile = min_of(kTile, s.tokens), packed = small_scratch<T>(tile, s.head_size);
  for_parts(workers, s.batch * s.heads, [&](int64_t part, int worker) {
    const Place in(s, part, s.qkv_width()), to(s, part, s.width());
    std::byte* const packing = workers.scratch(
        worker, static_cast<size_t>(packed) + sizeof(A) * (4 * slice + tile * tile + s.tokens));
    A* q = reinterpret_cast<A*>(packing + packed);
    A *k = q + slice, *v = k + slice, *o = v + slice, *scores = o + slice, *sum = scores + tile * tile;
    A* largest = lse + part * s.tokens;
    pack(s, in, in.query, qkv, A(s.scale), q);
    pack(s, in, in.key, qkv, A(1), k);
    pack(s, in, in.value, qkv, A(1), v);
    for (int64_t i = 0; i < slice; ++i) o[i] = 0;
    for (int64_t i = 0; i < s.tokens; ++i) largest[i] = A(-1e30), sum[i] = 0;
    for (int64_t i = 0; i < s.tokens; i += tile) {
      const int64_t rows = min_of(tile, s.tokens - i);
      for (int64_t j = 0; j < s.tokens; j += tile) {
        const int64_t keys = min_of(tile, s.tokens - j);
        if (!any_visible(s, in, i, rows, j, keys)) continue;
        small_product<T>({false, true, rows, keys, s.head_size, s.head_size, s.head_size, keys},
                         q + i * s.head_size, k + j * s.head_size, false, scores, packing);
        online_softmax(s, in, scores, i, rows, j, keys, largest + i, sum + i, o + i * s.head_size);
        if (s.dropout.probability > 0)
          for (int64_t r = 0; r < rows; ++r) drop(s, in, i + r, j, keys, scores + r * keys);
        small_product<T>({false, false, rows, s.head_size, keys, keys, s.head_size, s.head_size}, scores,
                         v + j * s.head_size, true, o + i * s.head_size, packing);
      }
    }
    for (int64_t t = 0; t < s.tokens; ++t) {
      const A inverse = A(1) / sum[t];
      for (int64_t d = 0; d < s.head_size; ++d) o[t * s.head_size + d] *= inverse;
      largest[t] += A(std::log(static_cast<double>(sum[t])));
    }
    unpack(s, to, to.query, o, A(1), out);
  });
}

/// What one head's backward pass works on: [S, D] each, but for the tiles and delta[S].
template <typename A>
struct Head {
  std::byte* packing;  // of products
  A *q, *k, *v, *dout, *dq, *dk, *dv, *delta, *p, *dp;

  static size_t elements(int64_t slice, int64_t tile, int64_t tokens) {
    return 7 * slice + tokens + 2 * tile * tile;
  }
  Head(std::byte* at, int64_t packed, int64_t slice, int64_t tile, int64_t tokens)
      : packing(at),
        q(reinterpret_cast<A*>(at + packed)),
        k(q + slice),
        v(k + slice),
        dout(v + slice),
        dq(dout + slice),
        dk(dq + slice),
        dv(dk + slice),
        delta(dv + slice),
        p(delta + tokens),
        dp(p + tile * tile) {}
};

/// p and dp hold scores and d(probabilities); afterwards p holds what multiplied v (with dropout applied), dp
/// d(scores).
template <typename A>
void softmax_backward(const AttentionShape& s, const Place& at, const Head<A>& h, const A* lse, int64_t i,
                      int64_t rows, int64_t j, int64_t keys) {
  for (int64_t r = 0; r < rows; ++r) {
    A *p = h.p + r * keys, *dp = h.dp + r * keys;
    const VisibleRow<A> visible(s, at, i + r, j, keys, p);
    const int64_t begin = visible.begin, end = visible.end;
    const A row_lse = lse[i + r], delta = h.delta[i + r];
#pragma omp simd
    for (int64_t c = begin; c < end; ++c) p[c] = exp_of(p[c] - row_lse);
    if (s.dropout.probability > 0) drop(s, at, i + r, j, end, dp);
#pragma omp simd
    for (int64_t c = begin; c < end; ++c) dp[c] = p[c] * (dp[c] - delta);
    clear_hidden(visible, keys, p);
    clear_hidden(visible, keys, dp);
    if (s.dropout.probability > 0) drop(s, at, i + r, j, end, p);
  }
}

/// The products of one tile: dv, dk and dq get what queries [i, i + rows) and keys [j, j + keys) give them.
template <typename T, typename A>
void tile_backward(const AttentionShape& s, const Place& at, const Head<A>& h, const A* lse, int64_t i,
                   int64_t rows, int64_t j, int64_t keys) {
  const int64_t d = s.head_size;
  const ProductShape of_scores{false, true, rows, keys, d, d, d, keys},
      of_queries{false, false, rows, d, keys, keys, d, d}, of_keys{true, false, keys, d, rows, keys, d, d};
  small_product<T>(of_scores, h.q + i * d, h.k + j * d, false, h.p, h.packing);
  small_product<T>(of_scores, h.dout + i * d, h.v + j * d, false, h.dp, h.packing);
  softmax_backward(s, at, h, lse, i, rows, j, keys);
  small_product<T>(of_keys, h.p, h.dout + i * d, true, h.dv + j * d, h.packing);
  small_product<T>(of_queries, h.dp, h.k + j * d, true, h.dq + i * d, h.packing);
  small_product<T>(of_keys, h.dp, h.q + i * d, true, h.dk + j * d, h.packing);
}

/// dq of one head of queries; adds to dk and dv.
template <typename T>
void head_backward(const AttentionShape& s, int64_t part, const Head<acc_t<T>>& h, const T* qkv, const T* out,
                   const acc_t<T>* lse, const T* dout, T* dqkv) {
  using A = acc_t<T>;
  const Place in(s, part, s.qkv_width()), to(s, part, s.width());
  const int64_t slice = s.tokens * s.head_size, tile = min_of(kTile, s.tokens);
  pack(s, in, in.query, qkv, A(s.scale), h.q);
  pack(s, to, to.query, out, A(1), h.dq);  // only for delta
  pack(s, to, to.query, dout, A(1), h.dout);
  for (int64_t t = 0; t < s.tokens; ++t) {
    A sum = 0;
    for (int64_t d = 0; d < s.head_size; ++d) sum += h.dout[t * s.head_size + d] * h.dq[t * s.head_size + d];
    h.delta[t] = sum;
  }
  for (int64_t i = 0; i < slice; ++i) h.dq[i] = 0;
  for (int64_t j = 0; j < s.tokens; j += tile)
    for (int64_t i = 0; i < s.tokens; i += tile) {
      const int64_t rows = min_of(tile, s.tokens - i), keys = min_of(tile, s.tokens - j);
      if (any_visible(s, in, i, rows, j, keys))
        tile_backward<T>(s, in, h, lse + part * s.tokens, i, rows, j, keys);
    }
  unpack(s, in, in.query, h.dq, A(s.scale), dqkv);
}

template <typename T>
void backward(Workers& workers, const AttentionShape& s, const T* qkv, const T* out, const acc_t<T>* lse,
              const T* dout, T* dqkv) {
  using A = acc_t<T>;
  const int64_t slice = s.tokens * s.head_size, sharing = s.heads / s.key_heads();
  const int64_t tile = min_of(kTile, s.tokens), packed = small_scratch<T>(tile, s.head_size);
  for_parts(workers, s.batch * s.key_heads(), [&](int64_t group, int worker) {
    const size_t bytes = static_cast<size_t>(packed) + sizeof(A) * Head<A>::elements(slice, tile, s.tokens);
    const Head<A> h(workers.scratch(worker, bytes), packed, slice, tile, s.tokens);
    const int64_t first = group * sharing;
    const Place in(s, first, s.qkv_width());
    pack(s, in, in.key, qkv, A(1), h.k);
    pack(s, in, in.value, qkv, A(1), h.v);
    for (int64_t i = 0; i < 2 * slice; ++i) h.dk[i] = 0;  // and dv behind it
    for (int64_t part = first; part < first + sharing; ++part)
      head_backward<T>(s, part, h, qkv, out, lse, dout, dqkv);
    unpack(s, in, in.key, h.dk, A(1), dqkv);
    unpack(s, in, in.value, h.dv, A(1), dqkv);
  });
}

/// One query is a row of scores: no tiles, and nothing to pack.
template <typename T>
void step(Workers& workers, const AttentionShape& s, const T* q, const T* keys, const T* values,
          int64_t position, T* out) {
  using A = acc_t<T>;
  const int64_t stride = s.key_width(), count = position + 1;
  for_parts(workers, s.heads, [&](int64_t part, int worker) {
    const Place at(s, part, s.width());
    const int64_t key = at.key - s.width();  // and value
    A* scores = reinterpret_cast<A*>(workers.scratch(worker, sizeof(A) * (count + s.head_size)));
    A* sums = scores + count;
    const int64_t first = Keys(s, at, position).first;
    A high = A(-1e30), total = 0;
    for (int64_t k = first; k < count; ++k) {
      A score = 0;
      for (int64_t d = 0; d < s.head_size; ++d)
        score += load(q[at.query + d]) * A(s.scale) * load(keys[k * stride + key + d]);
      scores[k] = score + A(at.slope) * A(k - position);
      high = scores[k] > high ? scores[k] : high;
    }
    for (int64_t d = 0; d < s.head_size; ++d) sums[d] = 0;
    for (int64_t k = first; k < count; ++k) {
      const A weight = exp_of(scores[k] - high);
      total += weight;
      for (int64_t d = 0; d < s.head_size; ++d) sums[d] += weight * load(values[k * stride + key + d]);
    }
    for (int64_t d = 0; d < s.head_size; ++d) store(out[at.query + d], sums[d] / total);
  });
}

}  // namespace

template <typename T>
void add_attention(Operators<T>& table) {
  table.attention_forward = forward<T>;
  table.attention_backward = backward<T>;
  table.attention_step = step<T>;
}
LOOM_FOR_EVERY_TYPE(add_attention)

}  // namespace loom::ops::LOOM_ISA
