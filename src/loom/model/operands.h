// Operands: a step as a kernel sees it: its arrays, its parameters, its rows.
//
// Internal to the runner. Thread safety: as Workers.
#pragma once

#include <algorithm>

#include "model/runner.h"
#include "model/sequence_parallel.h"

namespace loom::model {

template <typename T>
struct Operands {
  using A = acc_t<T>;
  const ModelSpec& spec;
  const Share& share;
  const Unit& embedding;  // of the model, as this rank holds it
  const Pass& pass;
  const Unit& unit;
  const Recipe& recipe;
  const Bound<T>& bound;
  const Step& step;
  const ops::Operators<T>& op;

  const device::Context& context() const { return pass.context; }

  template <typename E>
  E* at(int number) const {
    if (number < 0) return nullptr;
    const Array& array = recipe.arrays[static_cast<size_t>(number)];
    switch (array.place) {
      case Place::given: return reinterpret_cast<E*>(given(array.given));
      case Place::saved: return reinterpret_cast<E*>(bound.saved + array.offset);
      case Place::workspace: return reinterpret_cast<E*>(bound.workspace + array.offset);
      case Place::exchanged: return reinterpret_cast<E*>(bound.exchanged[number]);
    }
    return nullptr;
  }
  std::byte* given(Given what) const {
    const auto derived = [](const int32_t* at) {
      return reinterpret_cast<std::byte*>(const_cast<int32_t*>(at));
    };
    switch (what) {
      case Given::picked: return derived(pass.arrays.rows);
      case Given::picked_targets: return derived(pass.arrays.targets);
      case Given::back: return derived(pass.arrays.back);
      default: return bound.given[static_cast<size_t>(what)];
    }
  }
  /// The operands and results in their order.
  template <typename E = T>
  E* in(size_t index) const {
    return at<E>(step.reads[index]);
  }
  template <typename E = T>
  E* out(size_t index) const {
    return at<E>(step.writes[index]);
  }

  /// Rows that the step works on.
  int64_t rows() const {
    if (!step.counted) return step.rows;
    return std::clamp(pass.arrays.count - step.first, int64_t{0}, step.rows);
  }
  int64_t elements() const { return rows() * step.in; }
  template <typename E>
  void copy(const E* from, E* to, int64_t count) const {
    op.copy(context(), from, to, count * static_cast<int64_t>(sizeof(E)));
  }
  template <typename E>
  void clear(E* to, int64_t count) const {
    if (count > 0) op.clear(context(), to, count * static_cast<int64_t>(sizeof(E)));
  }

  const T* parameter(Part part) const { return unit.at(part, bound.parameters); }
  A* gradient(Part part) const { return unit.at(part, bound.gradient); }
  /// The head's matrix, or its gradient: its own, or else the token embedding's.
  const T* head_matrix() const {
    return head_weight(unit, bound.parameters, embedding.at(Part::token_embedding, bound.tied_parameters));
  }
  A* head_matrix_gradient() const {
    return head_weight(unit, bound.gradient, embedding.at(Part::token_embedding, bound.tied_gradient));
  }

  /// Element i of the array that is dropped from is element `first` + i of the same array of the global
  /// batch.
  ops::Dropout dropout() const {
    const uint64_t before =
        pass.first_sample * static_cast<uint64_t>(step.per_sample) +
        static_cast<uint64_t>(step.own && share.divides_rows ? share.rank * step.rows : 0);
    return {pass.training ? step.probability : 0.0f, key_of(pass, unit.index, step.site),
            before * static_cast<uint64_t>(spec.width)};
  }
};

/// Does both steps at once, if they are a pair that can be (fusion.h).
template <typename T>
bool run_fused(const ops::FusedOperators<T>& op, const Operands<T>& first, const Operands<T>& second);

/// The kernels of embeddings, of blocks' attention, and of heads; each returns whether the step is one.
template <typename T>
bool run_embedding(const Operands<T>& o);
template <typename T>
bool run_attention(const Operands<T>& o);
template <typename T>
bool run_head(const Operands<T>& o);

}  // namespace loom::model
