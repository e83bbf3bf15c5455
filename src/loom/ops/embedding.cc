// Embeddings of tokens, of positions, and of the type that all tokens share.
#include "ops/cpu.h"

namespace loom::ops::LOOM_ISA {
namespace {

inline int64_t place_of(const int32_t* position, int64_t row, int64_t tokens) {
  return position != nullptr ? position[row] : row % tokens;
}

template <typename T>
void forward(Workers& workers, const int32_t* token, const int32_t* position, const T* wte, const T* wpe,
             const T* type, T* y, int64_t rows, int64_t tokens, int64_t, int64_t width) {
  for_ranges(workers, rows, rows_per_piece(width), [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const T* from = wte + token[row] * width;
      const T* of_place = wpe == nullptr ? nullptr : wpe + place_of(position, row, tokens) * width;
      T* to = y + row * width;
      for (int64_t c = 0; c < width; ++c) {
        acc_t<T> sum = load(from[c]);
        if (of_place != nullptr) sum += load(of_place[c]);
        if (type != nullptr) sum += load(type[c]);
        store(to[c], sum);
      }
    }
  });
}

/// Tokens repeat, so each worker takes columns: every element is added up by one of them, in order of rows.
template <typename T>
void backward(Workers& workers, const int32_t* token, const int32_t* position, const T* dy, acc_t<T>* dwte,
              acc_t<T>* dwpe, acc_t<T>* dtype, int64_t rows, int64_t tokens, int64_t, int64_t width) {
  constexpr int64_t kColumns = 128;
  for_ranges(workers, width, kColumns, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = 0; row < rows; ++row) {
      const T* from = dy + row * width;
      const auto add_to = [&](acc_t<T>* to) {
        for (int64_t c = begin; c < end; ++c) to[c] += load(from[c]);
      };
      const int64_t place = place_of(position, row, tokens);
      if (place >= 0) add_to(dwte + token[row] * width);
      if (place >= 0 && dwpe != nullptr) add_to(dwpe + place * width);
      if (dtype != nullptr) add_to(dtype);
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
