// The layers before the logits on the rows that a rank has, and its columns of the logits of all.
#include "model/vocabulary_head.h"

#include <algorithm>

#include "model/compute.h"
#include "model/sequence_parallel.h"
#include "model/split.h"
#include "model/split_regions.h"

namespace loom::model {

int64_t head_rows(const Share& share, int64_t rows) { return std::min(rows, kHeadRows * share.degree); }

int head_pairs(const Share& share, int64_t rows) {
  const int64_t most = head_rows(share, rows);
  return static_cast<int>((rows + most - 1) / most);
}

template <typename T>
VocabularyHead<T>::VocabularyHead(const ModelSpec& spec, const Share& share)
    : spec_(spec),
      share_(share),
      embedding_(units_of(spec, {share.degree, share.rank}).front()),
      layers_(spec),
      op_(ops::operators<T>()) {}

/// Rows [first, first + n) from all ranks' numbers on.
template <typename T>
void VocabularyHead<T>::finish_rows(const Pass& pass, int64_t first, A scale, const PieceArrays<T>& a) const {
  const int64_t n = std::min(head_rows(share_, pass.rows()), pass.rows() - first);
  op_.split_cross_entropy_finish(*pass.workers, a.logits, a.target + first, share_.vocabulary, a.all_numbers,
                                 share_.degree, share_.rank, a.loss + first, n, scale);
}

template <typename T>
void VocabularyHead<T>::step(const Pass& pass, const Unit& unit, int piece, A scale,
                             const PieceArrays<T>& a) const {
  const Pass own = rows_of(pass, share_);
  const SplitHeadSaved<T> s(spec_, own.rows(), a.saved);
  const int last = head_pieces(head_pairs(share_, pass.rows())) - 1;
  if (piece == last) {
    std::copy_n(a.sum, own.rows() * spec_.width, s.arrays.dfeatures);  // which is destroyed
    return layers_.backward(own, unit, a.parameters, a.x, own.rows(), s.arrays, a.d, a.gradient);
  }
  if (piece == 0 || piece % 2 == 1) return evaluate(pass, unit, piece, a);
  const int64_t most = head_rows(share_, pass.rows()), first = (piece / 2 - 1) * most;
  const int64_t width = spec_.width, n = std::min(most, pass.rows() - first);
  const T* weight = head_weight(unit, a.parameters, embedding_.at(Part::token_embedding, a.tied_parameters));
  A* dweight = head_weight(unit, a.gradient, embedding_.at(Part::token_embedding, a.tied_gradient));
  if (first == 0 && a.tied_gradient != nullptr)  // what lies behind the shared matrix
    std::fill(dweight + embedding_.find(Part::token_embedding)->elements(),
              a.tied_gradient + embedding_.elements, A(0));
  finish_rows(pass, first, scale, a);
  op_.head_backward(*pass.workers, a.logits, a.normed + first * width, weight, a.sum + first * width, dweight,
                    unit.at(Part::head_bias, a.gradient), first > 0, n, width, share_.vocabulary.count);
}

template <typename T>
void VocabularyHead<T>::evaluate(const Pass& pass, const Unit& unit, int piece,
                                 const PieceArrays<T>& a) const {
  const Pass own = rows_of(pass, share_);
  const SplitHeadSaved<T> s(spec_, own.rows(), a.saved);
  if (piece == 0) {
    const T* features = layers_.forward(own, unit, a.parameters, a.x, own.rows(), s.arrays);
    std::copy_n(features, own.rows() * spec_.width, a.normed);
    return;
  }
  const int64_t most = head_rows(share_, pass.rows()), first = (piece - 1) / 2 * most;
  if (piece % 2 == 0) return finish_rows(pass, first, A(0), a);
  const int64_t width = spec_.width, n = std::min(most, pass.rows() - first);
  const T* weight = head_weight(unit, a.parameters, embedding_.at(Part::token_embedding, a.tied_parameters));
  op_.head_forward(*pass.workers, a.normed + first * width, weight, unit.at(Part::head_bias, a.parameters),
                   a.logits, n, width, share_.vocabulary.count);
  op_.split_cross_entropy_begin(*pass.workers, a.logits, a.target + first, share_.vocabulary, a.numbers, n);
}

template <typename T>
void VocabularyHead<T>::logits(const Pass& pass, const Unit& unit, const PieceArrays<T>& a, int64_t row,
                               A* logits) const {
  const T* weight = head_weight(unit, a.parameters, embedding_.at(Part::token_embedding, a.tied_parameters));
  op_.head_forward(*pass.workers, a.normed + row * spec_.width, weight,
                   unit.at(Part::head_bias, a.parameters), logits, 1, spec_.width, share_.vocabulary.count);
}

template class VocabularyHead<float>;
template class VocabularyHead<bf16>;
template class VocabularyHead<fp16>;
template class VocabularyHead<double>;

}  // namespace loom::model
