// The layers of the head, in the order in which they are applied.
#include "model/head_layers.h"

#include <algorithm>

namespace loom::model {

/// One row of each sequence is read, so the array has a row for each sample.
template <typename T>
ops::Dropout HeadLayers<T>::dropout(const Pass& pass, const Unit& unit, Site site) const {
  return dropout_of(pass, unit.index, site, spec_.head_dropout, spec_.width);
}

template <typename T>
const T* HeadLayers<T>::forward(const Pass& pass, const Unit& unit, const T* parameters, const T* input,
                                int64_t rows, const HeadArrays<T>& a) const {
  Workers& workers = *pass.workers;
  const int64_t width = spec_.width, elements = rows * width;
  const T* x = input;
  if (spec_.norms == NormPlacement::pre) {
    op_.layer_norm_forward(workers, x, unit.at(Part::final_norm_weight, parameters),
                           unit.at(Part::final_norm_bias, parameters), a.normed, a.mean, a.rstd, rows, width,
                           spec_.epsilon);
    x = a.normed;
  }
  if (!spec_.pooler && !spec_.head_transform) return x;
  if (spec_.dropout_before_pooler) {
    op_.dropout(workers, dropout(pass, unit, Site::projection), x, a.dropped, elements);
    x = a.dropped;
  }
  op_.linear_forward(workers, x, unit.at(Part::dense_weight, parameters),
                     unit.at(Part::dense_bias, parameters), a.hidden, rows, width, width);
  if (spec_.pooler) {
    op_.activation_forward(workers, ops::Activation::tanh, a.hidden, a.activated, elements);
    op_.dropout(workers, dropout(pass, unit, Site::feed_forward), a.activated, a.features, elements);
  } else {
    op_.activation_forward(workers, spec_.head_activation.value_or(spec_.activation), a.hidden, a.activated,
                           elements);
    op_.layer_norm_forward(workers, a.activated, unit.at(Part::transform_norm_weight, parameters),
                           unit.at(Part::transform_norm_bias, parameters), a.features, a.mean, a.rstd, rows,
                           width, spec_.epsilon);
  }
  return a.features;
}

template <typename T>
void HeadLayers<T>::backward(const Pass& pass, const Unit& unit, const T* parameters, const T* input,
                             int64_t rows, const HeadArrays<T>& a, T* dinput, A* gradient) const {
  Workers& workers = *pass.workers;
  const int64_t width = spec_.width, elements = rows * width;
  const bool pre = spec_.norms == NormPlacement::pre;
  T* d = a.dfeatures;
  if (spec_.pooler || spec_.head_transform) {
    if (spec_.pooler) {
      op_.dropout(workers, dropout(pass, unit, Site::feed_forward), d, d, elements);
      op_.activation_backward(workers, ops::Activation::tanh, a.hidden, d, d, elements);
    } else {
      op_.layer_norm_backward(workers, a.activated, unit.at(Part::transform_norm_weight, parameters), a.mean,
                              a.rstd, d, d, false, unit.at(Part::transform_norm_weight, gradient),
                              unit.at(Part::transform_norm_bias, gradient), rows, width);
      op_.activation_backward(workers, spec_.head_activation.value_or(spec_.activation), a.hidden, d, d,
                              elements);
    }
    const T* x = spec_.dropout_before_pooler ? a.dropped : pre ? a.normed : input;
    op_.linear_backward_weight(workers, x, d, unit.at(Part::dense_weight, gradient),
                               unit.at(Part::dense_bias, gradient), rows, width, width);
    T* into = pre ? a.features : dinput;  // whose values are no longer needed
    op_.linear_backward_input(workers, d, unit.at(Part::dense_weight, parameters), into, rows, width, width);
    if (spec_.dropout_before_pooler)
      op_.dropout(workers, dropout(pass, unit, Site::projection), into, into, elements);
    d = into;
  }
  if (pre)
    op_.layer_norm_backward(workers, input, unit.at(Part::final_norm_weight, parameters), a.mean, a.rstd, d,
                            dinput, false, unit.at(Part::final_norm_weight, gradient),
                            unit.at(Part::final_norm_bias, gradient), rows, width);
  else if (d != dinput) std::copy_n(d, elements, dinput);
}

template class HeadLayers<float>;
template class HeadLayers<bf16>;
template class HeadLayers<fp16>;
template class HeadLayers<double>;

}  // namespace loom::model
