// The embedding: tokens, positions and types added up, and normalized by some families.
#include <algorithm>

#include "model/norm.h"
#include "model/positions.h"
#include "model/regions.h"

namespace loom::model {
namespace {

/// What is added up, before any norm. The table of positions may begin with rows that no token takes.
template <typename T>
void add_up(const ops::Operators<T>& op, const Pass& pass, const Unit& unit, const T* parameters,
            const int32_t* token, T* y) {
  const ModelSpec& spec = *pass.spec;
  const T* positions = unit.at(Part::position_embedding, parameters);
  if (positions != nullptr) positions += (spec.first_position + pass.first_token) * spec.width;
  for_position_runs(pass, token, 0, pass.rows(), [&](const PositionRun& run) {
    const T* from = positions == nullptr ? nullptr : positions + run.place * spec.width;
    op.embedding_forward(*pass.workers, token + run.first, unit.at(Part::token_embedding, parameters), from,
                         unit.at(Part::type_embedding, parameters), y + run.first * spec.width, run.rows,
                         run.period, spec.width);
  });
}

}  // namespace

template <typename T>
void Compute<T>::embedding_forward(const Pass& pass, const T* parameters, const int32_t* token, T* y,
                                   std::byte* workspace) const {
  const Unit& unit = units_.front();
  if (spec_.embedding_norm) {
    const EmbeddingWorkspace<T> w(spec_, pass.rows(), workspace);
    add_up(op_, pass, unit, parameters, token, w.sum);
    norm_forward(op_, pass, unit, Part::embedding_norm_weight, parameters, w.sum, y, w.mean, w.rstd);
  } else {
    add_up(op_, pass, unit, parameters, token, y);
  }
  const ops::Dropout dropout = embedding_dropout(pass);
  if (dropout.probability > 0) op_.dropout(*pass.workers, dropout, y, y, pass.rows() * spec_.width);
}

template <typename T>
void Compute<T>::embedding_backward(const Pass& pass, const T* parameters, const int32_t* token, T* d,
                                    A* gradient, bool add, std::byte* workspace) const {
  const Unit& unit = units_.front();
  const ops::Dropout dropout = embedding_dropout(pass);
  if (dropout.probability > 0) op_.dropout(*pass.workers, dropout, d, d, pass.rows() * spec_.width);
  if (!add) std::fill_n(gradient, unit.elements, A(0));
  if (spec_.embedding_norm) {  // what was normalized is made again: nothing of it is kept
    const EmbeddingWorkspace<T> w(spec_, pass.rows(), workspace);
    add_up(op_, pass, unit, parameters, token, w.sum);
    norm_forward(op_, pass, unit, Part::embedding_norm_weight, parameters, w.sum, w.normed, w.mean, w.rstd);
    norm_backward(op_, pass, unit, Part::embedding_norm_weight, parameters, w.sum, w.mean, w.rstd, d, d,
                  false, gradient);
  }
  A* positions = unit.at(Part::position_embedding, gradient);
  if (positions != nullptr) positions += spec_.first_position * spec_.width;
  A* const type = unit.at(Part::type_embedding, gradient);
  for_position_runs(pass, token, 0, pass.rows(), [&](const PositionRun& run) {
    const T* const of_run = d + run.first * spec_.width;
    if (!run.padding)
      op_.embedding_backward(*pass.workers, token + run.first, of_run,
                             unit.at(Part::token_embedding, gradient),
                             positions == nullptr ? nullptr : positions + run.place * spec_.width, type,
                             run.rows, run.period, spec_.width);
    else if (type != nullptr) op_.position_backward(*pass.workers, of_run, type, 0, run.rows, 1, spec_.width);
  });
}

#define LOOM_INSTANTIATE(T)                                                                                 \
  template void Compute<T>::embedding_forward(const Pass&, const T*, const int32_t*, T*, std::byte*) const; \
  template void Compute<T>::embedding_backward(const Pass&, const T*, const int32_t*, T*, acc_t<T>*, bool,  \
                                               std::byte*) const;
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(bf16)
LOOM_INSTANTIATE(fp16)
LOOM_INSTANTIATE(double)

}  // namespace loom::model
