// Softmax and cross-entropy with its gradient, in the place of the logits, which stay in T: they are the
// largest array of a step. A block for each row reads it once for the maximum and the sum, online, and once
// more, from the cache as a rule, for the gradient that it writes.
#pragma once

#include "device/cuda/kernels/packs.h"
#include "ops/operators.h"

namespace loom::cuda {

inline constexpr unsigned kLossThreads = 512;

/// What is known of some logits.
struct SoftmaxNumbers {
  float largest = -3.4028235e38f;  // of none; finite, so that differences are no NaN
  float sum = 0;                   // Σ exp(logit - largest)
};

LOOM_DEVICE float exp_difference(float x, float largest) { return exp2_of((x - largest) * 1.44269504f); }

LOOM_DEVICE SoftmaxNumbers both(const SoftmaxNumbers& a, const SoftmaxNumbers& b) {
  const float largest = larger(a.largest, b.largest);
  return {largest, a.sum * exp_difference(a.largest, largest) + b.sum * exp_difference(b.largest, largest)};
}

/// Of logits[n], in every thread of the block. `scratch` is shared memory of 2 · kLanes floats.
template <typename T>
LOOM_DEVICE SoftmaxNumbers numbers_of_row(const T* logits, int64_t count, float* scratch) {
  SoftmaxNumbers mine;
  for_row<kPack<T>>(count, aligned(logits), [&]<int n>(int64_t column) {
    const Floats<n> x = load_pack<n>(logits + column);
    float largest = mine.largest;
#pragma unroll
    for (const float each : x.at) largest = larger(each, largest);
    mine.sum *= exp_difference(mine.largest, largest);
    mine.largest = largest;
#pragma unroll
    for (const float each : x.at) mine.sum += exp_difference(each, largest);
  });
  for (int mask = 16; mask > 0; mask /= 2) {
    const SoftmaxNumbers other{shuffle_xor(mine.largest, mask), shuffle_xor(mine.sum, mask)};
    mine = both(mine, other);
  }
  if (lane_index() == 0) scratch[2 * warp_index()] = mine.largest, scratch[2 * warp_index() + 1] = mine.sum;
  barrier();
  SoftmaxNumbers all{scratch[0], scratch[1]};
  for (unsigned warp = 1; warp < thread_count() / kLanes; ++warp)
    all = both(all, {scratch[2 * warp], scratch[2 * warp + 1]});
  return all;
}

/// logits[count] of a row become factor · exp(logit - largest), less `scale` in column `target`. Columns from
/// `count` to `stride`, which the row is padded by, become 0.
template <typename T>
LOOM_DEVICE void write_gradients(T* logits, int64_t count, int64_t stride, float largest, float factor,
                                 int64_t target, float scale) {
  for_row<kPack<T>>(stride, aligned(logits), [&]<int n>(int64_t column) {
    Floats<n> x = load_pack<n>(logits + column);
#pragma unroll
    for (int i = 0; i < n; ++i) {
      x.at[i] = column + i < count ? factor * exp_difference(x.at[i], largest) : 0.0f;
      if (column + i == target) x.at[i] -= scale;
    }
    store_pack(logits + column, x);
  });
}

LOOM_DEVICE double loss_of(const SoftmaxNumbers& numbers, float wanted) {
  return std::log(static_cast<double>(numbers.sum)) + static_cast<double>(numbers.largest) -
         static_cast<double>(wanted);
}

/// loss[m] = log Σ exp(logits[m]) - logits[m, target[m]], 0 where the target is negative; logits[M, V], rows
/// `stride` elements apart, become dlogits · scale.
template <typename T>
struct CrossEntropyArguments {
  T* logits;
  const int32_t* target;
  double* loss;
  int64_t rows, vocabulary, stride;
  float scale;

  LaunchShape shape() const {
    LaunchShape shape = shape_of_rows<kPack<T>>(rows, vocabulary, kLossThreads);
    shape.shared_bytes = 2 * kLanes * sizeof(float);
    return shape;
  }
  template <typename Visit>
  void pointers(Visit&& visit) {
    visit(logits, rows * stride), visit(target, rows), visit(loss, rows);
  }
};

template <typename T>
LOOM_DEVICE void cross_entropy(const CrossEntropyArguments<T>& a) {
  const int64_t row = block_index().x;
  T* const logits = a.logits + row * a.stride;
  const int32_t target = a.target[row];
  if (target < 0) {
    write_gradients(logits, 0, a.stride, 0.0f, 0.0f, -1, 0.0f);
    if (thread_index().x == 0) a.loss[row] = 0;
    return;
  }
  const float wanted = value_of(logits[target]);
  const SoftmaxNumbers numbers =
      numbers_of_row(logits, a.vocabulary, reinterpret_cast<float*>(shared_memory()));
  write_gradients(logits, a.vocabulary, a.stride, numbers.largest, a.scale / numbers.sum, target, a.scale);
  if (thread_index().x == 0) a.loss[row] = loss_of(numbers, wanted);
}

}  // namespace loom::cuda
