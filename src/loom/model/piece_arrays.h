// PieceArrays: what a piece of a divided unit works on (split_compute.h).
//
// Thread safety: a value.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/operators.h"

namespace loom::model {

/// The arrays of a piece; null where it has none. `own` marks those with this rank's rows only, where rows
/// are divided.
template <typename T>
struct PieceArrays {
  using A = acc_t<T>;
  const T *parameters = nullptr, *tied_parameters = nullptr;
  A *gradient = nullptr, *tied_gradient = nullptr;
  bool add_gradient = false;       // of the embedding: to a tied head's, or earlier microbatches'
  const T* x = nullptr;            // own [M, C]
  T* y = nullptr;                  // own [M, C]
  T* d = nullptr;                  // own [M, C]
  std::byte* saved = nullptr;      // of a block, or of a head from its first piece to its last
  T* normed = nullptr;             // [M, C]; own for pieces on rows
  T* incoming = nullptr;           // [M, C]; own for pieces on rows
  T* sum = nullptr;                // [M, C]; own for pieces on rows
  A* logits = nullptr;             // [head_rows(), V / T]
  A* numbers = nullptr;            // [head_rows(), 3] of this rank
  const A* all_numbers = nullptr;  // [T, head_rows(), 3]
  const int32_t *token = nullptr, *target = nullptr;
  double* loss = nullptr;  // [M]
  int64_t only_row = -1;   // of M, where only its logits are asked for: SplitMasked
  std::byte* workspace = nullptr;
};

}  // namespace loom::model
