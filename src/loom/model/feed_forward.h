// The feed-forward layer of a block: a column-parallel way up, activation, a row-parallel way down. Tensor
// parallelism divides the hidden layer between them.
//
// Forward ends where the product of the way down is complete but for its bias, backward where that of the way
// up is. Under tensor parallelism both are this rank's summand of a sum over ranks, as in attention.h.
//
// Thread safety: as Workers.
#pragma once

#include "model/column_parallel.h"
#include "model/divider.h"
#include "model/pass.h"
#include "model/row_parallel.h"
#include "model/units.h"

namespace loom::model {

/// What forward leaves for backward; F is the hidden layer's width here.
template <typename T>
struct FeedForwardSaved {
  T *hidden, *activated;  // [M, F], before and after the activation

  FeedForwardSaved(Divider& divider, const Share& share, int64_t rows)
      : hidden(divider.take<T>(rows * share.feed_forward)),
        activated(divider.take<T>(rows * share.feed_forward)) {}
};

template <typename T>
class FeedForward {
 public:
  using A = acc_t<T>;

  FeedForward(const ModelSpec& spec, const Share& share)
      : hidden_(share.feed_forward),
        up_(Part::up_weight, spec.width, hidden_),
        down_(Part::down_weight, hidden_, spec.width),
        activation_(spec.activation),
        op_(ops::operators<T>()) {}

  /// product[M, C] from x[M, C], without the bias of the way down.
  void forward(const Pass& pass, const Unit& unit, const T* parameters, const T* x,
               const FeedForwardSaved<T>& saved, T* product) const;

  /// dx[M, C] from dy[M, C], the gradient with respect to the product and its bias; overwrites the sublayer's
  /// part of `gradient`, that bias too. `wide` has M·F elements.
  void backward(const Pass& pass, const Unit& unit, const T* parameters, const T* x,
                const FeedForwardSaved<T>& saved, const T* dy, T* dx, A* gradient, T* wide) const;

  /// The same in parts. dx, for which others may be waiting; `wide` is then the hidden layer's derivative.
  void backward_input(const Pass& pass, const Unit& unit, const T* parameters,
                      const FeedForwardSaved<T>& saved, const T* dy, T* dx, T* wide) const;
  /// The gradient of the way up, from x and the hidden layer's derivative.
  void backward_up(const Pass& pass, const Unit& unit, const T* x, const T* wide, A* gradient) const;
  /// That of the way down.
  void backward_down(const Pass& pass, const Unit& unit, const FeedForwardSaved<T>& saved, const T* dy,
                     A* gradient) const;

 private:
  int64_t hidden_;
  ColumnParallel<T> up_;
  RowParallel<T> down_;
  ops::Activation activation_;
  const ops::Operators<T>& op_;
};

extern template class FeedForward<float>;
extern template class FeedForward<bf16>;
extern template class FeedForward<fp16>;
extern template class FeedForward<double>;

}  // namespace loom::model
