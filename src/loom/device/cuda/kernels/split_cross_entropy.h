// Cross-entropy of logits whose columns are divided over ranks. Each rank says three numbers of its columns
// of a row; these are gathered, and each finishes its own columns from all ranks' numbers. Unlike the CPU's,
// the first half leaves the logits as they are: rounded to 16 bits, exponentials would be rounded twice.
#pragma once

#include "device/cuda/kernels/cross_entropy.h"

namespace loom::cuda {

/// numbers[M, 3] of logits[M, own.count]: maximum; Σ exp(logit - maximum); the target's logit, 0 if it is
/// another's.
template <typename T>
struct SplitCrossEntropyBeginArguments {
  const T* logits;
  const int32_t* target;
  float* numbers;
  int64_t rows, stride;
  ops::VocabularyRange own;

  LaunchShape shape() const {
    LaunchShape shape = shape_of_rows<kPack<T>>(rows, own.count, kLossThreads);
    shape.shared_bytes = 2 * kLanes * sizeof(float);
    return shape;
  }
  template <typename Visit>
  void pointers(Visit&& visit) {
    visit(logits, rows * stride), visit(target, rows), visit(numbers, rows * 3);
  }
};

/// The column of `own` that a token has, or -1.
LOOM_DEVICE int64_t column_of(const ops::VocabularyRange& own, int32_t token) {
  return token >= own.first && token < own.first + own.count ? token - own.first : -1;
}

template <typename T>
LOOM_DEVICE void split_cross_entropy_begin(const SplitCrossEntropyBeginArguments<T>& a) {
  const int64_t row = block_index().x;
  const T* const logits = a.logits + row * a.stride;
  const SoftmaxNumbers numbers =
      numbers_of_row(logits, a.own.count, reinterpret_cast<float*>(shared_memory()));
  if (thread_index().x != 0) return;
  const int64_t target = column_of(a.own, a.target[row]);
  a.numbers[row * 3] = numbers.largest;
  a.numbers[row * 3 + 1] = numbers.sum;
  a.numbers[row * 3 + 2] = target < 0 ? 0.0f : value_of(logits[target]);
}

/// From numbers[ranks, M, 3]: loss[M], the same on all ranks, and logits[M, own.count] becomes
/// dlogits · scale.
template <typename T>
struct SplitCrossEntropyFinishArguments {
  T* logits;
  const int32_t* target;
  const float* numbers;
  double* loss;
  int64_t rows, stride;
  ops::VocabularyRange own;
  int32_t ranks;
  float scale;

  LaunchShape shape() const { return shape_of_rows<kPack<T>>(rows, own.count, kLossThreads); }
  template <typename Visit>
  void pointers(Visit&& visit) {
    visit(logits, rows * stride), visit(target, rows), visit(numbers, ranks * rows * 3), visit(loss, rows);
  }
};

template <typename T>
LOOM_DEVICE void split_cross_entropy_finish(const SplitCrossEntropyFinishArguments<T>& a) {
  const int64_t row = block_index().x;
  T* const logits = a.logits + row * a.stride;
  if (a.target[row] < 0) {
    write_gradients(logits, 0, a.stride, 0.0f, 0.0f, -1, 0.0f);
    if (thread_index().x == 0) a.loss[row] = 0;
    return;
  }
  SoftmaxNumbers all;
  float wanted = 0;
  for (int rank = 0; rank < a.ranks; ++rank) {
    const float* const of_rank = a.numbers + (rank * a.rows + row) * 3;
    all = both(all, {of_rank[0], of_rank[1]});
    wanted += of_rank[2];
  }
  write_gradients(logits, a.own.count, a.stride, all.largest, a.scale / all.sum,
                  column_of(a.own, a.target[row]), a.scale);
  if (thread_index().x == 0) a.loss[row] = loss_of(all, wanted);
}

}  // namespace loom::cuda
