// A GPT-2 block: x + attention(norm(x)), then that plus feed_forward(norm(that)).
#include "model/regions.h"

namespace loom::model {

template <typename T>
void Compute<T>::norm_forward(const Pass& pass, const Unit& unit, Part weight, const T* parameters,
                              const T* x, T* y, A* mean, A* rstd) const {
  op_.layer_norm_forward(*pass.workers, x, unit.at(weight, parameters), unit.at(bias_of(weight), parameters),
                         y, mean, rstd, pass.rows(), spec_.width, spec_.epsilon);
}

template <typename T>
void Compute<T>::norm_backward(const Pass& pass, const Unit& unit, Part weight, const T* parameters,
                               const T* x, const A* mean, const A* rstd, const T* dy, T* dx,
                               A* gradient) const {
  op_.layer_norm_backward(*pass.workers, x, unit.at(weight, parameters), mean, rstd, dy, dx,
                          unit.at(weight, gradient), unit.at(bias_of(weight), gradient), pass.rows(),
                          spec_.width);
}

template <typename T>
void Compute<T>::add_to_residual(const Pass& pass, const Unit& unit, Site site, Part bias,
                                 const T* parameters, const T* residual, const T* product, T* y) const {
  op_.add_dropout(*pass.workers,
                  dropout_of(pass, unit.index, site, spec_.residual_dropout, pass.tokens * spec_.width),
                  residual, product, unit.at(bias, parameters), y, pass.rows(), spec_.width);
}

template <typename T>
const T* Compute<T>::through_dropout(const Pass& pass, const Unit& unit, Site site, const T* d,
                                     T* masked) const {
  const int64_t per_sample = pass.tokens * spec_.width;
  const ops::Dropout dropout = dropout_of(pass, unit.index, site, spec_.residual_dropout, per_sample);
  if (dropout.probability == 0) return d;
  op_.dropout(*pass.workers, dropout, d, masked, pass.batch * per_sample);
  return masked;
}

template <typename T>
void Compute<T>::block_forward(const Pass& pass, const Unit& unit, const T* parameters, const T* x,
                               std::byte* saved, T* y, std::byte* workspace) const {
  const BlockSaved<T> s(spec_, share_, pass.rows(), saved);
  const BlockWorkspace<T> w(spec_, share_, pass.rows(), workspace);

  norm_forward(pass, unit, Part::norm1_weight, parameters, x, s.norm1, s.mean1, s.rstd1);
  attention_.forward(pass, unit, parameters, s.norm1, s.attention, w.narrow);
  add_to_residual(pass, unit, Site::projection, Part::projection_bias, parameters, x, w.narrow, s.middle);

  norm_forward(pass, unit, Part::norm2_weight, parameters, s.middle, s.norm2, s.mean2, s.rstd2);
  feed_forward_.forward(pass, unit, parameters, s.norm2, s.feed_forward, w.narrow);
  add_to_residual(pass, unit, Site::feed_forward, Part::down_bias, parameters, s.middle, w.narrow, y);
}

template <typename T>
void Compute<T>::block_backward(const Pass& pass, const Unit& unit, const T* parameters, const T* x,
                                const std::byte* saved, T* d, A* gradient, std::byte* workspace) const {
  const BlockSaved<T> s(spec_, share_, pass.rows(), const_cast<std::byte*>(saved));  // only read
  const BlockWorkspace<T> w(spec_, share_, pass.rows(), workspace);

  const T* dy = through_dropout(pass, unit, Site::feed_forward, d, w.masked);
  feed_forward_.backward(pass, unit, parameters, s.norm2, s.feed_forward, dy, w.narrow, gradient, w.wide);
  norm_backward(pass, unit, Part::norm2_weight, parameters, s.middle, s.mean2, s.rstd2, w.narrow, d,
                gradient);

  dy = through_dropout(pass, unit, Site::projection, d, w.masked);
  attention_.backward(pass, unit, parameters, s.norm1, s.attention, dy, w.narrow, gradient, w.wide);
  norm_backward(pass, unit, Part::norm1_weight, parameters, x, s.mean1, s.rstd1, w.narrow, d, gradient);
}

#define LOOM_INSTANTIATE(T)                                                                                 \
  template void Compute<T>::norm_forward(const Pass&, const Unit&, Part, const T*, const T*, T*, acc_t<T>*, \
                                         acc_t<T>*) const;                                                  \
  template void Compute<T>::norm_backward(const Pass&, const Unit&, Part, const T*, const T*,               \
                                          const acc_t<T>*, const acc_t<T>*, const T*, T*, acc_t<T>*) const; \
  template void Compute<T>::add_to_residual(const Pass&, const Unit&, Site, Part, const T*, const T*,       \
                                            const T*, T*) const;                                            \
  template const T* Compute<T>::through_dropout(const Pass&, const Unit&, Site, const T*, T*) const;        \
  template void Compute<T>::block_forward(const Pass&, const Unit&, const T*, const T*, std::byte*, T*,     \
                                          std::byte*) const;                                                \
  template void Compute<T>::block_backward(const Pass&, const Unit&, const T*, const T*, const std::byte*,  \
                                           T*, acc_t<T>*, std::byte*) const;
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(bf16)
LOOM_INSTANTIATE(double)

}  // namespace loom::model
