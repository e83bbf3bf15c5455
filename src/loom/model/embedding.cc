// The embedding.
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
void Compute<T>::embedding_forward(const Pass& pass, const T* parameters, const int32_t* token, T* y,
                                   std::byte*) const {
  const Unit& unit = units_.front();
  op_.embedding_forward(*pass.workers, token, unit.at(Part::token_embedding, parameters),
                        unit.at(Part::position_embedding, parameters), y, pass.rows(), pass.tokens,
                        spec_.width);
  const ops::Dropout dropout = embedding_dropout(pass);
  if (dropout.probability > 0) op_.dropout(*pass.workers, dropout, y, y, pass.rows() * spec_.width);
}

template <typename T>
void Compute<T>::embedding_backward(const Pass& pass, const T*, const int32_t* token, T* d, A* gradient,
                                    bool add, std::byte*) const {
  const Unit& unit = units_.front();
  const ops::Dropout dropout = embedding_dropout(pass);
  if (dropout.probability > 0) op_.dropout(*pass.workers, dropout, d, d, pass.rows() * spec_.width);
  if (!add) std::fill_n(gradient, unit.elements, A(0));
  op_.embedding_backward(*pass.workers, token, d, unit.at(Part::token_embedding, gradient),
                         unit.at(Part::position_embedding, gradient), pass.rows(), pass.tokens, spec_.width);
}

#define LOOM_INSTANTIATE(T)                                                                                 \
  template void Compute<T>::embedding_forward(const Pass&, const T*, const int32_t*, T*, std::byte*) const; \
  template void Compute<T>::embedding_backward(const Pass&, const T*, const int32_t*, T*, acc_t<T>*, bool,  \
                                               std::byte*) const;
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(bf16)
LOOM_INSTANTIATE(double)

}  // namespace loom::model
