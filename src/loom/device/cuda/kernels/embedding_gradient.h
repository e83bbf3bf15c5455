// Gradients of embeddings without atomic operations, so that the bits are always the same.
//
// Rows come in the order of their tokens (token_order.h), where those of a token are a run. A block takes a
// piece of kRunRows places of that order. A run that lies in its piece it adds to dwte at once. Of runs that
// go on beyond a piece it keeps the sums, which the block where the run begins adds up when all are done.
#pragma once

#include "device/cuda/kernels/embedding.h"
#include "device/cuda/kernels/token_order.h"

namespace loom::cuda {

inline constexpr int64_t kRunRows = 32;

/// Adds to dwte[own.count, C] of tokens of `own`. sums[pieces, 2, C]: of the run that comes from the piece
/// before, and of the run that goes on in the next.
template <typename T>
struct EmbeddingGradientArguments {
  RowTokens tokens;
  const int32_t* order;
  const T* dy;
  float *dwte, *sums;
  int64_t rows, width;

  int64_t pieces() const { return ceil_div(rows, kRunRows); }
  LaunchShape shape() const {  // of both kernels
    LaunchShape shape = shape_of_rows<kPack<T>>(pieces(), width, kElementThreads);
    shape.grid[1] = static_cast<unsigned>(ceil_div(width, int64_t{kPack<T>} * shape.threads));
    return shape;
  }
  template <typename Visit>
  void pointers(Visit&& visit) {
    tokens.pointers(visit, rows), visit(order, rows), visit(dy, rows * width);
    visit(dwte, tokens.own.count * width);
    visit(sums, pieces() * 2 * width);
  }
};

/// The key at a place of the order; -1 before and behind it.
template <typename T>
LOOM_DEVICE int32_t key_at(const EmbeddingGradientArguments<T>& a, int64_t place) {
  return place < 0 || place >= a.rows ? -1 : a.tokens.key(a.order[place]);
}
/// body<n>(column) for the columns of the block: of its tile, where a row is longer than a block takes.
template <typename T, typename Body>
LOOM_DEVICE void for_tile(const EmbeddingGradientArguments<T>& a, Body&& body) {
  const bool in_packs = aligned(a.dy, a.dwte, a.sums) && a.width % kPack<T> == 0;
  const int64_t tile = int64_t{thread_count()} * kPack<T>, begin = block_index().y * tile;
  for_row<kPack<T>>(begin + tile < a.width ? tile : a.width - begin, in_packs,
                    [&]<int n>(int64_t column) { body.template operator()<n>(begin + column); });
}

template <typename T>
LOOM_DEVICE void embedding_gradient(const EmbeddingGradientArguments<T>& a) {
  const int64_t piece = block_index().x, begin = piece * kRunRows;
  const int64_t end = begin + kRunRows < a.rows ? begin + kRunRows : a.rows;
  for_tile(a, [&]<int n>(int64_t column) {
    int32_t key = key_at(a, begin);
    bool from_before = key == key_at(a, begin - 1);
    Floats<n> sum{};
    for (int64_t place = begin; place < end && key < a.tokens.own.count; ++place) {
      add_pack(sum, a.dy + int64_t{a.order[place]} * a.width + column);
      const int32_t next = key_at(a, place + 1);
      const bool goes_on = next == key;
      if (goes_on && place + 1 < end) continue;
      if (from_before || goes_on) {
        store_pack(a.sums + (2 * piece + (from_before ? 0 : 1)) * a.width + column, sum);
      } else {
        float* const to = a.dwte + key * a.width + column;
        add_pack(sum, to);
        store_pack(to, sum);
      }
      key = next, from_before = false, sum = {};
    }
  });
}

/// The runs that go on beyond a piece: each by the block where it begins.
template <typename T>
LOOM_DEVICE void embedding_gradient_runs(const EmbeddingGradientArguments<T>& a) {
  const int64_t piece = block_index().x, begin = piece * kRunRows, end = begin + kRunRows;
  const int32_t key = key_at(a, end);  // -1 behind the last place
  const bool goes_on = key >= 0 && key < a.tokens.own.count && key_at(a, end - 1) == key;
  const bool from_before = key_at(a, begin) == key && key_at(a, begin - 1) == key;
  if (!goes_on || from_before) return;
  for_tile(a, [&]<int n>(int64_t column) {
    Floats<n> sum = load_pack<n>(a.sums + (2 * piece + 1) * a.width + column);
    for (int64_t next = piece + 1; key_at(a, next * kRunRows) == key; ++next)
      add_pack(sum, a.sums + 2 * next * a.width + column);
    float* const to = a.dwte + key * a.width + column;
    add_pack(sum, to);
    store_pack(to, sum);
  });
}

/// Adds to dwpe[(first + row) % tokens, C]; a block for each position, which adds up its rows in turn.
template <typename T>
struct PositionGradientArguments {
  const T* dy;
  float* dwpe;
  int64_t first, rows, tokens, width;

  LaunchShape shape() const { return shape_of_rows<kPack<T>>(tokens, width, kElementThreads); }
  template <typename Visit>
  void pointers(Visit&& visit) {
    visit(dy, rows * width), visit(dwpe, tokens * width);
  }
};

template <typename T>
LOOM_DEVICE void position_gradient(const PositionGradientArguments<T>& a) {
  const int64_t place = block_index().x;
  const int64_t first = (place - a.first % a.tokens + a.tokens) % a.tokens;
  const bool in_packs = aligned(a.dy, a.dwpe) && a.width % kPack<T> == 0;
  for_row<kPack<T>>(a.width, in_packs, [&]<int n>(int64_t column) {
    Floats<n> sum = load_pack<n>(a.dwpe + place * a.width + column);
    for (int64_t row = first; row < a.rows; row += a.tokens) add_pack(sum, a.dy + row * a.width + column);
    store_pack(a.dwpe + place * a.width + column, sum);
  });
}

}  // namespace loom::cuda
