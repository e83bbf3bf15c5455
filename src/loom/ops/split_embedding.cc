// The token embedding of a rank that holds some rows of the matrix. Tokens of other ranks give zeros, so the
// sum over the ranks that share the matrix is the whole embedding (Shoeybi et al., "Megatron-LM: Training
// Multi-Billion Parameter Language Models Using Model Parallelism", 2019). The rank that has the rows of the
// sum adds positions.
#include "ops/cpu.h"

namespace loom::ops::LOOM_ISA {
namespace {

template <typename T>
void forward(Workers& workers, const int32_t* token, const T* wte, VocabularyRange own, T* y, int64_t rows,
             int64_t width) {
  for_ranges(workers, rows, rows_per_piece(width), [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      T* to = y + row * width;
      if (!own.has(token[row])) {
        for (int64_t c = 0; c < width; ++c) to[c] = T{};
        continue;
      }
      const T* from = wte + (token[row] - own.first) * width;
      for (int64_t c = 0; c < width; ++c) to[c] = from[c];
    }
  });
}

/// Tokens repeat, so each worker takes columns, as for the whole matrix.
template <typename T>
void backward(Workers& workers, const int32_t* token, const int32_t* position, const T* dy,
              VocabularyRange own, acc_t<T>* dwte, int64_t rows, int64_t width) {
  constexpr int64_t kColumns = 128;
  for_ranges(workers, width, kColumns, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = 0; row < rows; ++row) {
      if (!own.has(token[row]) || (position != nullptr && position[row] < 0)) continue;
      const T* from = dy + row * width;
      acc_t<T>* to = dwte + (token[row] - own.first) * width;
      for (int64_t c = begin; c < end; ++c) to[c] += load(from[c]);
    }
  });
}

template <typename T>
void add_positions(Workers& workers, const T* x, const T* wpe, const int32_t* position, T* y, int64_t first,
                   int64_t rows, int64_t tokens, int64_t width) {
  for_ranges(workers, rows, rows_per_piece(width), [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const T* from = x + row * width;
      T* to = y + row * width;
      if (wpe == nullptr) {
        for (int64_t c = 0; c < width; ++c) to[c] = from[c];
        continue;
      }
      const T* of_place = wpe + (position != nullptr ? position[row] : (first + row) % tokens) * width;
      for (int64_t c = 0; c < width; ++c) store(to[c], load(from[c]) + load(of_place[c]));
    }
  });
}

template <typename T>
void positions_backward(Workers& workers, const T* dy, const int32_t* position, acc_t<T>* dwpe, int64_t first,
                        int64_t rows, int64_t tokens, int64_t width) {
  constexpr int64_t kColumns = 128;
  for_ranges(workers, width, kColumns, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = 0; row < rows; ++row) {
      const T* from = dy + row * width;
      const int64_t place = position != nullptr ? position[row] : (first + row) % tokens;
      if (place < 0) continue;
      acc_t<T>* to = dwpe + place * width;
      for (int64_t c = begin; c < end; ++c) to[c] += load(from[c]);
    }
  });
}

}  // namespace

template <typename T>
void add_split_embedding(Operators<T>& table) {
  table.split_embedding_forward = forward<T>;
  table.split_embedding_backward = backward<T>;
  table.position_forward = add_positions<T>;
  table.position_backward = positions_backward<T>;
}
LOOM_FOR_EVERY_TYPE(add_split_embedding)

}  // namespace loom::ops::LOOM_ISA
