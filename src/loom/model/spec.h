// ModelSpec: the sizes of a model, and the choices that make its family. One kind of block, configured by
// these choices, is GPT-2, GPT-J, GPT-NeoX, GPT-Neo, BLOOM, Llama, Mistral, Qwen2, Qwen3, BERT and RoBERTa;
// families.h makes the choices.
//
// Thread safety: a value; pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "ops/operators.h"

namespace loom::model {

enum class Family { gpt2, gptj, gpt_neox, gpt_neo, bloom, llama, mistral, qwen2, qwen3, bert, roberta };

/// What a model is trained for; each is described in objectives/.
enum class Task { causal, masked, classification };

/// Where a block normalizes: what enters attention and feed-forward (pre), or the sums after them (post).
enum class NormPlacement { pre, post };

/// Whether feed-forward follows attention, or both read the block's input: through one norm, or one each.
enum class Residual { serial, parallel_one_norm, parallel_two_norms };

/// How a token knows its place: a learned vector, the rotation of queries and keys, or a penalty on distance.
enum class Position { learned, rotary_interleaved, rotary_half, alibi };

/// Which token of a sequence a head of classes reads.
enum class Pooling { first, last };

/// Bounds that keep products of sizes far from what 64 bits hold; no model comes near.
constexpr int64_t kMostLayers = 1 << 16, kMostWidth = 1 << 20, kMostFeedForward = 1 << 24;
constexpr double kMostParameters = 1e15;

/// Heads of attention, of a model or of one of its tensor ranks. The heads of keys and values are shared by
/// equal numbers of the queries'.
struct AttentionGeometry {
  int64_t query_heads = 0, key_value_heads = 0, head_size = 0;

  int64_t width() const { return query_heads * head_size; }  // of queries, and of what attention makes
  int64_t key_width() const { return key_value_heads * head_size; }  // and of values
  int64_t qkv_width() const { return width() + 2 * key_width(); }
  bool divides(int64_t ranks) const { return query_heads % ranks == 0 && key_value_heads % ranks == 0; }
  AttentionGeometry of_one(int64_t ranks) const {
    return {query_heads / ranks, key_value_heads / ranks, head_size};
  }
};

struct Objective;

struct ModelSpec {
  Family family = Family::gpt2;
  Task task = Task::causal;

  int64_t vocabulary = 0;
  int64_t context = 0;  // longest sequence that has positions
  int64_t width = 0;
  int64_t layers = 0;
  int64_t heads = 0;            // of queries
  int64_t key_value_heads = 0;  // 0: as many
  int64_t head_size = 0;        // 0: width / heads
  int64_t feed_forward = 0;     // width of the hidden layer
  int64_t labels = 0;           // classes that the head tells apart, if it does
  ops::Activation activation = ops::Activation::gelu_tanh;
  float epsilon = 1e-5f;        // of norms
  float embedding_dropout = 0;  // after the embedding
  float residual_dropout = 0;   // of what attention and feed-forward add
  float attention_dropout = 0;  // of attention's probabilities
  float head_dropout = 0;       // of what a head of classes reads
  bool new_head = false;        // what a checkpoint lacks of the head begins at random
  bool new_classes = false;     // the checkpoint classifies others: the head's last layer begins at random
  bool tied = true;             // the head's weights are the token embedding's
  float initial_deviation = 0.02f;  // of weights; pre-norm, those that add to the residual: / √(2 · layers)

  NormPlacement norms = NormPlacement::pre;
  Residual residual = Residual::serial;
  Position position = Position::learned;
  int64_t first_position = 0;  // the row of the table of positions that the first token takes
  int64_t rotary_dims = 0;     // elements of a head that are turned
  float rotary_base = 10000;
  ops::RotaryScaling rotary_scaling = {};
  bool causal = true;         // attention: a token sees what stands before it only
  bool scaled_scores = true;  // by 1 / √head_size
  int64_t window = 0;         // tokens that one sees in local layers, itself included
  std::vector<bool> local;    // whether a layer is; empty: none
  bool embedding_norm = false;
  int64_t token_types = 0;  // rows of their table, of which the first is added to every token; 0: none
  bool rms_norm = false;    // norms have neither mean nor bias
  bool head_norms = false;  // each head of queries and keys is normed before it turns
  bool gated = false;       // the hidden layer is activation(gate) · up, both of them products
  bool qkv_bias = true;
  bool projection_bias = true;
  bool feed_forward_bias = true;
  bool head_bias = false;
  bool head_transform = false;  // dense, activation and norm stand before the logits
  /// Of that transform: the blocks' own, or always the same.
  std::optional<ops::Activation> head_activation;
  bool pooler = false;  // dense and tanh stand before the logits
  bool dropout_before_pooler = false;
  Pooling pooling = Pooling::last;
  int32_t padding = -1;  // token that fills sequences up at their end; -1: none does

  AttentionGeometry attention() const;
  /// Columns of feed-forward's first product, of a hidden layer of that width.
  int64_t up_columns(int64_t hidden) const { return gated ? 2 * hidden : hidden; }
  float attention_scale() const;
  bool rotary() const {
    return position == Position::rotary_interleaved || position == Position::rotary_half;
  }
  /// Tokens that one sees in this layer; 0: all.
  int64_t window_of(int64_t layer) const;
  /// Keys that a query of this layer sees on average, in sequences of `tokens`: half of them where it sees
  /// only those before it.
  double keys_seen(int64_t layer, int64_t tokens) const;
  /// Of the task.
  const Objective& objective() const;
  /// Logits of a row of the head.
  int64_t outputs() const;

  /// invalid_argument with the name of what is out of range and what would be right.
  Status check() const;

  /// Floating-point operations of matrix products for one token at sequences of `tokens`, forward and
  /// backward: 6 for every weight of a matrix, and those of attention (2 products forward, 4 backward).
  /// Causal attention counts half of its square, other attention all of it, a window what is in it. The head
  /// counts for `targets` of a sequence; 0: all its tokens (Objective::rows_of_sequence).
  double flops_per_token(int64_t tokens, int64_t targets = 0) const;
  /// Weights of a block's matrices, which a row is multiplied with.
  double block_weights() const;
  /// Weights that a row of the head is multiplied with: those of the logits, and of the dense layer before
  /// them.
  double head_weights() const;
};

const char* activation_name(ops::Activation activation);

}  // namespace loom::model
