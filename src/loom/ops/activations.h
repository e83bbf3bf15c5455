// The activations as functions of one number: GELU by tanh, GELU exactly, ReLU, SiLU; and the tanh of
// poolers. The CPU's operators and the GPU's kernels are made of them.
//
// Included only by files that are compiled once for each instruction set, hence the namespace of its own.
#pragma once

#include "base/on_device.h"
#include "ops/math.h"

namespace loom::ops::LOOM_ISA {

/// x · sigmoid(2u) with u = √(2/π) · (x + 0.044715 x³), which equals x/2 · (1 + tanh u) and cancels nothing.
template <typename A>
struct GeluTanh {
  static constexpr A kTwice = A(1.5957691216057308);  // 2 √(2/π)
  static constexpr A kCube = A(0.044715);
  LOOM_ON_DEVICE static A value(A x) { return x * sigmoid_of(kTwice * (x + kCube * x * x * x)); }
  /// Beyond ±13 it is 0 or 1, and x² would outgrow what is left of the sigmoid.
  LOOM_ON_DEVICE static A slope(A x) {
    x = x < A(-13) ? A(-13) : x;
    x = x > A(13) ? A(13) : x;
    const A s = sigmoid_of(kTwice * (x + kCube * x * x * x));
    return s + x * s * (A(1) - s) * kTwice * (A(1) + A(3) * kCube * x * x);
  }
};

/// x · Φ(x).
template <typename A>
struct GeluErf {
  LOOM_ON_DEVICE static A value(A x) { return x * normal_cdf(x); }
  LOOM_ON_DEVICE static A slope(A x) {
    return normal_cdf(x) + x * A(0.39894228040143268) * exp_of(A(-0.5) * x * x);
  }
};

template <typename A>
struct Relu {
  LOOM_ON_DEVICE static A value(A x) { return x < A(0) ? A(0) : x; }  // this way round, a NaN stays one
  LOOM_ON_DEVICE static A slope(A x) { return x > A(0) ? A(1) : A(0); }
};

/// x · sigmoid(x).
template <typename A>
struct Silu {
  LOOM_ON_DEVICE static A value(A x) { return x * sigmoid_of(x); }
  LOOM_ON_DEVICE static A slope(A x) {
    const A s = sigmoid_of(x);
    return s + x * s * (A(1) - s);
  }
};

template <typename A>
struct Tanh {
  LOOM_ON_DEVICE static A value(A x) { return A(2) * sigmoid_of(A(2) * x) - A(1); }
  LOOM_ON_DEVICE static A slope(A x) { return A(1) - value(x) * value(x); }
};

}  // namespace loom::ops::LOOM_ISA
