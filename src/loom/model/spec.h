// ModelSpec: the numbers and choices that make one model of a family. GPT-2's family is here: learned
// positions, layer norms before attention and feed-forward, biases everywhere but in the head.
//
// Thread safety: a value; pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "ops/operators.h"

namespace loom::model {

struct ModelSpec {
  int64_t vocabulary = 0;
  int64_t context = 0;  // longest sequence that has positions
  int64_t width = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t feed_forward = 0;  // width of the hidden layer
  ops::Activation activation = ops::Activation::gelu_tanh;
  float epsilon = 1e-5f;            // of layer norms
  float embedding_dropout = 0;      // after the embedding
  float residual_dropout = 0;       // of what attention and feed-forward add
  float attention_dropout = 0;      // of attention's probabilities
  bool tied = true;                 // the head's weights are the token embedding's
  float initial_deviation = 0.02f;  // of weights; those that add to the residual: / √(2 · layers)

  int64_t head_size() const { return width / heads; }
  float attention_scale() const;

  /// invalid_argument with the name of what is out of range and what would be right.
  Status check() const;

  /// Multiplications and additions of matrix products for one token at sequences of `tokens`, forward and
  /// backward, in floating-point operations: 6 for every weight of a matrix, and attention's half square (2
  /// products forward, 4 backward).
  double flops_per_token(int64_t tokens) const;
};

const char* activation_name(ops::Activation activation);

}  // namespace loom::model
