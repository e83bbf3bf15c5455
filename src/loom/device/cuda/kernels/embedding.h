// Embeddings of tokens and positions, forward; a block for each row. Backward is in embedding_gradient.h.
#pragma once

#include "device/cuda/kernels/packs.h"
#include "ops/operators.h"

namespace loom::cuda {

/// Rows of the table of positions: row (first + i) % tokens for row i of a batch, or those that the host says
/// where padding inside sequences has none. They are -1 for padding, so that the kernels' tables begin a row
/// earlier.
struct Positions {
  const int32_t* of_row = nullptr;
  int64_t first = 0, tokens = 1;

  int64_t rows_before() const { return of_row == nullptr ? 0 : 1; }
  /// Rows of the table from where the kernels' begins.
  int64_t table_rows() const { return tokens + rows_before(); }
  LOOM_DEVICE int64_t operator()(int64_t row) const {
    return of_row == nullptr ? (first + row) % tokens : int64_t{of_row[row]} + 1;
  }
};

/// y[M, C] = wte[token - own.first, C] + wpe[position, C] + type[C]; where the token is not of `own`, 0
/// stands in for its embedding. wpe and type may be null.
template <typename T>
struct EmbeddingArguments {
  const int32_t* token;
  const T *wte, *wpe, *type;
  T* y;
  int64_t rows, width;
  ops::VocabularyRange own;
  Positions positions;

  LaunchShape shape() const { return shape_of_rows<kPack<T>>(rows, width, kElementThreads); }
  template <typename Visit>
  void pointers(Visit&& visit) {
    visit(token, rows), visit(wte, own.count * width),
        visit(wpe, wpe == nullptr ? 0 : positions.table_rows() * width);
    visit(type, type == nullptr ? 0 : width), visit(y, rows * width);
    visit(positions.of_row, rows * positions.rows_before());
  }
};

template <typename T>
LOOM_DEVICE void embedding(const EmbeddingArguments<T>& a) {
  const int64_t row = block_index().x, of_own = a.token[row] - a.own.first;
  const int64_t position = a.positions(row);
  const bool in_packs = aligned(a.wte, a.wpe, a.type, a.y) && a.width % kPack<T> == 0;
  for_row<kPack<T>>(a.width, in_packs, [&]<int n>(int64_t column) {
    Floats<n> sum{};
    if (of_own >= 0 && of_own < a.own.count) sum = load_pack<n>(a.wte + of_own * a.width + column);
    if (a.wpe != nullptr) add_pack(sum, a.wpe + position * a.width + column);
    if (a.type != nullptr) add_pack(sum, a.type + column);
    store_pack(a.y + row * a.width + column, sum);
  });
}

/// y[M, C] = x + wpe[position, C]. y may be x. Rows of both are `stride` elements apart.
template <typename T>
struct PositionArguments {
  const T *x, *wpe;
  T* y;
  int64_t rows, width, stride;
  Positions positions;

  LaunchShape shape() const { return shape_of_rows<kPack<T>>(rows, width, kElementThreads); }
  template <typename Visit>
  void pointers(Visit&& visit) {
    visit(x, rows * stride), visit(wpe, positions.table_rows() * width), visit(y, rows * stride);
    visit(positions.of_row, rows * positions.rows_before());
  }
};

template <typename T>
LOOM_DEVICE void position(const PositionArguments<T>& a) {
  const int64_t row = block_index().x, place = a.positions(row);
  const bool in_packs = aligned(a.x, a.wpe, a.y) && (a.width | a.stride) % kPack<T> == 0;
  for_row<kPack<T>>(a.width, in_packs, [&]<int n>(int64_t column) {
    Floats<n> sum = load_pack<n>(a.x + row * a.stride + column);
    add_pack(sum, a.wpe + place * a.width + column);
    store_pack(a.y + row * a.stride + column, sum);
  });
}

}  // namespace loom::cuda
