// A GPT-2 block: x + attention(norm(x)), then that plus feed_forward(norm(that)).
#include "model/regions.h"

namespace loom::model {
namespace {

/// Where in a block something is dropped.
enum class Site : uint32_t { attention = 0, projection = 1, feed_forward = 2 };

ops::Dropout dropout_of(const Pass& pass, const Unit& unit, Site site, float probability,
                        int64_t per_sample) {
  return {pass.training ? probability : 0.0f,
          {pass.seed, pass.step, static_cast<uint32_t>(unit.index) * 4 + static_cast<uint32_t>(site)},
          pass.first_sample * static_cast<uint64_t>(per_sample)};
}

ops::AttentionShape attention_of(const Pass& pass, const Unit& unit) {
  const ModelSpec& spec = *pass.spec;
  return {pass.batch,
          pass.tokens,
          spec.heads,
          spec.head_size(),
          spec.attention_scale(),
          dropout_of(pass, unit, Site::attention, spec.attention_dropout,
                     spec.heads * pass.tokens * pass.tokens)};
}

/// The parameters of a block, or their gradients, by what they are.
template <typename E>
struct BlockParameters {
  E *norm1_weight, *norm1_bias, *qkv_weight, *qkv_bias, *projection_weight, *projection_bias, *norm2_weight,
      *norm2_bias, *up_weight, *up_bias, *down_weight, *down_bias;

  BlockParameters(const Unit& unit, E* buffer) {
    E** const slots[] = {&norm1_weight,      &norm1_bias,      &qkv_weight,   &qkv_bias,
                         &projection_weight, &projection_bias, &norm2_weight, &norm2_bias,
                         &up_weight,         &up_bias,         &down_weight,  &down_bias};
    for (size_t i = 0; i < std::size(slots); ++i) *slots[i] = buffer + unit.parameters[i].offset;
  }
};

}  // namespace

template <typename T>
void Compute<T>::block_forward(const Pass& pass, const Unit& unit, const T* parameters, const T* x,
                               std::byte* saved, T* y, std::byte* workspace) const {
  Workers& workers = *pass.workers;
  const int64_t rows = pass.rows(), width = spec_.width, hidden = spec_.feed_forward;
  const BlockParameters<const T> p(unit, parameters);
  const BlockSaved<T> s(spec_, pass.batch, pass.tokens, saved);
  const BlockWorkspace<T> w(spec_, rows, workspace);

  op_.layer_norm_forward(workers, x, p.norm1_weight, p.norm1_bias, s.norm1, s.mean1, s.rstd1, rows, width,
                         spec_.epsilon);
  op_.linear_forward(workers, s.norm1, p.qkv_weight, p.qkv_bias, s.qkv, rows, width, 3 * width);
  op_.attention_forward(workers, attention_of(pass, unit), s.qkv, s.attention, s.lse);
  op_.linear_forward(workers, s.attention, p.projection_weight, p.projection_bias, w.narrow, rows, width,
                     width);
  op_.add_dropout(workers,
                  dropout_of(pass, unit, Site::projection, spec_.residual_dropout, pass.tokens * width), x,
                  w.narrow, s.middle, rows * width);

  op_.layer_norm_forward(workers, s.middle, p.norm2_weight, p.norm2_bias, s.norm2, s.mean2, s.rstd2, rows,
                         width, spec_.epsilon);
  op_.linear_forward(workers, s.norm2, p.up_weight, p.up_bias, s.hidden, rows, width, hidden);
  op_.activation_forward(workers, spec_.activation, s.hidden, s.activated, rows * hidden);
  op_.linear_forward(workers, s.activated, p.down_weight, p.down_bias, w.narrow, rows, hidden, width);
  op_.add_dropout(workers,
                  dropout_of(pass, unit, Site::feed_forward, spec_.residual_dropout, pass.tokens * width),
                  s.middle, w.narrow, y, rows * width);
}

template <typename T>
void Compute<T>::block_backward(const Pass& pass, const Unit& unit, const T* parameters, const T* x,
                                const std::byte* saved, T* d, A* gradient, std::byte* workspace) const {
  Workers& workers = *pass.workers;
  const int64_t rows = pass.rows(), width = spec_.width, hidden = spec_.feed_forward;
  const BlockParameters<const T> p(unit, parameters);
  const BlockParameters<A> g(unit, gradient);
  const BlockSaved<T> s(spec_, pass.batch, pass.tokens, const_cast<std::byte*>(saved));  // only read
  const BlockWorkspace<T> w(spec_, rows, workspace);
  // What came through a dropout goes back through it; without one it is d itself.
  const auto through = [&](Site site) -> const T* {
    const ops::Dropout dropout = dropout_of(pass, unit, site, spec_.residual_dropout, pass.tokens * width);
    if (dropout.probability == 0) return d;
    op_.dropout(workers, dropout, d, w.masked, rows * width);
    return w.masked;
  };

  const T* dy = through(Site::feed_forward);
  op_.linear_backward_weight(workers, s.activated, dy, g.down_weight, g.down_bias, rows, hidden, width);
  op_.linear_backward_input(workers, dy, p.down_weight, w.wide, rows, hidden, width);
  op_.activation_backward(workers, spec_.activation, s.hidden, w.wide, w.wide, rows * hidden);
  op_.linear_backward_weight(workers, s.norm2, w.wide, g.up_weight, g.up_bias, rows, width, hidden);
  op_.linear_backward_input(workers, w.wide, p.up_weight, w.narrow, rows, width, hidden);
  op_.layer_norm_backward(workers, s.middle, p.norm2_weight, s.mean2, s.rstd2, w.narrow, d, g.norm2_weight,
                          g.norm2_bias, rows, width);

  dy = through(Site::projection);
  T *dqkv = w.wide, *dattention = w.wide + 3 * rows * width;
  op_.linear_backward_weight(workers, s.attention, dy, g.projection_weight, g.projection_bias, rows, width,
                             width);
  op_.linear_backward_input(workers, dy, p.projection_weight, dattention, rows, width, width);
  op_.attention_backward(workers, attention_of(pass, unit), s.qkv, s.attention, s.lse, dattention, dqkv);
  op_.linear_backward_weight(workers, s.norm1, dqkv, g.qkv_weight, g.qkv_bias, rows, width, 3 * width);
  op_.linear_backward_input(workers, dqkv, p.qkv_weight, w.narrow, rows, width, 3 * width);
  op_.layer_norm_backward(workers, x, p.norm1_weight, s.mean1, s.rstd1, w.narrow, d, g.norm1_weight,
                          g.norm1_bias, rows, width);
}

#define LOOM_INSTANTIATE(T)                                                                                \
  template void Compute<T>::block_forward(const Pass&, const Unit&, const T*, const T*, std::byte*, T*,    \
                                          std::byte*) const;                                               \
  template void Compute<T>::block_backward(const Pass&, const Unit&, const T*, const T*, const std::byte*, \
                                           T*, acc_t<T>*, std::byte*) const;
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(bf16)
LOOM_INSTANTIATE(double)

}  // namespace loom::model
