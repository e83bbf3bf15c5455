// Runner: carries out the steps of recipes on arrays that the caller gives. Nothing is allocated here and
// nothing is remembered between calls. Exchanges are not its business: the program has them as instructions.
//
// Gradients of parameters have the layout of the unit's parameters and are overwritten, but for the
// embedding's where the caller says that they are added to.
//
// No byte of the arrays is touched by the host: the operators of a table read and write them.
//
// Thread safety: as Workers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "model/recipe.h"
#include "ops/fused.h"

namespace loom::model {

/// Where the arrays of a recipe are, and what steps need besides; null where they have no use for it.
template <typename T>
struct Bound {
  using A = acc_t<T>;
  const T *parameters = nullptr, *tied_parameters = nullptr;  // the embedding's, for a tied head
  A *gradient = nullptr, *tied_gradient = nullptr;
  int64_t gradient_elements = 0, tied_gradient_elements = 0;  // with what lies behind the units' own
  bool adds = false;  // to the embedding's gradient: a tied head's, or earlier microbatches'
  std::byte *saved = nullptr, *workspace = nullptr;
  std::array<std::byte*, kGiven> given = {};
  std::byte* const* exchanged = nullptr;  // by the array's number
  A scale = 1;                            // of the loss's derivative

  template <typename E>
  void give(Given what, E* at) {
    given[static_cast<size_t>(what)] = reinterpret_cast<std::byte*>(const_cast<std::remove_const_t<E>*>(at));
  }
};

template <typename T>
class Runner {
 public:
  /// `table` and `fused` are those of the device whose contexts run() is called with. Without `fused` steps
  /// are done one by one.
  Runner(const ModelSpec& spec, const Share& share, const ops::Operators<T>& table = ops::operators<T>(),
         const ops::FusedOperators<T>* fused = nullptr);

  /// The pass must have the batch and the tokens that the recipe is for.
  void run(const Pass& pass, const Unit& unit, const Recipe& recipe, std::span<const Step> steps,
           const Bound<T>& bound) const;

 private:
  ModelSpec spec_;
  Share share_;
  const ops::Operators<T>& table_;
  const ops::FusedOperators<T>* const fused_;
  Unit embedding_;  // as this rank holds it: a tied head's matrix
};

extern template class Runner<float>;
extern template class Runner<bf16>;
extern template class Runner<fp16>;
extern template class Runner<double>;

}  // namespace loom::model
