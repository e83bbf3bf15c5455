// A block in pieces, in the three ways that block.cc has.
#include <algorithm>

#include "model/norm.h"
#include "model/sequence_parallel.h"
#include "model/split_regions.h"

namespace loom::model {

template <typename T>
SplitCompute<T>::SplitCompute(const ModelSpec& spec, const Share& share)
    : spec_(spec),
      share_(share),
      embedding_(spec, share),
      head_(spec, share),
      attention_(spec, share),
      feed_forward_(spec, share),
      op_(ops::operators<T>()) {}

template <typename T>
void SplitCompute<T>::norm_backward(const Pass& pass, const Unit& unit, Part weight, const PieceArrays<T>& a,
                                    const T* x, const A* mean, const A* rstd, const T* dy, bool add) const {
  model::norm_backward(op_, pass, unit, weight, a.parameters, x, mean, rstd, dy, a.d, add, a.gradient);
}

template <typename T>
void SplitCompute<T>::add(const Pass& pass, const T* a, T* sum) const {
  op_.add_dropout(*pass.workers, {}, sum, a, nullptr, sum, pass.rows(), spec_.width);
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
  if (piece == 1) return attention_.forward(pass, unit, a.parameters, a.normed, s.attention, a.sum);
  if (piece == 3) return feed_forward_.forward(pass, unit, a.parameters, a.normed, s.feed_forward, a.sum);
  rows_forward(own, unit, piece, a, s);
}

/// Attention and feed-forward read `normed`: norms, or with norms after them the residual itself. In parallel
/// blocks both read norms of x.
template <typename T>
void SplitCompute<T>::rows_forward(const Pass& own, const Unit& unit, int piece, const PieceArrays<T>& a,
                                   const SplitBlockSaved<T>& s) const {
  const bool post = spec_.norms == NormPlacement::post, one = spec_.residual == Residual::parallel_one_norm;
  const int64_t elements = own.rows() * spec_.width;
  if (piece == 0) {
    if (post) std::copy_n(a.x, elements, a.normed);
    else norm_forward(op_, own, unit, Part::norm1_weight, a.parameters, a.x, a.normed, s.mean1, s.rstd1);
  } else if (piece == 2) {
    add_to_residual(own, unit, Site::projection, Part::projection_bias, a, a.x, post ? s.sum1 : s.middle);
    if (post) {
      norm_forward(op_, own, unit, Part::norm1_weight, a.parameters, s.sum1, s.middle, s.mean1, s.rstd1);
      std::copy_n(s.middle, elements, a.normed);
    } else if (one) {
      norm_forward(op_, own, unit, Part::norm1_weight, a.parameters, a.x, a.normed, s.mean1, s.rstd1);
    } else {
      norm_forward(op_, own, unit, Part::norm2_weight, a.parameters,
                   spec_.residual == Residual::serial ? s.middle : a.x, a.normed, s.mean2, s.rstd2);
    }
  } else {
    add_to_residual(own, unit, Site::feed_forward, Part::down_bias, a, s.middle, post ? s.sum2 : a.y);
    if (post) norm_forward(op_, own, unit, Part::norm2_weight, a.parameters, s.sum2, a.y, s.mean2, s.rstd2);
  }
}

template <typename T>
void SplitCompute<T>::block_backward(const Pass& pass, const Unit& unit, int piece,
                                     const PieceArrays<T>& a) const {
  const Pass own = rows_of(pass, share_);
  const SplitBlockSaved<T> s(spec_, share_, pass.rows(), own.rows(), a.saved);
  T* wide = reinterpret_cast<T*>(a.workspace);
  switch (piece) {
    case 1:
      return feed_forward_.backward_input(pass, unit, a.parameters, s.feed_forward, a.incoming, a.sum, wide);
    case 2: return feed_forward_.backward_up(pass, unit, a.normed, wide, a.gradient);
    case 4: return feed_forward_.backward_down(pass, unit, s.feed_forward, a.incoming, a.gradient);
    case 5: return attention_.backward_input(pass, unit, a.parameters, s.attention, a.incoming, a.sum, wide);
    case 6:
      return attention_.backward_weights(pass, unit, a.normed, s.attention, a.incoming, wide, a.gradient);
    default: return rows_backward(own, unit, piece, a, s);
  }
}

/// Both halves of a parallel block read d before either adds to it. With one norm their sums go through it
/// together: the first waits in `middle`, which nobody needs any more.
template <typename T>
void SplitCompute<T>::rows_backward(const Pass& own, const Unit& unit, int piece, const PieceArrays<T>& a,
                                    const SplitBlockSaved<T>& s) const {
  const bool post = spec_.norms == NormPlacement::post, serial = spec_.residual == Residual::serial;
  const bool one = spec_.residual == Residual::parallel_one_norm;
  if (piece == 0) {
    if (post) norm_backward(own, unit, Part::norm2_weight, a, s.sum2, s.mean2, s.rstd2, a.d, false);
    return through_dropout(own, unit, Site::feed_forward, a.d, a.incoming);
  }
  if (piece == 3) {
    if (!serial) through_dropout(own, unit, Site::projection, a.d, a.incoming);
    if (post) {
      add(own, a.sum, a.d);
      norm_backward(own, unit, Part::norm1_weight, a, s.sum1, s.mean1, s.rstd1, a.d, false);
    } else if (one) {
      std::copy_n(a.sum, own.rows() * spec_.width, s.middle);
    } else {
      norm_backward(own, unit, Part::norm2_weight, a, serial ? s.middle : a.x, s.mean2, s.rstd2, a.sum, true);
    }
    if (serial) through_dropout(own, unit, Site::projection, a.d, a.incoming);
    return;
  }
  if (post) return add(own, a.sum, a.d);
  if (one) add(own, s.middle, a.sum);
  norm_backward(own, unit, Part::norm1_weight, a, a.x, s.mean1, s.rstd1, a.sum, true);
}

template class SplitCompute<float>;
template class SplitCompute<bf16>;
template class SplitCompute<fp16>;
template class SplitCompute<double>;

}  // namespace loom::model
