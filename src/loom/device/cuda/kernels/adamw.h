// AdamW, with the arithmetic of ops/adamw_update.h: master and moments in fp32; `parameter` gets the rounded
// master.
#pragma once

#include "device/cuda/kernels/formulas.h"
#include "device/cuda/kernels/packs.h"

namespace loom::cuda {

/// `parameter` may be null, or the same as `master` where T is float.
template <typename T>
struct AdamWArguments {
  const float* gradient;
  float *master, *first, *second;
  T* parameter;
  int64_t count;
  formulas::AdamWUpdate<float> update;

  LaunchShape shape() const { return shape_of_elements<kPack<T>>(count); }
  template <typename Visit>
  void pointers(Visit&& visit) {
    visit(gradient, count), visit(master, count), visit(first, count), visit(second, count);
    visit(parameter, parameter == nullptr ? 0 : count);
  }
};

template <typename T>
LOOM_DEVICE void adamw(const AdamWArguments<T>& a) {
  const bool in_packs = aligned(a.gradient, a.master, a.first, a.second, a.parameter);
  for_elements<kPack<T>>(a.count, in_packs, [&]<int n>(int64_t i) {
    const Floats<n> gradient = load_pack<n>(a.gradient + i);
    Floats<n> master = load_pack<n>(a.master + i), first = load_pack<n>(a.first + i);
    Floats<n> second = load_pack<n>(a.second + i);
#pragma unroll
    for (int j = 0; j < n; ++j) a.update.apply(gradient.at[j], master.at[j], first.at[j], second.at[j]);
    store_pack(a.master + i, master);
    store_pack(a.first + i, first);
    store_pack(a.second + i, second);
    if (a.parameter != nullptr) store_pack(a.parameter + i, master);
  });
}

}  // namespace loom::cuda
