// Three products of a rank's rows.
#include "model/row_parallel.h"

namespace loom::model {

template <typename T>
void RowParallel<T>::forward(Workers& workers, const Unit& unit, const T* parameters, const T* x, T* summand,
                             int64_t rows) const {
  op_.linear_forward(workers, x, unit.at(weight_, parameters), nullptr, summand, rows, in_, out_);
}

template <typename T>
void RowParallel<T>::backward_input(Workers& workers, const Unit& unit, const T* parameters, const T* dy,
                                    T* dx, int64_t rows) const {
  op_.linear_backward_input(workers, dy, unit.at(weight_, parameters), dx, rows, in_, out_);
}

template <typename T>
void RowParallel<T>::backward_weight(Workers& workers, const Unit& unit, const T* x, const T* dy, A* gradient,
                                     int64_t rows) const {
  op_.linear_backward_weight(workers, x, dy, unit.at(weight_, gradient), unit.at(bias_of(weight_), gradient),
                             rows, in_, out_);
}

template class RowParallel<float>;
template class RowParallel<bf16>;
template class RowParallel<fp16>;
template class RowParallel<double>;

}  // namespace loom::model
