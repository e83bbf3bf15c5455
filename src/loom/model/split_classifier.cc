// Rows to and from the head that one rank computes.
#include "model/split_classifier.h"

#include <algorithm>

#include "model/regions.h"
#include "model/sequence_parallel.h"

namespace loom::model {
namespace {

/// What the head reads and makes of the rows that were picked.
template <typename T>
struct Picked {
  Divider divider;
  int32_t* target;  // [B]
  double* loss;     // [B]
  T* d;             // [B, C]
  std::byte* workspace;
  int64_t bytes;

  Picked(const ModelSpec& spec, int64_t batch, std::byte* buffer)
      : divider(buffer),
        target(divider.take<int32_t>(batch)),
        loss(divider.take<double>(batch)),
        d(divider.take<T>(batch * spec.width)),
        workspace(divider.take<std::byte>(HeadWorkspace<T>(spec, batch, 1, nullptr).bytes)),
        bytes(divider.bytes()) {}

  /// The target of a sequence is at its first token.
  void take_targets(const Pass& pass, const int32_t* from) {
    for (int64_t sequence = 0; sequence < pass.batch; ++sequence)
      target[sequence] = from[sequence * pass.tokens];
  }
};

/// The pass over the rows that were picked: sequences of one token each. What is dropped is found by the
/// number of the sequence, which stays.
Pass pass_of_picked(const Pass& pass) {
  Pass picked = pass;
  picked.tokens = 1;
  picked.lengths = nullptr;
  return picked;
}

}  // namespace

template <typename T>
ClassifierSizes classifier_sizes(const ModelSpec& spec, int64_t batch) {
  return {batch * spec.width * static_cast<int64_t>(sizeof(T)), Picked<T>(spec, batch, nullptr).bytes};
}

template ClassifierSizes classifier_sizes<float>(const ModelSpec&, int64_t);
template ClassifierSizes classifier_sizes<bf16>(const ModelSpec&, int64_t);
template ClassifierSizes classifier_sizes<fp16>(const ModelSpec&, int64_t);
template ClassifierSizes classifier_sizes<double>(const ModelSpec&, int64_t);

template <typename T>
SplitClassifier<T>::SplitClassifier(const ModelSpec& spec, const Share& share)
    : spec_(spec), share_(share), whole_(spec, Share::whole(spec)) {}

template <typename T>
int64_t SplitClassifier<T>::place_of(const Pass& pass, int64_t sequence) const {
  const int64_t row = pooled_row(pass, sequence);
  const int64_t place = row - first_own_row(share_, pass.rows());
  return place >= 0 && place < own_rows(share_, pass.rows()) ? place : -1;
}

template <typename T>
void SplitClassifier<T>::pick(const Pass& pass, const PieceArrays<T>& a) const {
  const int64_t width = spec_.width;
  for (int64_t sequence = 0; sequence < pass.batch; ++sequence) {
    const int64_t place = place_of(pass, sequence);
    T* row = a.sum + sequence * width;
    if (place >= 0) std::copy_n(a.x + place * width, width, row);
    else std::fill_n(row, width, T{});
  }
}

template <typename T>
void SplitClassifier<T>::return_losses(const Pass& pass, const double* loss, double* losses) const {
  std::fill_n(losses, pass.rows(), 0.0);
  for (int64_t sequence = 0; sequence < pass.batch; ++sequence)
    losses[sequence * pass.tokens] = loss[sequence];
}

template <typename T>
void SplitClassifier<T>::head(const Pass& pass, const Unit& unit, int piece, A scale,
                              const PieceArrays<T>& a) const {
  if (piece == 0) return pick(pass, a);
  Picked<T> picked(spec_, pass.batch, a.workspace);
  picked.take_targets(pass, a.target);
  whole_.head_loss(pass_of_picked(pass), unit, a.parameters, nullptr, a.sum, picked.target, scale,
                   picked.loss, picked.d, a.gradient, nullptr, picked.workspace);
  return_losses(pass, picked.loss, a.loss);
  const int64_t width = spec_.width;
  std::fill_n(a.d, own_rows(share_, pass.rows()) * width, T{});
  for (int64_t sequence = 0; sequence < pass.batch; ++sequence)
    if (const int64_t place = place_of(pass, sequence); place >= 0)
      std::copy_n(picked.d + sequence * width, width, a.d + place * width);
}

template <typename T>
void SplitClassifier<T>::evaluate(const Pass& pass, const Unit& unit, int piece,
                                  const PieceArrays<T>& a) const {
  if (piece == 0) return pick(pass, a);
  Picked<T> picked(spec_, pass.batch, a.workspace);
  picked.take_targets(pass, a.target);
  whole_.head_evaluate(pass_of_picked(pass), unit, a.parameters, nullptr, a.sum, picked.target, picked.loss,
                       picked.workspace);
  return_losses(pass, picked.loss, a.loss);
}

template <typename T>
void SplitClassifier<T>::logits(const Pass& pass, const Unit& unit, const PieceArrays<T>& a, int64_t row,
                                A* logits) const {
  const Picked<T> picked(spec_, pass.batch, a.workspace);
  whole_.head_logits(pass_of_picked(pass), unit, a.parameters, nullptr, a.sum, row / pass.tokens, logits,
                     picked.workspace);
}

template class SplitClassifier<float>;
template class SplitClassifier<bf16>;
template class SplitClassifier<fp16>;
template class SplitClassifier<double>;

}  // namespace loom::model
