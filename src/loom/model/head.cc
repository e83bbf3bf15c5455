// The head: the rows that it reads, logits, and the loss with its gradient.
#include <algorithm>

#include "model/regions.h"

namespace loom::model {
namespace {

/// Fills in which rows are read, and their targets; returns how many.
template <typename T>
int64_t pick(const Pass& pass, const T* x, const int32_t* target, const HeadArrays<T>& a) {
  int64_t count = 0;
  if (pass.spec->task == Task::classification) {
    for (int64_t sequence = 0; sequence < pass.batch; ++sequence, ++count) {
      a.row[count] = static_cast<int32_t>(pooled_row(pass, sequence));
      a.place[count] = static_cast<int32_t>(sequence * pass.tokens);
    }
  } else {
    for (int64_t row = 0; row < pass.rows(); ++row)
      if (target[row] >= 0) a.row[count] = a.place[count] = static_cast<int32_t>(row), ++count;
  }
  const int64_t width = pass.spec->width;
  for (int64_t r = 0; r < count; ++r) {
    a.target[r] = target[a.place[r]];
    std::copy_n(x + a.row[r] * width, width, a.picked + r * width);
  }
  return count;
}

}  // namespace

/// What a head's call works on: all rows where they are, or those picked, in the workspace.
template <typename T>
struct Compute<T>::HeadRows {
  int64_t count;
  const T* input;
  const int32_t* target;
  double* loss;

  HeadRows(const Pass& pass, const T* x, const int32_t* given, double* losses, const HeadArrays<T>& a)
      : count(pass.rows()), input(x), target(given), loss(losses) {
    if (pass.spec->task == Task::causal) return;
    count = pick(pass, x, given, a);
    input = a.picked, target = a.target, loss = a.loss;
  }
  /// Losses to the rows whose targets they are of; 0 elsewhere.
  void return_losses(const Pass& pass, const HeadArrays<T>& a, double* losses) const {
    if (loss == losses) return;
    std::fill_n(losses, pass.rows(), 0.0);
    for (int64_t r = 0; r < count; ++r) losses[a.place[r]] = loss[r];
  }
};

template <typename T>
void Compute<T>::head_loss(const Pass& pass, const Unit& unit, const T* parameters, const T* embedding,
                           const T* x, const int32_t* target, A scale, double* loss, T* d, A* gradient,
                           A* embedding_gradient, std::byte* workspace) const {
  Workers& workers = *pass.workers;
  const int64_t width = spec_.width, outputs = spec_.outputs();
  const HeadWorkspace<T> w(spec_, pass.batch, pass.tokens, workspace);
  const HeadArrays<T>& a = w.arrays;
  const HeadRows rows(pass, x, target, loss, a);
  const T *weight = head_weight(unit, parameters, embedding), *bias = unit.at(Part::head_bias, parameters);
  A *dweight = head_weight(unit, gradient, embedding_gradient), *dbias = unit.at(Part::head_bias, gradient);
  if (rows.count == 0) std::fill_n(gradient, unit.elements, A(0));
  if (spec_.tied) {  // what lies behind the shared matrix; that itself is overwritten below, if anything is
    const int64_t shared = rows.count == 0 ? 0 : units_[0].parameters[0].elements();
    std::fill(embedding_gradient + shared, embedding_gradient + units_[0].elements, A(0));
  }

  const T* features =
      rows.count == 0 ? nullptr : layers_.forward(pass, unit, parameters, rows.input, rows.count, a);
  for (int64_t row = 0; row < rows.count; row += kHeadRows) {
    const int64_t part = std::min(kHeadRows, rows.count - row);
    op_.head_forward(workers, features + row * width, weight, bias, w.logits, part, width, outputs);
    op_.cross_entropy(workers, w.logits, rows.target + row, rows.loss + row, part, outputs, scale);
    op_.head_backward(workers, w.logits, features + row * width, weight, a.dfeatures + row * width, dweight,
                      dbias, row > 0, part, width, outputs);
  }
  rows.return_losses(pass, a, loss);
  T* dinput = spec_.task == Task::causal ? d : a.dpicked;
  if (rows.count > 0) layers_.backward(pass, unit, parameters, rows.input, rows.count, a, dinput, gradient);
  if (dinput == d) return;
  std::fill_n(d, pass.rows() * width, T{});
  for (int64_t r = 0; r < rows.count; ++r) std::copy_n(dinput + r * width, width, d + a.row[r] * width);
}

template <typename T>
void Compute<T>::head_evaluate(const Pass& pass, const Unit& unit, const T* parameters, const T* embedding,
                               const T* x, const int32_t* target, double* loss, std::byte* workspace) const {
  const int64_t width = spec_.width, outputs = spec_.outputs();
  const HeadWorkspace<T> w(spec_, pass.batch, pass.tokens, workspace);
  const HeadRows rows(pass, x, target, loss, w.arrays);
  const T* weight = head_weight(unit, parameters, embedding);
  const T* features =
      rows.count == 0 ? nullptr : layers_.forward(pass, unit, parameters, rows.input, rows.count, w.arrays);
  for (int64_t row = 0; row < rows.count; row += kHeadRows) {
    const int64_t part = std::min(kHeadRows, rows.count - row);
    op_.head_forward(*pass.workers, features + row * width, weight, unit.at(Part::head_bias, parameters),
                     w.logits, part, width, outputs);
    op_.cross_entropy(*pass.workers, w.logits, rows.target + row, rows.loss + row, part, outputs, A(0));
  }
  rows.return_losses(pass, w.arrays, loss);
}

template <typename T>
void Compute<T>::head_logits(const Pass& pass, const Unit& unit, const T* parameters, const T* embedding,
                             const T* x, int64_t row, A* logits, std::byte* workspace) const {
  const HeadWorkspace<T> w(spec_, pass.batch, pass.tokens, workspace);
  if (spec_.task == Task::classification) row = pooled_row(pass, row / pass.tokens);
  const T* features = layers_.forward(pass, unit, parameters, x + row * spec_.width, 1, w.arrays);
  op_.head_forward(*pass.workers, features, head_weight(unit, parameters, embedding),
                   unit.at(Part::head_bias, parameters), logits, 1, spec_.width, spec_.outputs());
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
LOOM_INSTANTIATE(fp16)
LOOM_INSTANTIATE(double)

}  // namespace loom::model
