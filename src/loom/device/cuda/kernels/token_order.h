// The order of a batch's rows by their tokens, rows of the same token in their own order: a radix sort by
// digits of 8 bits, the lowest first. Each digit takes three kernels: tiles of rows count their digits, the
// counts become places, and each row goes to its place. Nothing is counted by atomic operations, so the order
// is always the same.
//
// The gradient of an embedding is summed in it (embedding_gradient.h).
#pragma once

#include "device/cuda/kernels/packs.h"
#include "ops/operators.h"

namespace loom::cuda {

inline constexpr unsigned kDigits = 256, kTileRows = 256;  // a thread counts a digit, and places a row

/// What a row is sorted by: its token among `own`; tokens of others come last.
LOOM_DEVICE int32_t token_key(int32_t token, const ops::VocabularyRange& own) {
  const int64_t key = token - own.first;
  return static_cast<int32_t>(key >= 0 && key < own.count ? key : own.count);
}

/// Tokens of rows, of which those with a negative position count as another rank's: padding is not trained.
struct RowTokens {
  const int32_t *token, *position;  // the latter may be null
  ops::VocabularyRange own;

  LOOM_DEVICE int32_t key(int64_t row) const {
    return position != nullptr && position[row] < 0 ? static_cast<int32_t>(own.count)
                                                    : token_key(token[row], own);
  }
  template <typename Visit>
  void pointers(Visit&& visit, int64_t rows) {
    visit(token, rows), visit(position, position == nullptr ? 0 : rows);
  }
};

/// Of digit `digit`, from 0. `before` is the order by the digits before it, null for the first.
struct TokenOrderArguments {
  RowTokens tokens;
  const int32_t* before;
  int32_t* places;  // [kDigits, tiles]: counts at first, then where the tile's rows of that digit go
  int32_t* after;
  int64_t rows;
  int32_t digit;

  int64_t tiles() const { return ceil_div(rows, kTileRows); }
  /// Digits that keys have.
  static int32_t digits(const ops::VocabularyRange& own) {
    int32_t digits = 1;
    while (own.count >> (8 * digits) != 0) ++digits;
    return digits;
  }
  LaunchShape shape_of_tiles() const {  // of count_digits() and place_rows()
    return {{static_cast<unsigned>(tiles()), 1, 1}, kTileRows, kTileRows * sizeof(int32_t)};
  }
  static constexpr unsigned kScanThreads = 1024;
  LaunchShape shape_of_scan() const {  // of find_places()
    return {{1, 1, 1}, kScanThreads, kScanThreads * sizeof(int32_t)};
  }
  template <typename Visit>
  void pointers(Visit&& visit) {
    tokens.pointers(visit, rows), visit(before, before == nullptr ? 0 : rows),
        visit(places, kDigits * tiles());
    visit(after, rows);
  }
};

/// The thread's row of its tile, and all rows' digits in shared memory, -1 where the tile has no row.
LOOM_DEVICE int32_t share_digits(const TokenOrderArguments& a, int32_t* digit) {
  const int64_t place = int64_t{block_index().x} * kTileRows + thread_index().x;
  int32_t row = -1, mine = -1;
  if (place < a.rows) {
    row = a.before == nullptr ? static_cast<int32_t>(place) : a.before[place];
    mine = a.tokens.key(row) >> (8 * a.digit) & static_cast<int32_t>(kDigits - 1);
  }
  digit[thread_index().x] = mine;
  barrier();
  return row;
}

LOOM_DEVICE void count_digits(const TokenOrderArguments& a) {
  int32_t* const digit = reinterpret_cast<int32_t*>(shared_memory());
  share_digits(a, digit);
  const int32_t mine = static_cast<int32_t>(thread_index().x);
  int32_t count = 0;
  for (unsigned i = 0; i < kTileRows; ++i) count += digit[i] == mine ? 1 : 0;
  a.places[int64_t{mine} * grid_size().x + block_index().x] = count;
}

/// The sums of all counts before each: digit by digit, tile by tile.
LOOM_DEVICE void find_places(const TokenOrderArguments& a) {
  int32_t* const sum = reinterpret_cast<int32_t*>(shared_memory());
  const int thread = static_cast<int>(thread_index().x);
  constexpr int kThreads = TokenOrderArguments::kScanThreads;
  const int64_t counts = int64_t{kDigits} * ceil_div(a.rows, kTileRows), each = ceil_div(counts, kThreads);
  const int64_t begin = thread * each, end = begin + each < counts ? begin + each : counts;
  int32_t mine = 0;
  for (int64_t i = begin; i < end; ++i) mine += a.places[i];
  sum[thread] = mine;
  for (int distance = 1; distance < kThreads; distance *= 2) {  // to each its own and all before
    barrier();
    const int32_t before = thread >= distance ? sum[thread - distance] : 0;
    barrier();
    sum[thread] += before;
  }
  int32_t place = sum[thread] - mine;
  for (int64_t i = begin; i < end; ++i) {
    const int32_t count = a.places[i];
    a.places[i] = place;
    place += count;
  }
}

LOOM_DEVICE void place_rows(const TokenOrderArguments& a) {
  int32_t* const digit = reinterpret_cast<int32_t*>(shared_memory());
  const int32_t row = share_digits(a, digit);
  if (row < 0) return;
  const int32_t mine = digit[thread_index().x];
  int32_t place = a.places[int64_t{mine} * grid_size().x + block_index().x];
  for (unsigned i = 0; i < thread_index().x; ++i) place += digit[i] == mine ? 1 : 0;
  a.after[place] = row;
}

}  // namespace loom::cuda
