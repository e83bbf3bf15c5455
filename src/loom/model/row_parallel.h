// A row-parallel linear layer, the second of a sublayer's two: y = x · W + b for W[K, N], of which tensor
// rank t has the rows W_t, and of x the same columns x_t, as a column-parallel layer has left them. Every
// rank has the whole bias. K / T stands for its number of rows; where T does not divide K the last rank has
// fewer.
//
//   forward           y_t[M, N] = x_t[M, K/T] · W_t            a summand without bias: y = Σ_t y_t + b
//   backward, input   dx_t[M, K/T] = dy[M, N] · W_tᵀ           every rank reads all of dy
//   backward, weight  dW_t[K/T, N] = x_tᵀ · dy; db[N] = Σ dy   complete; db is of all rows, equal on all
//   ranks
//
// Exchange: none here. Forward, the ranks add up y_t outside, and who has the sum adds the bias, once, as it
// adds the residual (ops add_dropout): if each rank added it to its summand it would count T times.
//
// Thread safety: as Workers.
#pragma once

#include "base/workers.h"
#include "model/cut.h"
#include "model/units.h"
#include "ops/operators.h"

namespace loom::model {

constexpr Cut kRowWeightCut = {0, 1};  // of W[K, N]
constexpr Cut kRowBiasCut = {};        // of b[N]

template <typename T>
class RowParallel {
 public:
  using A = acc_t<T>;

  /// The layer whose matrix is that part of a unit; `in` of its rows are here. A unit may have no bias.
  RowParallel(Part weight, int64_t in, int64_t out)
      : weight_(weight), in_(in), out_(out), op_(ops::operators<T>()) {}

  void forward(Workers& workers, const Unit& unit, const T* parameters, const T* x, T* summand,
               int64_t rows) const;
  void backward_input(Workers& workers, const Unit& unit, const T* parameters, const T* dy, T* dx,
                      int64_t rows) const;
  /// Overwrites the layer's part of `gradient`.
  void backward_weight(Workers& workers, const Unit& unit, const T* x, const T* dy, A* gradient,
                       int64_t rows) const;

 private:
  Part weight_;
  int64_t in_, out_;
  const ops::Operators<T>& op_;
};

extern template class RowParallel<float>;
extern template class RowParallel<bf16>;
extern template class RowParallel<fp16>;
extern template class RowParallel<double>;

}  // namespace loom::model
