// The units at both ends: the embedding, and the head with the loss.
#include <algorithm>

#include "model/regions.h"

namespace loom::model {
namespace {

ops::Dropout embedding_dropout(const Pass& pass) {
  return {pass.training ? pass.spec->embedding_dropout : 0.0f,
          {pass.seed, pass.step, 0},
          pass.first_sample * static_cast<uint64_t>(pass.tokens * pass.spec->width)};
}

}  // namespace

template <typename T>
BufferSizes buffer_sizes(const ModelSpec& spec, int64_t batch, int64_t tokens) {
  const int64_t rows = batch * tokens;
  BufferSizes sizes;
  sizes.activation = (rows * spec.width * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
  sizes.saved = BlockSaved<T>(spec, batch, tokens, nullptr).bytes;
  sizes.workspace =
      std::max(BlockWorkspace<T>(spec, rows, nullptr).bytes, HeadWorkspace<T>(spec, rows, nullptr).bytes);
  return sizes;
}

template BufferSizes buffer_sizes<float>(const ModelSpec&, int64_t, int64_t);
template BufferSizes buffer_sizes<bf16>(const ModelSpec&, int64_t, int64_t);
template BufferSizes buffer_sizes<double>(const ModelSpec&, int64_t, int64_t);

template <typename T>
Compute<T>::Compute(const ModelSpec& spec) : spec_(spec), units_(units_of(spec)), op_(ops::operators<T>()) {}

template <typename T>
void Compute<T>::embedding_forward(const Pass& pass, const T* parameters, const int32_t* token, T* y) const {
  const Unit& unit = units_.front();
  op_.embedding_forward(*pass.workers, token, parameters + unit.parameters[0].offset,
                        parameters + unit.parameters[1].offset, y, pass.rows(), pass.tokens, spec_.width);
  const ops::Dropout dropout = embedding_dropout(pass);
  if (dropout.probability > 0) op_.dropout(*pass.workers, dropout, y, y, pass.rows() * spec_.width);
}

template <typename T>
void Compute<T>::embedding_backward(const Pass& pass, const int32_t* token, T* d, A* gradient,
                                    bool add) const {
  const Unit& unit = units_.front();
  const ops::Dropout dropout = embedding_dropout(pass);
  if (dropout.probability > 0) op_.dropout(*pass.workers, dropout, d, d, pass.rows() * spec_.width);
  if (!add) std::fill_n(gradient, unit.elements, A(0));
  op_.embedding_backward(*pass.workers, token, d, gradient + unit.parameters[0].offset,
                         gradient + unit.parameters[1].offset, pass.rows(), pass.tokens, spec_.width);
}

template <typename T>
void Compute<T>::head_loss(const Pass& pass, const Unit& unit, const T* parameters, const T* embedding,
                           const T* x, const int32_t* target, A scale, double* loss, T* d, A* gradient,
                           A* embedding_gradient, std::byte* workspace) const {
  Workers& workers = *pass.workers;
  const int64_t rows = pass.rows(), width = spec_.width, vocabulary = spec_.vocabulary;
  const HeadWorkspace<T> w(spec_, rows, workspace);
  const T* norm_weight = parameters + unit.parameters[0].offset;
  const T* norm_bias = parameters + unit.parameters[1].offset;
  const T* weight = spec_.tied ? embedding : parameters + unit.parameters[2].offset;
  A* dweight = spec_.tied ? embedding_gradient : gradient + unit.parameters[2].offset;
  if (spec_.tied)  // what lies behind the shared matrix; that itself is overwritten below
    std::fill(embedding_gradient + units_[0].parameters[1].offset, embedding_gradient + units_[0].elements,
              A(0));

  op_.layer_norm_forward(workers, x, norm_weight, norm_bias, w.normed, w.mean, w.rstd, rows, width,
                         spec_.epsilon);
  for (int64_t row = 0; row < rows; row += kHeadRows) {
    const int64_t part = std::min(kHeadRows, rows - row);
    op_.head_forward(workers, w.normed + row * width, weight, w.logits, part, width, vocabulary);
    op_.cross_entropy(workers, w.logits, target + row, loss + row, part, vocabulary, scale);
    op_.head_backward(workers, w.logits, w.normed + row * width, weight, w.dnormed + row * width, dweight,
                      row > 0, part, width, vocabulary);
  }
  std::fill_n(d, rows * width, T{});  // the norm's gradient is added
  op_.layer_norm_backward(workers, x, norm_weight, w.mean, w.rstd, w.dnormed, d,
                          gradient + unit.parameters[0].offset, gradient + unit.parameters[1].offset, rows,
                          width);
}

template <typename T>
void Compute<T>::head_evaluate(const Pass& pass, const Unit& unit, const T* parameters, const T* embedding,
                               const T* x, const int32_t* target, double* loss, std::byte* workspace) const {
  const int64_t rows = pass.rows(), width = spec_.width;
  const HeadWorkspace<T> w(spec_, rows, workspace);
  const T* weight = spec_.tied ? embedding : parameters + unit.parameters[2].offset;
  op_.layer_norm_forward(*pass.workers, x, parameters + unit.parameters[0].offset,
                         parameters + unit.parameters[1].offset, w.normed, w.mean, w.rstd, rows, width,
                         spec_.epsilon);
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
  const T* weight = spec_.tied ? embedding : parameters + unit.parameters[2].offset;
  op_.layer_norm_forward(*pass.workers, x + row * width, parameters + unit.parameters[0].offset,
                         parameters + unit.parameters[1].offset, w.normed, w.mean, w.rstd, 1, width,
                         spec_.epsilon);
  op_.head_forward(*pass.workers, w.normed, weight, logits, 1, width, spec_.vocabulary);
}

template class Compute<float>;
template class Compute<bf16>;
template class Compute<double>;

}  // namespace loom::model
