// Products of whole matrices of bfloat16 (packing.h): blocks of A and B are packed by all workers together,
// then tiles of C, which stay in a core's cache, are shared out.
//
// Each element of C is summed in the order of the depth alone, so that its bits depend neither on the number
// of workers nor on how many rows there are.
#pragma once

#ifdef LOOM_ISA_AMX
#include "ops/amx_tiles.h"
#else
#include "ops/bf16_pairs.h"
#endif
#include "ops/product.h"

namespace loom::ops::LOOM_ISA {

constexpr int64_t kBlock = 2048;           // rows and columns of C for which operands are packed at a time
constexpr int64_t kBlockDepth = 3072;      // … and how deep, times the number of parts
constexpr int64_t kPacked = 256;           // rows of A, or columns of B, that a worker packs at a time
constexpr int64_t kCoreBytes = 768 << 10;  // of what a tile of C takes of each operand: both fit an L2 cache
constexpr int64_t kChunkBytes = 16 << 10;  // of a strip of B that A's strips use in turn, from the L1 cache
constexpr int64_t kMostRows = 256;         // of a tile of C

/// What becomes of the sums of a part of C: added to what `from` has there, or to nothing, and to the bias,
/// they are stored.
template <typename TC, typename TBias>
struct Ending {
  const float* from;  // or null
  int64_t from_stride;
  const TBias* bias;  // or null
  TC* to;
  int64_t to_stride;
  bool past_caches =
      false;  // whether nobody reads it before long; only of floats, and where nothing is added

