// Activations: y[n] = F(x[n]), dx[n] = F'(x[n]) · dy[n], with the formulas of ops/activations.h. Gated ones,
// a block for each row: y[M, F] = F(x[M, :F]) · x[M, F:].
#pragma once

#include "device/cuda/kernels/formulas.h"
#include "device/cuda/kernels/packs.h"

namespace loom::cuda {

template <typename T>
struct ActivationForwardArguments {
  const T* x;
  T* y;
  int64_t count;

  LaunchShape shape() const { return shape_of_elements<kPack<T>>(count); }
  template <typename Visit>
  void pointers(Visit&& visit) {
    visit(x, count), visit(y, count);
  }
};

/// dx may be dy.
template <typename T>
struct ActivationBackwardArguments {
  const T *x, *dy;
  T* dx;
  int64_t count;

  LaunchShape shape() const { return shape_of_elements<kPack<T>>(count); }
  template <typename Visit>
  void pointers(Visit&& visit) {
    visit(x, count), visit(dy, count), visit(dx, count);
  }
};

template <typename F, typename T>
LOOM_DEVICE void activation_forward(const ActivationForwardArguments<T>& a) {
  for_elements<kPack<T>>(a.count, aligned(a.x, a.y), [&]<int n>(int64_t i) {
    Floats<n> x = load_pack<n>(a.x + i);
#pragma unroll
    for (float& each : x.at) each = F::value(each);
    store_pack(a.y + i, x);
  });
}

template <typename F, typename T>
LOOM_DEVICE void activation_backward(const ActivationBackwardArguments<T>& a) {
  for_elements<kPack<T>>(a.count, aligned(a.x, a.dy, a.dx), [&]<int n>(int64_t i) {
    const Floats<n> x = load_pack<n>(a.x + i);
    Floats<n> d = load_pack<n>(a.dy + i);
#pragma unroll
    for (int j = 0; j < n; ++j) d.at[j] *= F::slope(x.at[j]);
    store_pack(a.dx + i, d);
  });
}

template <typename T>
struct GatedForwardArguments {
  const T* x;
  T* y;
  int64_t rows, width;  // of y

  LaunchShape shape() const { return shape_of_rows<kPack<T>>(rows, width, kElementThreads); }
  template <typename Visit>
  void pointers(Visit&& visit) {
    visit(x, 2 * rows * width), visit(y, rows * width);
  }
};

template <typename T>
struct GatedBackwardArguments {
  const T *x, *dy;
  T* dx;
  int64_t rows, width;  // of dy

  LaunchShape shape() const { return shape_of_rows<kPack<T>>(rows, width, kElementThreads); }
  template <typename Visit>
  void pointers(Visit&& visit) {
    visit(x, 2 * rows * width), visit(dy, rows * width), visit(dx, 2 * rows * width);
  }
};

template <typename F, typename T>
LOOM_DEVICE void gated_forward(const GatedForwardArguments<T>& a) {
  const int64_t row = block_index().x;
  const T *const gate = a.x + row * 2 * a.width, *const up = gate + a.width;
  T* const to = a.y + row * a.width;
  for_row<kPack<T>>(a.width, aligned(gate, up, to), [&]<int n>(int64_t column) {
    const Floats<n> g = load_pack<n>(gate + column);
    Floats<n> y = load_pack<n>(up + column);
#pragma unroll
    for (int i = 0; i < n; ++i) y.at[i] *= F::value(g.at[i]);
    store_pack(to + column, y);
  });
}

template <typename F, typename T>
LOOM_DEVICE void gated_backward(const GatedBackwardArguments<T>& a) {
  const int64_t row = block_index().x;
  const T *const gate = a.x + row * 2 * a.width, *const up = gate + a.width, *const dy = a.dy + row * a.width;
  T *const dgate = a.dx + row * 2 * a.width, *const dup = dgate + a.width;
  for_row<kPack<T>>(a.width, aligned(gate, up, dy, dgate, dup), [&]<int n>(int64_t column) {
    const Floats<n> d = load_pack<n>(dy + column);
    Floats<n> g = load_pack<n>(gate + column), u = load_pack<n>(up + column);
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const float x = g.at[i];
      g.at[i] = F::slope(x) * u.at[i] * d.at[i];
      u.at[i] = F::value(x) * d.at[i];
    }
    store_pack(dgate + column, g);
    store_pack(dup + column, u);
  });
}

}  // namespace loom::cuda
