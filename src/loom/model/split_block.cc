// A block in pieces: x + attention(norm(x)), then that plus feed_forward(norm(that)).
#include "model/split_regions.h"

namespace loom::model {

template <typename T>
void SplitCompute<T>::norm_forward(const Pass& pass, const Unit& unit, Part weight, const T* parameters,
                                   const T* x, T* y, A* mean, A* rstd) const {
  op_.layer_norm_forward(*pass.workers, x, unit.at(weight, parameters), unit.at(bias_of(weight), parameters),
                         y, mean, rstd, pass.rows(), spec_.width, spec_.epsilon);
}

template <typename T>
void SplitCompute<T>::norm_backward(const Pass& pass, const Unit& unit, Part weight, const PieceArrays<T>& a,
                                    const T* x, const A* mean, const A* rstd) const {
  op_.layer_norm_backward(*pass.workers, x, unit.at(weight, a.parameters), mean, rstd, a.sum, a.d, true,
                          unit.at(weight, a.gradient), unit.at(bias_of(weight), a.gradient), pass.rows(),
                          spec_.width);
}

template <typename T>
void SplitCompute<T>::add_to_residual(const Pass& pass, const Unit& unit, Site site, Part bias,
                                      const PieceArrays<T>& a, const T* residual, T* y) const {
  op_.add_dropout(*pass.workers,
                  dropout_of(pass, unit.index, site, spec_.residual_dropout, pass.tokens * spec_.width),
                  residual, a.sum, unit.at(bias, a.parameters), y, pass.rows(), spec_.width);
}

template <typename T>
void SplitCompute<T>::through_dropout(const Pass& pass, const Unit& unit, Site site, const T* d,
                                      T* incoming) const {
  const int64_t per_sample = pass.tokens * spec_.width;
  op_.dropout(*pass.workers, dropout_of(pass, unit.index, site, spec_.residual_dropout, per_sample), d,
              incoming, pass.batch * per_sample);
}

template <typename T>
void SplitCompute<T>::block_forward(const Pass& pass, const Unit& unit, int piece,
                                    const PieceArrays<T>& a) const {
  const Pass own = rows_of(pass, share_);
  const SplitBlockSaved<T> s(spec_, share_, pass.rows(), own.rows(), a.saved);
  switch (piece) {
    case 0: return norm_forward(own, unit, Part::norm1_weight, a.parameters, a.x, a.normed, s.mean1, s.rstd1);
    case 1: return attention_.forward(pass, unit, a.parameters, a.normed, s.attention, a.sum);
    case 2:
      add_to_residual(own, unit, Site::projection, Part::projection_bias, a, a.x, s.middle);
      return norm_forward(own, unit, Part::norm2_weight, a.parameters, s.middle, a.normed, s.mean2, s.rstd2);
    case 3: return feed_forward_.forward(pass, unit, a.parameters, a.normed, s.feed_forward, a.sum);
    default: return add_to_residual(own, unit, Site::feed_forward, Part::down_bias, a, s.middle, a.y);
  }
}

template <typename T>
void SplitCompute<T>::block_backward(const Pass& pass, const Unit& unit, int piece,
                                     const PieceArrays<T>& a) const {
  const Pass own = rows_of(pass, share_);
  const SplitBlockSaved<T> s(spec_, share_, pass.rows(), own.rows(), a.saved);
  T* wide = reinterpret_cast<T*>(a.workspace);
  switch (piece) {
    case 0: return through_dropout(own, unit, Site::feed_forward, a.d, a.incoming);
    case 1:
      return feed_forward_.backward(pass, unit, a.parameters, a.normed, s.feed_forward, a.incoming, a.sum,
                                    a.gradient, wide);
    case 2:
      norm_backward(own, unit, Part::norm2_weight, a, s.middle, s.mean2, s.rstd2);
      return through_dropout(own, unit, Site::projection, a.d, a.incoming);
    case 3:
      return attention_.backward(pass, unit, a.parameters, a.normed, s.attention, a.incoming, a.sum,
                                 a.gradient, wide);
    default: return norm_backward(own, unit, Part::norm1_weight, a, a.x, s.mean1, s.rstd1);
  }
}

#define LOOM_INSTANTIATE(T)                                                                                 \
  template void SplitCompute<T>::norm_forward(const Pass&, const Unit&, Part, const T*, const T*, T*,       \
                                              acc_t<T>*, acc_t<T>*) const;                                  \
  template void SplitCompute<T>::norm_backward(const Pass&, const Unit&, Part, const PieceArrays<T>&,       \
                                               const T*, const acc_t<T>*, const acc_t<T>*) const;           \
  template void SplitCompute<T>::add_to_residual(const Pass&, const Unit&, Site, Part,                      \
                                                 const PieceArrays<T>&, const T*, T*) const;                \
  template void SplitCompute<T>::through_dropout(const Pass&, const Unit&, Site, const T*, T*) const;       \
  template void SplitCompute<T>::block_forward(const Pass&, const Unit&, int, const PieceArrays<T>&) const; \
  template void SplitCompute<T>::block_backward(const Pass&, const Unit&, int, const PieceArrays<T>&) const;
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(bf16)
LOOM_INSTANTIATE(double)

}  // namespace loom::model
