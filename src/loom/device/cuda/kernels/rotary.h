// Rotary position embedding of q and k in place; a rotation's gradient is the rotation back.
#pragma once

#include "device/cuda/kernels/formulas.h"
#include "device/cuda/kernels/packs.h"

namespace loom::cuda {

/// turns[tokens, pairs, 2]: cosine and sine of each token's angle for each pair. Made once, in fp64.
struct RotaryTurnsArguments {
  float* turns;
  int64_t tokens, dims, first_position;
  float base;
  ops::RotaryScaling scaling;

  LaunchShape shape() const { return shape_of_elements<1>(tokens * (dims / 2)); }
  template <typename Visit>
  void pointers(Visit&& visit) {
    visit(turns, tokens * dims);
  }
};

LOOM_DEVICE void rotary_turns(const RotaryTurnsArguments& a) {
  const int64_t pairs = a.dims / 2;
  for_elements<1>(a.tokens * pairs, true, [&]<int>(int64_t i) {
    const double angle =
        formulas::rotary_angle(a.base, a.scaling, a.first_position + i / pairs, i % pairs, a.dims);
    a.turns[2 * i] = static_cast<float>(std::cos(angle));
    a.turns[2 * i + 1] = static_cast<float>(std::sin(angle));
  });
}

/// Turns the first `dims` elements of the first `heads` heads, those of q and k, of the rows of qkv[B, S,
/// stride], M = B·S rows; a block for each row, a pair for each thread.
template <typename T>
struct RotaryArguments {
  T* qkv;
  const float* turns;
  int64_t rows, tokens, stride, heads, head_size, dims;
  bool interleaved;  // pairs are elements 2p and 2p + 1; else p and p + dims/2
  bool back;

  LaunchShape shape() const { return shape_of_rows<1>(rows, heads * (dims / 2), kElementThreads); }
  template <typename Visit>
  void pointers(Visit&& visit) {
    visit(qkv, rows * stride), visit(turns, tokens * dims);
  }
};

template <typename T>
LOOM_DEVICE void rotary(const RotaryArguments<T>& a) {
  const int64_t row = block_index().x;
  const int pairs = static_cast<int>(a.dims / 2);
  const float* const turns = a.turns + row % a.tokens * a.dims;
  T* const of_row = a.qkv + row * a.stride;
  const int step = a.interleaved ? 2 : 1, partner = a.interleaved ? 1 : pairs;
  for_row<1>(a.heads * pairs, true, [&]<int>(int64_t i) {
    const int head = static_cast<int>(i) / pairs, pair = static_cast<int>(i) % pairs;
    T* const at = of_row + head * a.head_size + pair * step;
    const float cosine = turns[2 * pair], sine = a.back ? -turns[2 * pair + 1] : turns[2 * pair + 1];
    const float x = value_of(at[0]), y = value_of(at[partner]);
    at[0] = rounded<T>(x * cosine - y * sine);
    at[partner] = rounded<T>(y * cosine + x * sine);
  });
}

}  // namespace loom::cuda
