// Kernels of attention between its two projections, on the heads that a rank has.
#include "model/operands.h"

namespace loom::model {
namespace {

template <typename T>
ops::AttentionShape shape_of(const Operands<T>& o) {
  ops::AttentionShape shape;
  shape.batch = o.pass.batch;
  shape.tokens = o.pass.tokens;
  shape.heads = o.share.attention.query_heads;
  shape.key_value_heads = o.share.attention.key_value_heads;
  shape.head_size = o.share.attention.head_size;
  shape.scale = o.spec.attention_scale();
  shape.causal = o.spec.causal;
  shape.window = o.spec.window_of(o.unit.index - 1);
  shape.alibi = o.spec.position == Position::alibi;
  shape.lengths = o.spec.causal ? nullptr : o.pass.arrays.lengths;
  shape.begins = o.pass.arrays.begins;
  shape.ends = o.pass.arrays.ends;
  shape.first_head = o.share.first_head;
  shape.all_heads = o.spec.attention().query_heads;
  const int64_t pairs = shape.all_heads * o.pass.tokens * o.pass.tokens;
  shape.dropout = {o.pass.training ? o.spec.attention_dropout : 0.0f,
                   key_of(o.pass, o.unit.index, Site::attention),
                   o.pass.first_sample * static_cast<uint64_t>(pairs)};
  return shape;
}

template <typename T>
ops::RotaryShape rotary_of(const Operands<T>& o) {
  ops::RotaryShape shape;
  shape.batch = o.pass.batch;
  shape.tokens = o.pass.tokens;
  shape.heads = o.share.attention.query_heads;
  shape.key_value_heads = o.share.attention.key_value_heads;
  shape.head_size = o.share.attention.head_size;
  shape.dims = o.spec.rotary_dims;
  shape.interleaved = o.spec.position == Position::rotary_interleaved;
  shape.base = o.spec.rotary_base;
  shape.scaling = o.spec.rotary_scaling;
  shape.first_position = o.pass.first_token;
  return shape;
}

template <typename T>
ops::HeadRows head_rows_of(const Operands<T>& o) {
  const AttentionGeometry& heads = o.share.attention;
  return {o.rows(), heads.query_heads, heads.key_value_heads, heads.head_size};
}

/// Of one token, with the keys and values of those before it, which its own join.
template <typename T>
void attend_to_past(const Operands<T>& o) {
  const int64_t across = o.share.attention.key_width(), at = o.pass.first_token;
  T *const qkv = o.in(0), *const keys = reinterpret_cast<T*>(o.pass.past),
           *const values = keys + o.pass.past_tokens * across, *const key = qkv + o.share.attention.width();
  o.copy(key, keys + at * across, across);
  o.copy(key + across, values + at * across, across);
  o.op.attention_step(o.context(), shape_of(o), qkv, keys, values, at, o.out(0));
}

}  // namespace

template <typename T>
bool run_attention(const Operands<T>& o) {
  using A = acc_t<T>;
  switch (o.step.kernel) {
    case Kernel::head_norm:
      o.op.head_norm_forward(o.context(), head_rows_of(o), o.in(0), o.parameter(Part::head_norm_weight),
                             o.out(0), o.template out<A>(1), o.spec.epsilon);
      return true;
    case Kernel::head_norm_gradient:
      o.op.head_norm_backward(o.context(), head_rows_of(o), o.in(0), o.parameter(Part::head_norm_weight),
                              o.template in<A>(1), o.out(0), o.gradient(Part::head_norm_weight));
      return true;
    case Kernel::rotary: o.op.rotary(o.context(), rotary_of(o), o.out(0), o.step.adds); return true;
    case Kernel::attention:
      if (o.pass.past != nullptr) attend_to_past(o);
      else o.op.attention_forward(o.context(), shape_of(o), o.in(0), o.out(0), o.template out<A>(1));
      return true;
    case Kernel::attention_gradient:
      o.op.attention_backward(o.context(), shape_of(o), o.in(0), o.in(1), o.template in<A>(2), o.in(3),
                              o.out(0));
      return true;
    default: return false;
  }
}

template bool run_attention<float>(const Operands<float>&);
template bool run_attention<bf16>(const Operands<bf16>&);
template bool run_attention<fp16>(const Operands<fp16>&);
template bool run_attention<double>(const Operands<double>&);

}  // namespace loom::model
