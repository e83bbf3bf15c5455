// Kernels of the embedding: rows of tables by the tokens, and their gradients.
#include "model/operands.h"

namespace loom::model {
namespace {

/// The table of positions may begin with rows that no token takes.
template <typename T, typename E>
E* positions(const Operands<T>& o, E* of_unit) {
  E* const table = o.unit.at(Part::position_embedding, of_unit);
  return table == nullptr ? nullptr : table + (o.spec.first_position + o.pass.first_token) * o.spec.width;
}

template <typename T>
void embed(const Operands<T>& o) {
  o.op.embedding_forward(o.context(), o.template in<int32_t>(0), o.pass.arrays.positions,
                         o.parameter(Part::token_embedding), positions(o, o.bound.parameters),
                         o.parameter(Part::type_embedding), o.out(0), o.rows(), o.pass.tokens,
                         o.spec.vocabulary, o.spec.width);
}

template <typename T>
void embed_gradient(const Operands<T>& o) {
  o.op.embedding_backward(o.context(), o.template in<int32_t>(0), o.pass.arrays.positions, o.in(1),
                          o.gradient(Part::token_embedding), positions(o, o.bound.gradient),
                          o.gradient(Part::type_embedding), o.rows(), o.pass.tokens, o.spec.vocabulary,
                          o.spec.width);
}

template <typename T>
void split_embed_gradient(const Operands<T>& o) {
  o.op.split_embedding_backward(o.context(), o.template in<int32_t>(0), o.pass.arrays.positions, o.in(1),
                                o.share.vocabulary, o.gradient(Part::token_embedding), o.rows(),
                                o.spec.width);
}

/// Of own rows.
template <typename T>
const int32_t* own_positions(const Operands<T>& o) {
  const int32_t* const all = o.pass.arrays.positions;
  return all == nullptr ? nullptr : all + first_own_row(o.share, o.pass.rows());
}

/// y = x + positions + the first type, of own rows.
template <typename T>
void places(const Operands<T>& o) {
  const int64_t width = o.spec.width, first = first_own_row(o.share, o.pass.rows());
  const T *x = o.in(0), *table = positions(o, o.bound.parameters), *type = o.parameter(Part::type_embedding);
  T* const y = o.out(0);
  if (table != nullptr)
    o.op.position_forward(o.context(), x, table, own_positions(o), y, first, o.rows(), o.pass.tokens, width);
  else if (x != y) o.copy(x, y, o.rows() * width);
  if (type != nullptr) o.op.position_forward(o.context(), y, type, nullptr, y, 0, o.rows(), 1, width);
}

template <typename T>
void places_gradient(const Operands<T>& o) {
  const int64_t width = o.spec.width, first = first_own_row(o.share, o.pass.rows());
  acc_t<T>*const table = positions(o, o.bound.gradient), *const type = o.gradient(Part::type_embedding);
  if (table != nullptr)
    o.op.position_backward(o.context(), o.in(0), own_positions(o), table, first, o.rows(), o.pass.tokens,
                           width);
  if (type != nullptr) o.op.position_backward(o.context(), o.in(0), nullptr, type, 0, o.rows(), 1, width);
}

}  // namespace

template <typename T>
bool run_embedding(const Operands<T>& o) {
  switch (o.step.kernel) {
    case Kernel::embed: embed(o); return true;
    case Kernel::embed_gradient: embed_gradient(o); return true;
    case Kernel::split_embed:
      o.op.split_embedding_forward(o.context(), o.template in<int32_t>(0), o.parameter(Part::token_embedding),
                                   o.share.vocabulary, o.out(0), o.rows(), o.spec.width);
      return true;
    case Kernel::split_embed_gradient: split_embed_gradient(o); return true;
    case Kernel::places: places(o); return true;
    case Kernel::places_gradient: places_gradient(o); return true;
    default: return false;
  }
}

template bool run_embedding<float>(const Operands<float>&);
template bool run_embedding<bf16>(const Operands<bf16>&);
template bool run_embedding<fp16>(const Operands<fp16>&);
template bool run_embedding<double>(const Operands<double>&);

}  // namespace loom::model
