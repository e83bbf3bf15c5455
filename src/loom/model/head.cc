// The head: the last norm, logits, and the loss with its gradient.
#include <algorithm>

#include "model/regions.h"

namespace loom::model {
namespace {

/// The head's matrix, or its gradient: its own, or the token embedding's.
template <typename E>
E* head_weight(const Unit& unit, E* own, E* embedding) {
  E* weight = unit.at(Part::head_weight, own);
  return weight != nullptr ? weight : embedding;
}

}  // namespace

template <typename T>
void Compute<T>::head_loss(const Pass& pass, const Unit& unit, const T* parameters, const T* embedding,
                           const T* x, const int32_t* target, A scale, double* loss, T* d, A* gradient,
                           A* embedding_gradient, std::byte* workspace) const {
  Workers& workers = *pass.workers;
  const int64_t rows = pass.rows(), width = spec_.width, vocabulary = spec_.vocabulary;
  const HeadWorkspace<T> w(spec_, rows, workspace);
  const T* weight = head_weight(unit, parameters, embedding);
  A* dweight = head_weight(unit, gradient, embedding_gradient);
  if (spec_.tied)  // what lies behind the shared matrix; that itself is overwritten below
    std::fill(dweight + units_[0].parameters[0].elements(), embedding_gradient + units_[0].elements, A(0));

  norm_forward(pass, unit, Part::final_norm_weight, parameters, x, w.normed, w.mean, w.rstd);
  for (int64_t row = 0; row < rows; row += kHeadRows) {
    const int64_t part = std::min(kHeadRows, rows - row);
    op_.head_forward(workers, w.normed + row * width, weight, w.logits, part, width, vocabulary);
    op_.cross_entropy(workers, w.logits, target + row, loss + row, part, vocabulary, scale);
    op_.head_backward(workers, w.logits, w.normed + row * width, weight, w.dnormed + row * width, dweight,
                      row > 0, part, width, vocabulary);
  }
  std::fill_n(d, rows * width, T{});  // the norm's gradient is added
  norm_backward(pass, unit, Part::final_norm_weight, parameters, x, w.mean, w.rstd, w.dnormed, d, gradient);
}

template <typename T>
void Compute<T>::head_evaluate(const Pass& pass, const Unit& unit, const T* parameters, const T* embedding,
                               const T* x, const int32_t* target, double* loss, std::byte* workspace) const {
  const int64_t rows = pass.rows(), width = spec_.width;
  const HeadWorkspace<T> w(spec_, rows, workspace);
  const T* weight = head_weight(unit, parameters, embedding);
  norm_forward(pass, unit, Part::final_norm_weight, parameters, x, w.normed, w.mean, w.rstd);
  for (int64_t row = 0; row < rows; row += kHeadRows) {
    const int64_t part = std::min(kHeadRows, rows - row);
    op_.head_forward(*pass.workers, w.normed + row * width, weight, w.logits, part, width, spec_.vocabulary);
    op_.cross_entropy(*pass.workers, w.logits, target + row, loss + row, part, spec_.vocabulary, A(0));
  }
}

template <typename T>
void Compute<T>::head_logits(const Pass& pass, const Unit& unit, const T* parameters, const T* embedding,
                             const T* x, int64_t row, A* logits, std::byte* workspace) const {
  const int64_t width = spec_.width;
  const HeadWorkspace<T> w(spec_, pass.rows(), workspace);
  const T* weight = head_weight(unit, parameters, embedding);
  op_.layer_norm_forward(*pass.workers, x + row * width, unit.at(Part::final_norm_weight, parameters),
                         unit.at(Part::final_norm_bias, parameters), w.normed, w.mean, w.rstd, 1, width,
                         spec_.epsilon);
  op_.head_forward(*pass.workers, w.normed, weight, logits, 1, width, spec_.vocabulary);
}

#define LOOM_INSTANTIATE(T)                                                                              \
  template void Compute<T>::head_loss(const Pass&, const Unit&, const T*, const T*, const T*,            \
                                      const int32_t*, acc_t<T>, double*, T*, acc_t<T>*, acc_t<T>*,       \
                                      std::byte*) const;                                                 \
  template void Compute<T>::head_evaluate(const Pass&, const Unit&, const T*, const T*, const T*,        \
                                          const int32_t*, double*, std::byte*) const;                    \
  template void Compute<T>::head_logits(const Pass&, const Unit&, const T*, const T*, const T*, int64_t, \
                                        acc_t<T>*, std::byte*) const;
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(bf16)
LOOM_INSTANTIATE(double)

}  // namespace loom::model
