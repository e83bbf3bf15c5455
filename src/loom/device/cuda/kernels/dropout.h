// Dropout by counter, alone and with the sum that follows it.
#pragma once

#include "device/cuda/kernels/dropout_mask.h"

namespace loom::cuda {

/// y[n] = x[n] · mask / (1 - p). y may be x.
template <typename T>
struct DropoutArguments {
  const T* x;
  T* y;
  int64_t count;
  DropoutMask mask;

  LaunchShape shape() const { return shape_of_elements<kPack<T>>(count); }
  template <typename Visit>
  void pointers(Visit&& visit) {
    visit(x, count), visit(y, count);
  }
};

template <typename T>
LOOM_DEVICE void dropout(const DropoutArguments<T>& a) {
  for_elements<kPack<T>>(a.count, aligned(a.x, a.y), [&]<int n>(int64_t i) {
    Floats<n> x = load_pack<n>(a.x + i);
    a.mask.apply(i, x);
    store_pack(a.y + i, x);
  });
}

/// y[M, C] = residual + dropout(x + bias[C]). bias may be null, y may be residual or x.
template <typename T>
struct AddDropoutArguments {
  const T *residual, *x, *bias;
  T* y;
  int64_t rows, width;
  DropoutMask mask;

  LaunchShape shape() const { return shape_of_rows<kPack<T>>(rows, width, kElementThreads); }
  template <typename Visit>
  void pointers(Visit&& visit) {
    visit(residual, rows * width), visit(x, rows * width), visit(bias, bias == nullptr ? 0 : width);
    visit(y, rows * width);
  }
};

/// One pack of it, beginning at element `i`, which stands in column `column`; not yet rounded.
template <int n, typename T>
LOOM_DEVICE Floats<n> residual_sum(const T* residual, const T* x, const T* bias, const DropoutMask& mask,
                                   int64_t i, int64_t column) {
  Floats<n> sum = load_pack<n>(x + i);
  if (bias != nullptr) add_pack(sum, bias + column);
  mask.apply(i, sum);
  add_pack(sum, residual + i);
  return sum;
}

template <typename T>
LOOM_DEVICE void add_dropout(const AddDropoutArguments<T>& a) {
  const int64_t row = int64_t{block_index().x} * a.width;
  const bool in_packs = aligned(a.residual + row, a.x + row, a.bias, a.y + row);
  for_row<kPack<T>>(a.width, in_packs, [&]<int n>(int64_t column) {
    const int64_t i = row + column;
    store_pack(a.y + i, residual_sum<n>(a.residual, a.x, a.bias, a.mask, i, column));
  });
}

}  // namespace loom::cuda
