// Fusion: which neighbouring steps of a recipe a GPU does at once (ops/fused.h).
//
// Thread safety: pure functions.
#pragma once

#include "model/recipe.h"

namespace loom::model {

enum class Fusion {
  none,
  residual_norm,               // residual, norm of the sum
  norm_gradient_dropout,       // norm_gradient, dropout of what it made
  linear_gelu,                 // linear, GELU of what it made
  linear_input_gelu_gradient,  // linear_input, GELU's derivative times what it made
};

/// Of two steps of which the second follows the first.
Fusion fusion_of(const Step& first, const Step& second);

}  // namespace loom::model
