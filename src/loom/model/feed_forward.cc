// The feed-forward layer: up and down, and the activation between them.
#include "model/feed_forward.h"

namespace loom::model {

template <typename T>
void FeedForward<T>::forward(const Pass& pass, const Unit& unit, const T* parameters, const T* x,
                             const FeedForwardSaved<T>& saved, T* product) const {
  Workers& workers = *pass.workers;
  const int64_t rows = pass.rows();
  up_.forward(workers, unit, parameters, x, saved.hidden, rows);
  op_.activation_forward(workers, activation_, saved.hidden, saved.activated, rows * hidden_);
  down_.forward(workers, unit, parameters, saved.activated, product, rows);
}

template <typename T>
void FeedForward<T>::backward(const Pass& pass, const Unit& unit, const T* parameters, const T* x,
                              const FeedForwardSaved<T>& saved, const T* dy, T* dx, A* gradient,
                              T* wide) const {
  backward_down(pass, unit, saved, dy, gradient);
  backward_input(pass, unit, parameters, saved, dy, dx, wide);
  backward_up(pass, unit, x, wide, gradient);
}

template <typename T>
void FeedForward<T>::backward_input(const Pass& pass, const Unit& unit, const T* parameters,
                                    const FeedForwardSaved<T>& saved, const T* dy, T* dx, T* wide) const {
  Workers& workers = *pass.workers;
  const int64_t rows = pass.rows();
  down_.backward_input(workers, unit, parameters, dy, wide, rows);
  op_.activation_backward(workers, activation_, saved.hidden, wide, wide, rows * hidden_);
  up_.backward_input(workers, unit, parameters, wide, dx, rows);
}

template <typename T>
void FeedForward<T>::backward_up(const Pass& pass, const Unit& unit, const T* x, const T* wide,
                                 A* gradient) const {
  up_.backward_weight(*pass.workers, unit, x, wide, gradient, pass.rows());
}

template <typename T>
void FeedForward<T>::backward_down(const Pass& pass, const Unit& unit, const FeedForwardSaved<T>& saved,
                                   const T* dy, A* gradient) const {
  down_.backward_weight(*pass.workers, unit, saved.activated, dy, gradient, pass.rows());
}

template class FeedForward<float>;
template class FeedForward<bf16>;
template class FeedForward<fp16>;
template class FeedForward<double>;

}  // namespace loom::model
