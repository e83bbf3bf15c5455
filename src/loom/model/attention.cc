// Attention: two projections, and the heads between them.
#include "model/attention.h"

#include <algorithm>

namespace loom::model {

template <typename T>
ops::AttentionShape Attention<T>::shape(const Pass& pass, const Unit& unit) const {
  ops::AttentionShape shape;
  shape.batch = pass.batch;
  shape.tokens = pass.tokens;
  shape.heads = share_.heads;
  shape.head_size = spec_.head_size();
  shape.scale = spec_.attention_scale();
  shape.causal = spec_.causal;
  shape.window = spec_.window_of(unit.index - 1);
  shape.alibi = spec_.position == Position::alibi;
  shape.lengths = spec_.causal ? nullptr : pass.lengths;
  shape.first_head = share_.first_head;
  shape.all_heads = spec_.heads;
  shape.dropout = dropout_of(pass, unit.index, Site::attention, spec_.attention_dropout,
                             spec_.heads * pass.tokens * pass.tokens);
  return shape;
}

template <typename T>
ops::RotaryShape Attention<T>::rotary(const Pass& pass) const {
  ops::RotaryShape shape;
  shape.batch = pass.batch;
  shape.tokens = pass.tokens;
  shape.heads = share_.heads;
  shape.head_size = spec_.head_size();
  shape.dims = spec_.rotary_dims;
  shape.interleaved = spec_.position == Position::rotary_interleaved;
  shape.base = spec_.rotary_base;
  shape.first_position = pass.first_token;
  return shape;
}

template <typename T>
void Attention<T>::forward(const Pass& pass, const Unit& unit, const T* parameters, const T* x,
                           const AttentionSaved<T>& saved, T* product) const {
  Workers& workers = *pass.workers;
  const int64_t rows = pass.rows(), across = share_.heads * spec_.head_size();
  qkv_.forward(workers, unit, parameters, x, saved.qkv, rows);
  if (spec_.rotary()) op_.rotary(workers, rotary(pass), saved.qkv, false);
  if (pass.past != nullptr) {
    T *keys = reinterpret_cast<T*>(pass.past), *values = keys + spec_.context * across;
    std::copy_n(saved.qkv + across, across, keys + pass.first_token * across);
    std::copy_n(saved.qkv + 2 * across, across, values + pass.first_token * across);
    op_.attention_step(workers, shape(pass, unit), saved.qkv, keys, values, pass.first_token, saved.heads);
  } else {
    op_.attention_forward(workers, shape(pass, unit), saved.qkv, saved.heads, saved.lse);
  }
  projection_.forward(workers, unit, parameters, saved.heads, product, rows);
}

template <typename T>
void Attention<T>::backward(const Pass& pass, const Unit& unit, const T* parameters, const T* x,
                            const AttentionSaved<T>& saved, const T* dy, T* dx, A* gradient, T* wide) const {
  backward_input(pass, unit, parameters, saved, dy, dx, wide);
  backward_weights(pass, unit, x, saved, dy, wide, gradient);
}

template <typename T>
void Attention<T>::backward_input(const Pass& pass, const Unit& unit, const T* parameters,
                                  const AttentionSaved<T>& saved, const T* dy, T* dx, T* wide) const {
  Workers& workers = *pass.workers;
  const int64_t rows = pass.rows(), across = share_.heads * spec_.head_size();
  T *dqkv = wide, *dheads = wide + 3 * rows * across;
  projection_.backward_input(workers, unit, parameters, dy, dheads, rows);
  op_.attention_backward(workers, shape(pass, unit), saved.qkv, saved.heads, saved.lse, dheads, dqkv);
  if (spec_.rotary()) op_.rotary(workers, rotary(pass), dqkv, true);
  qkv_.backward_input(workers, unit, parameters, dqkv, dx, rows);
}

template <typename T>
void Attention<T>::backward_weights(const Pass& pass, const Unit& unit, const T* x,
                                    const AttentionSaved<T>& saved, const T* dy, const T* wide,
                                    A* gradient) const {
  qkv_.backward_weight(*pass.workers, unit, x, wide, gradient, pass.rows());
  projection_.backward_weight(*pass.workers, unit, saved.heads, dy, gradient, pass.rows());
}

template class Attention<float>;
template class Attention<bf16>;
template class Attention<fp16>;
template class Attention<double>;

}  // namespace loom::model
