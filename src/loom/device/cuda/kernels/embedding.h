// Embeddings of tokens and positions, forward; a block for each row. Backward is in embedding_gradient.h.
#pragma once

#include "device/cuda/kernels/packs.h"
#include "ops/operators.h"

namespace loom::cuda {

/// y[M, C] = wte[token - own.first, C] + wpe[(first + row) % tokens, C] + type[C]; where the token is not of
/// `own`, 0 stands in for its embedding. wpe and type may be null.
template <typename T>
struct EmbeddingArguments {
  const int32_t* token;
  const T *wte, *wpe, *type;
  T* y;
  int64_t rows, tokens, width;
  ops::VocabularyRange own;
  int64_t first = 0;

  LaunchShape shape() const { return shape_of_rows<kPack<T>>(rows, width, kElementThreads); }
  template <typename Visit>
  void pointers(Visit&& visit) {
    visit(token, rows), visit(wte, own.count * width), visit(wpe, wpe == nullptr ? 0 : tokens * width);
    visit(type, type == nullptr ? 0 : width), visit(y, rows * width);
  }
};

template <typename T>
LOOM_DEVICE void embedding(const EmbeddingArguments<T>& a) {
  const int64_t row = block_index().x, of_own = a.token[row] - a.own.first;
  const int64_t position = (a.first + row) % a.tokens;
  const bool in_packs = aligned(a.wte, a.wpe, a.type, a.y) && a.width % kPack<T> == 0;
  for_row<kPack<T>>(a.width, in_packs, [&]<int n>(int64_t column) {
    Floats<n> sum{};
    if (of_own >= 0 && of_own < a.own.count) sum = load_pack<n>(a.wte + of_own * a.width + column);
    if (a.wpe != nullptr) add_pack(sum, a.wpe + position * a.width + column);
    if (a.type != nullptr) add_pack(sum, a.type + column);
    store_pack(a.y + row * a.width + column, sum);
  });
}

/// y[M, C] = x + wpe[(first + row) % tokens, C]. y may be x.
template <typename T>
struct PositionArguments {
  const T *x, *wpe;
  T* y;
  int64_t first, rows, tokens, width;

  LaunchShape shape() const { return shape_of_rows<kPack<T>>(rows, width, kElementThreads); }
  template <typename Visit>
  void pointers(Visit&& visit) {
    visit(x, rows * width), visit(wpe, tokens * width), visit(y, rows * width);
  }
};

template <typename T>
LOOM_DEVICE void position(const PositionArguments<T>& a) {
  const int64_t row = block_index().x, place = (a.first + row) % a.tokens;
  const bool in_packs = aligned(a.x, a.wpe, a.y) && a.width % kPack<T> == 0;
  for_row<kPack<T>>(a.width, in_packs, [&]<int n>(int64_t column) {
    Floats<n> sum = load_pack<n>(a.x + row * a.width + column);
    add_pack(sum, a.wpe + place * a.width + column);
    store_pack(a.y + row * a.width + column, sum);
  });
}

}  // namespace loom::cuda
