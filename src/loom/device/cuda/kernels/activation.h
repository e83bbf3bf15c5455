// Activations: y[n] = F(x[n]), dx[n] = F'(x[n]) · dy[n], with the formulas of ops/activations.h.
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

}  // namespace loom::cuda
