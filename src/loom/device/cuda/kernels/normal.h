// Normally distributed numbers by counter, with the CPU's bits: compiled without fused multiplications.
#pragma once

#include "device/cuda/kernels/formulas.h"
#include "device/cuda/kernels/packs.h"

namespace loom::cuda {

/// y[i] is number `first + i` of this key.
struct NormalArguments {
  float* y;
  int64_t count;
  ops::RandomKey key;
  uint64_t first;
  float deviation;

  /// A thread has a Philox block, of which the array may have a part only.
  LaunchShape shape() const { return shape_of_elements<4>(count + static_cast<int64_t>(first % 4)); }
  template <typename Visit>
  void pointers(Visit&& visit) {
    visit(y, count);
  }
};

LOOM_DEVICE void normal(const NormalArguments& a) {
  const int64_t skip = static_cast<int64_t>(a.first % 4);
  const int64_t begin = (int64_t{block_index().x} * kElementThreads + thread_index().x) * 4 - skip;
  if (begin >= a.count) return;
  const ops::Philox4 drawn = ops::philox(a.key, (a.first + static_cast<uint64_t>(begin)) / 4);
  const formulas::Point low = formulas::normal_pair(drawn.word[0], drawn.word[1], a.deviation);
  const formulas::Point high = formulas::normal_pair(drawn.word[2], drawn.word[3], a.deviation);
  const Floats<4> numbers{{low.cosine, low.sine, high.cosine, high.sine}};
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (begin + i >= 0 && begin + i < a.count) a.y[begin + i] = numbers.at[i];
}

}  // namespace loom::cuda
