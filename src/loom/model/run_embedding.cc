// Kernels of the embedding: rows of tables by the tokens, and their gradients.
#include "model/operands.h"
#include "model/positions.h"

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
  const int32_t* token = o.template in<int32_t>(0);
  const T* const table = positions(o, o.bound.parameters);
  for_position_runs(o.pass, token, 0, o.rows(), [&](const PositionRun& run) {
    o.op.embedding_forward(o.workers(), token + run.first, o.parameter(Part::token_embedding),
                           table == nullptr ? nullptr : table + run.place * o.spec.width,
                           o.parameter(Part::type_embedding), o.out(0) + run.first * o.spec.width, run.rows,
                           run.period, o.spec.width);
  });
}

template <typename T>
void embed_gradient(const Operands<T>& o) {
  const int32_t* token = o.template in<int32_t>(0);
  acc_t<T>*const table = positions(o, o.bound.gradient), *const type = o.gradient(Part::type_embedding);
  for_position_runs(o.pass, token, 0, o.rows(), [&](const PositionRun& run) {
    const T* const of_run = o.in(1) + run.first * o.spec.width;
    if (!run.padding)
      o.op.embedding_backward(o.workers(), token + run.first, of_run, o.gradient(Part::token_embedding),
                              table == nullptr ? nullptr : table + run.place * o.spec.width, type, run.rows,
                              run.period, o.spec.width);
    else if (type != nullptr) o.op.position_backward(o.workers(), of_run, type, 0, run.rows, 1, o.spec.width);
  });
}

template <typename T>
void split_embed_gradient(const Operands<T>& o) {
  const int32_t* token = o.template in<int32_t>(0);
  for_position_runs(o.pass, token, 0, o.rows(), [&](const PositionRun& run) {
    if (run.padding) return;
    o.op.split_embedding_backward(o.workers(), token + run.first, o.in(1) + run.first * o.spec.width,
                                  o.share.vocabulary, o.gradient(Part::token_embedding), run.rows,
                                  o.spec.width);
  });
}

/// y = x + positions + the first type, of own rows.
template <typename T>
void places(const Operands<T>& o) {
  const int64_t width = o.spec.width, first = first_own_row(o.share, o.pass.rows());
  const T *x = o.in(0), *table = positions(o, o.bound.parameters), *type = o.parameter(Part::type_embedding);
  T* const y = o.out(0);
  if (table != nullptr)
    for_position_runs(o.pass, o.template in<int32_t>(1), first, first + o.rows(),
                      [&](const PositionRun& run) {
                        const int64_t at = (run.first - first) * width;
                        o.op.position_forward(o.workers(), x + at, table + run.place * width, y + at,
                                              run.phase, run.rows, run.period, width);
                      });
  else if (x != y) std::copy_n(x, o.rows() * width, y);
  if (type != nullptr) o.op.position_forward(o.workers(), y, type, y, 0, o.rows(), 1, width);
}

template <typename T>
void places_gradient(const Operands<T>& o) {
  const int64_t width = o.spec.width, first = first_own_row(o.share, o.pass.rows());
  acc_t<T>*const table = positions(o, o.bound.gradient), *const type = o.gradient(Part::type_embedding);
  if (table != nullptr)
    for_position_runs(
        o.pass, o.template in<int32_t>(1), first, first + o.rows(), [&](const PositionRun& run) {
          if (run.padding) return;
          o.op.position_backward(o.workers(), o.in(0) + (run.first - first) * width,
                                 table + run.place * width, run.phase, run.rows, run.period, width);
        });
  if (type != nullptr) o.op.position_backward(o.workers(), o.in(0), type, 0, o.rows(), 1, width);
}

}  // namespace

template <typename T>
bool run_embedding(const Operands<T>& o) {
  switch (o.step.kernel) {
    case Kernel::embed: embed(o); return true;
    case Kernel::embed_gradient: embed_gradient(o); return true;
    case Kernel::split_embed:
      o.op.split_embedding_forward(o.workers(), o.template in<int32_t>(0), o.parameter(Part::token_embedding),
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
