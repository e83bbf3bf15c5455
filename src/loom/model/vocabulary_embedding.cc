// A rank's tokens, then the rows that it has of their sum.
#include "model/vocabulary_embedding.h"

#include <algorithm>

#include "model/norm.h"
#include "model/positions.h"
#include "model/regions.h"
#include "model/sequence_parallel.h"
#include "model/split.h"

namespace loom::model {

template <typename T>
VocabularyEmbedding<T>::VocabularyEmbedding(const ModelSpec& spec, const Share& share)
    : spec_(spec),
      share_(share),
      unit_(units_of(spec, {share.degree, share.rank}).front()),
      op_(ops::operators<T>()) {}

/// y = sum + positions + the first type. The table of positions may begin with rows that no token takes.
template <typename T>
void VocabularyEmbedding<T>::add_places(const Pass& pass, const Pass& own, const PieceArrays<T>& a,
                                        T* y) const {
  const int64_t first = first_own_row(share_, pass.rows());
  const T* positions = unit_.at(Part::position_embedding, a.parameters);
  const T* type = unit_.at(Part::type_embedding, a.parameters);
  if (positions != nullptr)
    for_position_runs(pass, a.token, first, first + own.rows(), [&](const PositionRun& run) {
      const int64_t at = (run.first - first) * spec_.width;
      op_.position_forward(*pass.workers, a.sum + at,
                           positions + (spec_.first_position + run.place) * spec_.width, y + at, run.phase,
                           run.rows, run.period, spec_.width);
    });
  else if (a.sum != y) std::copy_n(a.sum, own.rows() * spec_.width, y);
  if (type != nullptr) op_.position_forward(*pass.workers, y, type, y, 0, own.rows(), 1, spec_.width);
}

template <typename T>
void VocabularyEmbedding<T>::forward(const Pass& pass, int piece, const PieceArrays<T>& a) const {
  if (piece == 0)
    return op_.split_embedding_forward(*pass.workers, a.token, unit_.at(Part::token_embedding, a.parameters),
                                       share_.vocabulary, a.sum, pass.rows(), spec_.width);
  const Pass own = rows_of(pass, share_);
  if (spec_.embedding_norm) {
    const EmbeddingWorkspace<T> w(spec_, own.rows(), a.workspace);
    add_places(pass, own, a, a.sum);
    norm_forward(op_, own, unit_, Part::embedding_norm_weight, a.parameters, a.sum, a.y, w.mean, w.rstd);
  } else {
    add_places(pass, own, a, a.y);
  }
  const ops::Dropout dropout = embedding_dropout(own);
  if (dropout.probability > 0) op_.dropout(*pass.workers, dropout, a.y, a.y, own.rows() * spec_.width);
}

template <typename T>
void VocabularyEmbedding<T>::backward(const Pass& pass, int piece, const PieceArrays<T>& a) const {
  if (piece == 1) {
    for_position_runs(pass, a.token, 0, pass.rows(), [&](const PositionRun& run) {
      if (run.padding) return;
      op_.split_embedding_backward(*pass.workers, a.token + run.first, a.incoming + run.first * spec_.width,
                                   share_.vocabulary, unit_.at(Part::token_embedding, a.gradient), run.rows,
                                   spec_.width);
    });
    return;
  }
  const Pass own = rows_of(pass, share_);
  const int64_t first = first_own_row(share_, pass.rows());
  const ops::Dropout dropout = embedding_dropout(own);
  if (dropout.probability > 0) op_.dropout(*pass.workers, dropout, a.d, a.d, own.rows() * spec_.width);
  if (!a.add_gradient) std::fill_n(a.gradient, unit_.elements, A(0));
  if (spec_.embedding_norm) {  // mean and deviation are made again: nothing but the sum is kept
    const EmbeddingWorkspace<T> w(spec_, own.rows(), a.workspace);
    norm_forward(op_, own, unit_, Part::embedding_norm_weight, a.parameters, a.sum, w.normed, w.mean, w.rstd);
    norm_backward(op_, own, unit_, Part::embedding_norm_weight, a.parameters, a.sum, w.mean, w.rstd, a.d, a.d,
                  false, a.gradient);
  }
  A* positions = unit_.at(Part::position_embedding, a.gradient);
  A* type = unit_.at(Part::type_embedding, a.gradient);
  if (positions != nullptr)
    for_position_runs(pass, a.token, first, first + own.rows(), [&](const PositionRun& run) {
      if (run.padding) return;
      op_.position_backward(*pass.workers, a.d + (run.first - first) * spec_.width,
                            positions + (spec_.first_position + run.place) * spec_.width, run.phase, run.rows,
                            run.period, spec_.width);
    });
  if (type != nullptr) op_.position_backward(*pass.workers, a.d, type, 0, own.rows(), 1, spec_.width);
}

template class VocabularyEmbedding<float>;
template class VocabularyEmbedding<bf16>;
template class VocabularyEmbedding<fp16>;
template class VocabularyEmbedding<double>;

}  // namespace loom::model
