// Three products of a rank's columns.
#include "model/column_parallel.h"

namespace loom::model {

template <typename T>
void ColumnParallel<T>::forward(Workers& workers, const Unit& unit, const T* parameters, const T* x, T* y,
                                int64_t rows) const {
  op_.linear_forward(workers, x, unit.at(weight_, parameters), unit.at(bias_of(weight_), parameters), y, rows,
                     in_, columns_);
}

template <typename T>
void ColumnParallel<T>::backward_input(Workers& workers, const Unit& unit, const T* parameters, const T* dy,
                                       T* dx, int64_t rows) const {
  op_.linear_backward_input(workers, dy, unit.at(weight_, parameters), dx, rows, in_, columns_);
}

template <typename T>
void ColumnParallel<T>::backward_weight(Workers& workers, const Unit& unit, const T* x, const T* dy,
                                        A* gradient, int64_t rows) const {
  op_.linear_backward_weight(workers, x, dy, unit.at(weight_, gradient), unit.at(bias_of(weight_), gradient),
                             rows, in_, columns_);
}

template class ColumnParallel<float>;
template class ColumnParallel<bf16>;
template class ColumnParallel<fp16>;
template class ColumnParallel<double>;

}  // namespace loom::model
