// The embedding and the head in pieces: both have the vocabulary divided. And the sizes of all pieces'
// buffers.
#include <algorithm>

#include "model/norm.h"
#include "model/regions.h"
#include "model/split.h"
#include "model/split_regions.h"

namespace loom::model {
namespace {

int64_t bytes_of(int64_t elements, size_t size) { return elements * static_cast<int64_t>(size); }

}  // namespace

int64_t head_rows(const Share& share, int64_t rows) { return std::min(rows, kHeadRows * share.degree); }

int head_pairs(const Share& share, int64_t rows) {
  const int64_t most = head_rows(share, rows);
  return static_cast<int>((rows + most - 1) / most);
}

template <typename T>
SplitSizes split_sizes(const ModelSpec& spec, const Share& share, int64_t batch, int64_t tokens) {
  using A = acc_t<T>;
  const int64_t rows = batch * tokens, own = share.divides_rows ? rows / share.degree : rows;
  const int64_t columns = (spec.vocabulary + share.degree - 1) / share.degree;
  SplitSizes sizes;
  sizes.rows = bytes_of(rows * spec.width, sizeof(T));
  sizes.own = bytes_of(own * spec.width, sizeof(T));
  sizes.block_saved = SplitBlockSaved<T>(spec, share, rows, own, nullptr).bytes;
  sizes.head_saved = SplitHeadSaved<T>(spec, own, nullptr).bytes;
  sizes.logits = bytes_of(head_rows(share, rows) * columns, sizeof(A));
  sizes.numbers = bytes_of(3, sizeof(A));
  sizes.embedding_workspace = spec.embedding_norm ? EmbeddingWorkspace<T>(spec, own, nullptr).bytes : 0;
  sizes.block_workspace =
      bytes_of(rows * std::max(share.feed_forward, 4 * share.heads * spec.head_size()), sizeof(T));
  sizes.workspace = std::max(sizes.block_workspace, sizes.embedding_workspace);
  return sizes;
}

template SplitSizes split_sizes<float>(const ModelSpec&, const Share&, int64_t, int64_t);
template SplitSizes split_sizes<bf16>(const ModelSpec&, const Share&, int64_t, int64_t);
template SplitSizes split_sizes<fp16>(const ModelSpec&, const Share&, int64_t, int64_t);
template SplitSizes split_sizes<double>(const ModelSpec&, const Share&, int64_t, int64_t);

template <typename T>
SplitCompute<T>::SplitCompute(const ModelSpec& spec, const Share& share)
    : spec_(spec),
      share_(share),
      units_(units_of(spec, {share.degree, share.rank})),
      attention_(spec, share),
      feed_forward_(spec, share),
      head_layers_(spec),
      op_(ops::operators<T>()) {}

/// y = sum + positions + the first type. The table of positions may begin with rows that no token takes.
template <typename T>
void SplitCompute<T>::add_places(const Pass& pass, const Pass& own, const T* parameters, const T* sum,
                                 T* y) const {
  const Unit& unit = units_.front();
  const int64_t first = share_.divides_rows ? own.rows() * share_.rank : 0;
  const T* positions = unit.at(Part::position_embedding, parameters);
  const T* type = unit.at(Part::type_embedding, parameters);
  if (positions != nullptr)
    op_.position_forward(*pass.workers, sum, positions + spec_.first_position * spec_.width, y, first,
                         own.rows(), pass.tokens, spec_.width);
  else if (sum != y) std::copy_n(sum, own.rows() * spec_.width, y);
  if (type != nullptr) op_.position_forward(*pass.workers, y, type, y, 0, own.rows(), 1, spec_.width);
}

template <typename T>
void SplitCompute<T>::embedding_forward(const Pass& pass, int piece, const PieceArrays<T>& a) const {
  const Unit& unit = units_.front();
  if (piece == 0)
    return op_.split_embedding_forward(*pass.workers, a.token, unit.at(Part::token_embedding, a.parameters),
                                       share_.vocabulary, a.sum, pass.rows(), spec_.width);
  const Pass own = rows_of(pass, share_);
  if (spec_.embedding_norm) {
    const EmbeddingWorkspace<T> w(spec_, own.rows(), a.workspace);
    add_places(pass, own, a.parameters, a.sum, a.sum);
    norm_forward(op_, own, unit, Part::embedding_norm_weight, a.parameters, a.sum, a.y, w.mean, w.rstd);
  } else {
    add_places(pass, own, a.parameters, a.sum, a.y);
  }
  const ops::Dropout dropout = embedding_dropout(own);
  if (dropout.probability > 0) op_.dropout(*pass.workers, dropout, a.y, a.y, own.rows() * spec_.width);
}

template <typename T>
void SplitCompute<T>::embedding_backward(const Pass& pass, int piece, const PieceArrays<T>& a) const {
  const Unit& unit = units_.front();
  if (piece == 1)
    return op_.split_embedding_backward(*pass.workers, a.token, a.incoming, share_.vocabulary,
                                        unit.at(Part::token_embedding, a.gradient), pass.rows(), spec_.width);
  const Pass own = rows_of(pass, share_);
  const int64_t first = share_.divides_rows ? own.rows() * share_.rank : 0;
  const ops::Dropout dropout = embedding_dropout(own);
  if (dropout.probability > 0) op_.dropout(*pass.workers, dropout, a.d, a.d, own.rows() * spec_.width);
  if (!a.add_gradient) std::fill_n(a.gradient, unit.elements, A(0));
  if (spec_.embedding_norm) {  // mean and deviation are made again: nothing but the sum is kept
    const EmbeddingWorkspace<T> w(spec_, own.rows(), a.workspace);
    norm_forward(op_, own, unit, Part::embedding_norm_weight, a.parameters, a.sum, w.normed, w.mean, w.rstd);
    norm_backward(own, unit, Part::embedding_norm_weight, a, a.sum, w.mean, w.rstd, a.d, false);
  }
  A* positions = unit.at(Part::position_embedding, a.gradient);
  A* type = unit.at(Part::type_embedding, a.gradient);
  if (positions != nullptr)
    op_.position_backward(*pass.workers, a.d, positions + spec_.first_position * spec_.width, first,
                          own.rows(), pass.tokens, spec_.width);
  if (type != nullptr) op_.position_backward(*pass.workers, a.d, type, 0, own.rows(), 1, spec_.width);
}

/// Rows [first, first + n) from all ranks' numbers on.
template <typename T>
void SplitCompute<T>::finish_rows(const Pass& pass, int64_t first, A scale, const PieceArrays<T>& a) const {
  const int64_t n = std::min(head_rows(share_, pass.rows()), pass.rows() - first);
  op_.split_cross_entropy_finish(*pass.workers, a.logits, a.target + first, share_.vocabulary, a.all_numbers,
                                 share_.degree, share_.rank, a.loss + first, n, scale);
}

template <typename T>
void SplitCompute<T>::head(const Pass& pass, const Unit& unit, int piece, A scale,
                           const PieceArrays<T>& a) const {
  const Pass own = rows_of(pass, share_);
  const SplitHeadSaved<T> s(spec_, own.rows(), a.saved);
  const int last = head_pieces(head_pairs(share_, pass.rows())) - 1;
  if (piece == last) {
    std::copy_n(a.sum, own.rows() * spec_.width, s.arrays.dfeatures);  // which is destroyed
    return head_layers_.backward(own, unit, a.parameters, a.x, own.rows(), s.arrays, a.d, a.gradient);
  }
  if (piece == 0 || piece % 2 == 1) return head_evaluate(pass, unit, piece, a);
  const int64_t most = head_rows(share_, pass.rows()), first = (piece / 2 - 1) * most;
  const int64_t width = spec_.width, n = std::min(most, pass.rows() - first);
  const T* weight = head_weight(unit, a.parameters, units_[0].at(Part::token_embedding, a.tied_parameters));
  A* dweight = head_weight(unit, a.gradient, units_[0].at(Part::token_embedding, a.tied_gradient));
  if (first == 0 && a.tied_gradient != nullptr)  // what lies behind the shared matrix
    std::fill(dweight + units_[0].find(Part::token_embedding)->elements(),
              a.tied_gradient + units_[0].elements, A(0));
  finish_rows(pass, first, scale, a);
  op_.head_backward(*pass.workers, a.logits, a.normed + first * width, weight, a.sum + first * width, dweight,
                    unit.at(Part::head_bias, a.gradient), first > 0, n, width, share_.vocabulary.count);
}

template <typename T>
void SplitCompute<T>::head_evaluate(const Pass& pass, const Unit& unit, int piece,
                                    const PieceArrays<T>& a) const {
  const Pass own = rows_of(pass, share_);
  const SplitHeadSaved<T> s(spec_, own.rows(), a.saved);
  if (piece == 0) {
    const T* features = head_layers_.forward(own, unit, a.parameters, a.x, own.rows(), s.arrays);
    std::copy_n(features, own.rows() * spec_.width, a.normed);
    return;
  }
  const int64_t most = head_rows(share_, pass.rows()), first = (piece - 1) / 2 * most;
  if (piece % 2 == 0) return finish_rows(pass, first, A(0), a);
  const int64_t width = spec_.width, n = std::min(most, pass.rows() - first);
  const T* weight = head_weight(unit, a.parameters, units_[0].at(Part::token_embedding, a.tied_parameters));
  op_.head_forward(*pass.workers, a.normed + first * width, weight, unit.at(Part::head_bias, a.parameters),
                   a.logits, n, width, share_.vocabulary.count);
  op_.split_cross_entropy_begin(*pass.workers, a.logits, a.target + first, share_.vocabulary, a.numbers, n);
}

template <typename T>
void SplitCompute<T>::head_logits(const Pass& pass, const Unit& unit, const PieceArrays<T>& a, int64_t row,
                                  A* logits) const {
  const T* weight = head_weight(unit, a.parameters, units_[0].at(Part::token_embedding, a.tied_parameters));
  op_.head_forward(*pass.workers, a.normed + row * spec_.width, weight,
                   unit.at(Part::head_bias, a.parameters), logits, 1, spec_.width, share_.vocabulary.count);
}

#define LOOM_INSTANTIATE(T)                                                                                  \
  template SplitCompute<T>::SplitCompute(const ModelSpec&, const Share&);                                    \
  template void SplitCompute<T>::add_places(const Pass&, const Pass&, const T*, const T*, T*) const;         \
  template void SplitCompute<T>::embedding_forward(const Pass&, int, const PieceArrays<T>&) const;           \
  template void SplitCompute<T>::embedding_backward(const Pass&, int, const PieceArrays<T>&) const;          \
  template void SplitCompute<T>::finish_rows(const Pass&, int64_t, acc_t<T>, const PieceArrays<T>&) const;   \
  template void SplitCompute<T>::head(const Pass&, const Unit&, int, acc_t<T>, const PieceArrays<T>&) const; \
  template void SplitCompute<T>::head_evaluate(const Pass&, const Unit&, int, const PieceArrays<T>&) const;  \
  template void SplitCompute<T>::head_logits(const Pass&, const Unit&, const PieceArrays<T>&, int64_t,       \
                                             acc_t<T>*) const;
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(bf16)
LOOM_INSTANTIATE(fp16)
LOOM_INSTANTIATE(double)

}  // namespace loom::model