  /// A strip of sums [rows, 32], for columns from `column` on, of which `columns` exist.
  void store(const float* sums, int64_t row, int64_t rows, int64_t column, int64_t columns) const {
    const __mmask16 low = first_of_16(columns), high = first_of_16(columns - 16);
    const __m512 nothing = _mm512_setzero_ps();
    const __m512 plus_low = bias != nullptr ? load_16(low, bias + column) : nothing;
    const __m512 plus_high = bias != nullptr ? load_16(high, bias + column + 16) : nothing;
    for (int64_t r = 0; r < rows; ++r) {
      __m512 x = _mm512_load_ps(sums + r * kStrip), y = _mm512_load_ps(sums + r * kStrip + 16);
      if (from != nullptr) {
        const float* const before = from + (row + r) * from_stride + column;
        x = _mm512_add_ps(x, load_16(low, before));
        y = _mm512_add_ps(y, load_16(high, before + 16));
      }
      x = _mm512_add_ps(x, plus_low);
      y = _mm512_add_ps(y, plus_high);
      TC* const at = to + (row + r) * to_stride + column;
      if constexpr (__is_same(TC, float))
        if (past_caches && high == 0xffff && reinterpret_cast<uintptr_t>(at) % 64 == 0) {
          _mm512_stream_ps(at, x);
          _mm512_stream_ps(at + 16, y);
          continue;
        }
      store_16(low, at, x);
      store_16(high, at + 16, y);
    }
    if (past_caches) _mm_sfence();
  }
};

/// A tile of C: `rows` ≤ kMostRows and `columns` of it from (row, column) of the packed blocks.
template <int parts, typename E>
void tile_of_product(const uint16_t* a, const uint16_t* b, int64_t depth, const E& ending, int64_t row,
                     int64_t rows, int64_t column, int64_t columns) {
  alignas(64) float sums[kMostRows * kStrip];
  const TileRegisters registers;
  const int64_t strip = strip_elements(depth, parts), step = parts * kPartElements;
  constexpr int64_t kChunk = kChunkBytes / (parts * kPartElements * sizeof(uint16_t));  // steps
  for (int64_t c = column; c < column + columns; c += kStrip) {
    const uint16_t* const right = b + c / kStrip * strip;
    for (int64_t s = 0; s == 0 || s < steps_of(depth); s += kChunk)
      for (int64_t r = 0; r < rows; r += kStrip)
        multiply<parts>(a + (row + r) / kStrip * strip + s * step, right + s * step,
                        min_of(kChunk, steps_of(depth) - s), s == 0, sums + r * kStrip);
    ending.store(sums, row, rows, c, min_of(kStrip, column + columns - c));
  }
}

/// C = op(A)·op(B) + bias, or C + op(A)·op(B) if `add`. bias [n] may be null.
template <typename TA, typename TB, typename TC, typename TBias>
void product(Workers& workers, const ProductShape& s, const TA* a, const TB* b, TC* c, bool add,
             const TBias* bias) {
  constexpr int parts = kParts<TA, TB>;
  constexpr bool kRounds = !__is_same(TC, float);  // so that sums must not be stored in C before the end
  const int64_t deepest = min_of(kBlockDepth / parts, s.k), m_most = min_of(kBlock, s.m),
                n_most = min_of(kBlock, s.n);
  const int64_t a_size = ceil_div(m_most, kStrip) * strip_elements(deepest, parts),
                b_size = ceil_div(n_most, kStrip) * strip_elements(deepest, parts);
  const bool keeps = kRounds && s.k > deepest;
  uint16_t* const a_packed = reinterpret_cast<uint16_t*>(workers.shared_scratch(
      sizeof(uint16_t) * (a_size + b_size) + (keeps ? sizeof(float) * m_most * n_most : 0)));
  uint16_t* const b_packed = a_packed + a_size;
  float* const kept = reinterpret_cast<float*>(b_packed + b_size);
  int64_t a_row = -1, a_depth = -1, b_column = -1, b_depth = -1;  // what is packed
  for (int64_t n0 = 0; n0 < s.n; n0 += kBlock)
    for (int64_t m0 = 0; m0 < s.m; m0 += kBlock)
      for (int64_t k0 = 0; k0 == 0 || k0 < s.k; k0 += max_of(1, deepest)) {
        const int64_t n = min_of(kBlock, s.n - n0), m = min_of(kBlock, s.m - m0),
                      depth = min_of(deepest, s.k - k0);
        const Operand<TA> left = Operand<TA>{a, s.lda, !s.a_transposed}.from(m0, k0);
        const Operand<TB> right = Operand<TB>{b, s.ldb, s.b_transposed}.from(n0, k0);
        const int64_t a_pieces = a_row == m0 && a_depth == k0 ? 0 : ceil_div(m, kPacked),
                      b_pieces = b_column == n0 && b_depth == k0 ? 0 : ceil_div(n, kPacked);
        const int64_t piece = kPacked / kStrip * strip_elements(depth, parts);
        for_parts(workers, a_pieces + b_pieces, [&](int64_t part, int) {
          if (part < a_pieces)
            return pack<parts, false>(left.from(part * kPacked, 0), min_of(kPacked, m - part * kPacked),
                                      depth, a_packed + part * piece);
          part -= a_pieces;
          pack<parts, true>(right.from(part * kPacked, 0), min_of(kPacked, n - part * kPacked), depth,
                            b_packed + part * piece);
        });
        a_row = m0, a_depth = k0, b_column = n0, b_depth = k0;
        const bool last = k0 + depth >= s.k;
        const int64_t fit =
            kCoreBytes / (depth * parts * static_cast<int64_t>(sizeof(uint16_t))) / kStrip * kStrip;
        const int64_t rows = max_of(kStrip, min_of(fit, kMostRows)),
                      columns = max_of(kStrip, min_of(2 * rows, fit));
        const int64_t down = ceil_div(m, rows);
        for_parts(workers, down * ceil_div(n, columns), [&](int64_t part, int) {
          const int64_t row = part % down * rows, column = part / down * columns;
          const auto with = [&](const auto& ending) {
            tile_of_product<parts>(a_packed, b_packed, depth, ending, row, min_of(rows, m - row), column,
                                   min_of(columns, n - column));
          };
          TC* const to = c + m0 * s.ldc + n0;
          const TBias* const plus = bias != nullptr && last ? bias + n0 : nullptr;
          if constexpr (kRounds) {
            const float* const from = k0 > 0 ? kept : nullptr;
            if (last) with(Ending<TC, TBias>{from, n, plus, to, s.ldc});
            else with(Ending<float, TBias>{from, n, nullptr, kept, n});
          } else {
            const bool adds = k0 > 0 || add;
            with(Ending<float, TBias>{adds ? to : nullptr, s.ldc, plus, to, s.ldc, last && !adds});
          }
        });
      }
}

/// C = op(A)·op(B), or C + op(A)·op(B) if `add`, on the calling thread, for models of T: all of it in caches,
/// with at most kMostRows rows of C. `scratch` has small_scratch() bytes, aligned to 64.
template <typename T>
void small_product(const ProductShape& s, const float* a, const float* b, bool add, float* c,
                   std::byte* scratch) {
  constexpr int parts = kParts<T, T>;
  uint16_t* const a_packed = reinterpret_cast<uint16_t*>(scratch);
  uint16_t* const b_packed = a_packed + ceil_div(s.m, kStrip) * strip_elements(s.k, parts);
  pack<parts, false>(Operand<float>{a, s.lda, !s.a_transposed}, s.m, s.k, a_packed);
  pack<parts, true>(Operand<float>{b, s.ldb, s.b_transposed}, s.n, s.k, b_packed);
  const Ending<float, float> ending{add ? c : nullptr, s.ldc, nullptr, c, s.ldc};
  tile_of_product<parts>(a_packed, b_packed, s.k, ending, 0, s.m, 0, s.n);
}

/// For products of which m, n and k are each `side` or `other` at most.
template <typename T>
int64_t small_scratch(int64_t side, int64_t other) {
  const int64_t longest = max_of(side, other);
  const int64_t operand = ceil_div(longest, kStrip) * strip_elements(longest, kParts<T, T>);
  return 2 * operand * static_cast<int64_t>(sizeof(uint16_t));
}

}  // namespace loom::ops::LOOM_ISA
