// A column-parallel linear layer, the first of a sublayer's two: y = x · W + b for W[K, N], of which tensor
// rank t has the columns W_t and their part b_t of the bias. N / T stands for its number of columns; where T
// does not divide N the last rank has fewer.
//
//   forward           y_t[M, N/T] = x[M, K] · W_t + b_t        every rank reads all of x
//   backward, input   dx_t[M, K] = dy_t[M, N/T] · W_tᵀ         a summand: dx = Σ_t dx_t
//   backward, weight  dW_t[K, N/T] = xᵀ · dy_t; db_t = Σ dy_t  complete: nobody else has these columns
//
// Exchange: none here. Forward, y_t is what the rank reads next, whose own columns' work it does (heads, or
// the activation), and a row-parallel layer (row_parallel.h) ends the sublayer. Backward, the ranks add up
// dx_t outside. The two and their conjugate exchanges are Megatron's (Shoeybi et al., "Megatron-LM", 2019).
//
// Thread safety: as Workers.
#pragma once

#include "base/workers.h"
#include "model/cut.h"
#include "model/units.h"
#include "ops/operators.h"

namespace loom::model {

/// Of W[K, N] and b[N], where N is made of `blocks` side by side: each rank has its part of every block.
constexpr Cut column_weight_cut(int blocks = 1) { return {1, blocks}; }
constexpr Cut column_bias_cut(int blocks = 1) { return {0, blocks}; }

template <typename T>
class ColumnParallel {
 public:
  using A = acc_t<T>;

  /// The layer whose matrix is that part of a unit; `columns` of them are here. A unit may have no bias.
  ColumnParallel(Part weight, int64_t in, int64_t columns)
      : weight_(weight), in_(in), columns_(columns), op_(ops::operators<T>()) {}

  void forward(Workers& workers, const Unit& unit, const T* parameters, const T* x, T* y, int64_t rows) const;
  void backward_input(Workers& workers, const Unit& unit, const T* parameters, const T* dy, T* dx,
                      int64_t rows) const;
  /// Overwrites the layer's part of `gradient`.
  void backward_weight(Workers& workers, const Unit& unit, const T* x, const T* dy, A* gradient,
                       int64_t rows) const;

 private:
  Part weight_;
  int64_t in_, columns_;
  const ops::Operators<T>& op_;
};

extern template class ColumnParallel<float>;
extern template class ColumnParallel<bf16>;
extern template class ColumnParallel<fp16>;
extern template class ColumnParallel<double>;

}  // namespace loom::model
