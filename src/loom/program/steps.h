// Which recipe, and which of its passes, an instruction that computes carries out.
//
// Thread safety: pure functions.
#pragma once

#include <vector>

#include "model/recipe.h"
#include "program/program.h"

namespace loom::program {

/// `units` of the model; the head's recipe is by the operation.
inline const model::Recipe& recipe_of(const model::Recipes& recipes, int unit, int units, Op op) {
  if (unit == 0) return recipes.embedding;
  if (unit + 1 < units) return recipes.block;
  return op == Op::loss ? recipes.loss : op == Op::evaluate ? recipes.evaluation : recipes.logits;
}

inline const std::vector<model::Step>& steps_of(const model::Recipe& recipe, Op op) {
  return op == Op::backward ? recipe.backward : recipe.forward;
}

/// Of what a recipe is given; the batch stands for tokens and targets.
constexpr Role role_of(model::Given given) {
  switch (given) {
    case model::Given::input: return Role::input;
    case model::Given::output: return Role::output;
    case model::Given::derivative: return Role::derivative;
    case model::Given::losses: return Role::losses;
    case model::Given::loss:
    case model::Given::right: return Role::told;
    case model::Given::logits: return Role::logits;
    default: return Role::batch;
  }
}

/// The instruction that carries out an exchange.
constexpr Op exchange_of(model::Kernel kernel) {
  return kernel == model::Kernel::gather       ? Op::tensor_gather
         : kernel == model::Kernel::all_reduce ? Op::tensor_all_reduce
                                               : Op::tensor_reduce_scatter;
}

}  // namespace loom::program
