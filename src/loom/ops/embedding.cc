// Token and position embedding.
#include "ops/cpu.h"

namespace loom::ops::LOOM_ISA {
namespace {

template <typename T>
void forward(Workers& workers, const int32_t* token, const T* wte, const T* wpe, T* y, int64_t rows,
             int64_t tokens, int64_t width) {
  for_ranges(workers, rows, rows_per_piece(width), [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const T* from = wte + token[row] * width;
      T* to = y + row * width;
      if (wpe == nullptr) {
        for (int64_t c = 0; c < width; ++c) to[c] = from[c];
        continue;
      }
      const T* position = wpe + (row % tokens) * width;
      for (int64_t c = 0; c < width; ++c) store(to[c], load(from[c]) + load(position[c]));
    }
  });
}

/// Tokens repeat, so each worker takes columns: every element is added up by one of them, in order of rows.
template <typename T>
void backward(Workers& workers, const int32_t* token, const T* dy, acc_t<T>* dwte, acc_t<T>* dwpe,
              int64_t rows, int64_t tokens, int64_t width) {
  constexpr int64_t kColumns = 128;
  for_ranges(workers, width, kColumns, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = 0; row < rows; ++row) {
      const T* from = dy + row * width;
      acc_t<T>* to = dwte + token[row] * width;
      for (int64_t c = begin; c < end; ++c) to[c] += load(from[c]);
      if (dwpe == nullptr) continue;
      acc_t<T>* position = dwpe + (row % tokens) * width;
      for (int64_t c = begin; c < end; ++c) position[c] += load(from[c]);
    }
  });
}

}  // namespace

template <typename T>
void add_embedding(Operators<T>& table) {
  table.embedding_forward = forward<T>;
  table.embedding_backward = backward<T>;
}
LOOM_FOR_EVERY_TYPE(add_embedding)

}  // namespace loom::ops::LOOM_ISA
