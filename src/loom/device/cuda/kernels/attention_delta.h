// What attention's backward pass subtracts from the gradients of the probabilities (Dao et al., 2022):
// delta[B, heads, S] = Σ over d of dout · out, from arrays [B, S, heads · head_size].
#pragma once

#include "device/cuda/kernels/primitives.h"

namespace loom::cuda {

struct AttentionDeltaArguments {
  const std::byte *out, *dout;  // [B, S, heads · head_size]
  float* delta;                 // [B, heads, S]
  uint32_t batch, tokens, heads, head_size;
  uint32_t element_bytes;

  template <typename Visit>
  void pointers(Visit&& visit) {
    const int64_t rows = int64_t{batch} * tokens * heads;
    visit(out, rows * head_size * element_bytes);
    visit(dout, rows * head_size * element_bytes);
    visit(delta, rows);
  }
};

inline constexpr unsigned kDeltaThreads = 128;

/// A warp for each token and head.
inline LaunchShape launch_of(const AttentionDeltaArguments& a) {
  const unsigned rows = a.batch * a.tokens * a.heads, warps = kDeltaThreads / kLanes;
  return {{(rows + warps - 1) / warps, 1, 1}, kDeltaThreads, 0};
}

template <typename T>
LOOM_DEVICE void attention_delta(const AttentionDeltaArguments& a) {
  const uint64_t row = uint64_t{block_index().x} * (kDeltaThreads / kLanes) + warp_index();
  if (row >= uint64_t{a.batch} * a.tokens * a.heads) return;
  const T *out = reinterpret_cast<const T*>(a.out) + row * a.head_size,
          *dout = reinterpret_cast<const T*>(a.dout) + row * a.head_size;
  float sum = 0;
  for (uint32_t d = lane_index(); d < a.head_size; d += kLanes) sum += value_of(out[d]) * value_of(dout[d]);
  sum = warp_sum(sum);
  const uint64_t token = row / a.heads, head = row % a.heads;  // token: of all sequences
  if (lane_index() == 0) a.delta[(token / a.tokens * a.heads + head) * a.tokens + token % a.tokens] = sum;
}

}  // namespace loom::cuda
