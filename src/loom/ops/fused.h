// Fused operators: each does what two neighbouring steps of a recipe do (model/fusion.h), without reading
// again what the first of them has just written. A GPU's table has them (device/cuda/operators.h). The CPU's
// has none: what it has just written is in its caches.
//
// Conventions are those of operators.h. All arrays of both steps are written.
//
// Thread safety: as Workers; the table itself is constant.
#pragma once

#include "ops/operators.h"

namespace loom::ops {

template <typename T>
struct FusedOperators {
  using A = acc_t<T>;
  template <typename Signature>
  using Operator = device::Operator<Signature>;

  /// sum[M, C] = residual + dropout(x + added[C]), y[M, C] = (sum - mean) · rstd · weight + bias. `added` may
  /// be null; sum may be residual or x; bias and mean as norm_forward() has them.
  Operator<void(const Dropout&, const T* residual, const T* x, const T* added, T* sum, const T* weight,
                const T* bias, T* y, A* mean, A* rstd, int64_t rows, int64_t width, float epsilon)>
      residual_norm;
  /// norm_backward(), and masked[M, C] = dropout(dx).
  Operator<void(const Dropout&, const T* x, const T* weight, const A* mean, const A* rstd, const T* dy, T* dx,
                bool add_to_dx, A* dweight, A* dbias, T* masked, int64_t rows, int64_t width)>
      norm_gradient_dropout;

  /// before[M, N] = x[M, K] · w[K, N] + bias[N], y[M, N] = GELU(before), by tanh. bias may be null.
  Operator<void(const T* x, const T* w, const T* bias, T* before, T* y, int64_t rows, int64_t in,
                int64_t out)>
      linear_gelu;
  /// dx[M, K] = (dy[M, N] · wᵀ) · GELU'(before[M, K]).
  Operator<void(const T* dy, const T* w, const T* before, T* dx, int64_t rows, int64_t in, int64_t out)>
      linear_input_gelu_gradient;
};

}  // namespace loom::ops
