// What Llama and the families after it have in common: norms by the root of the mean square, a gated
// feed-forward, rotary positions of half-split pairs, and heads of keys that several of the queries' share.
//
// Thread safety: pure functions.
#pragma once

#include "model/families/family.h"

namespace loom::model {

/// Keys that read_llama() reads, and those of the objects that have rotary positions.
inline constexpr const char* kLlamaNested[] = {"rope_parameters", "rope_scaling"};
inline constexpr const char* kLlamaRope[] = {"rope_type",
                                             "type",
                                             "rope_theta",
                                             "factor",
                                             "low_freq_factor",
                                             "high_freq_factor",
                                             "original_max_position_embeddings",
                                             "partial_rotary_factor"};
/// Other values ask for what is not computed here.
inline constexpr Required kLlamaRequired[] = {{"is_causal", "true"}, {"partial_rotary_factor", "1"}};

/// Keys by Llama's names. What is left out has these values in `transformers`.
constexpr FamilyKeys llama_keys(const char* classes, std::span<const char* const> read, int64_t context,
                                int64_t feed_forward) {
  return {.context = "max_position_embeddings",
          .width = "hidden_size",
          .layers = "num_hidden_layers",
          .heads = "num_attention_heads",
          .feed_forward = "intermediate_size",
          .activation = "hidden_act",
          .epsilon = "rms_norm_eps",
          .attention_dropout = "attention_dropout",
          .classes = classes,
          .read = read,
          .required = kLlamaRequired,
          .nested = kLlamaNested,
          .nested_read = kLlamaRope,
          .missing_feed_forward = feed_forward,
          .missing_context = context,
          .missing_epsilon = 1e-6f};
}

inline constexpr PartName kLlamaEmbedding[] = {{Part::token_embedding, "embed_tokens"}};
inline constexpr PartName kLlamaBlock[] = {{Part::norm1_weight, "input_layernorm"},
                                           {Part::qkv_weight, "self_attn.{}_proj"},
                                           {Part::projection_weight, "self_attn.o_proj"},
                                           {Part::norm2_weight, "post_attention_layernorm"},
                                           {Part::up_weight, "mlp.{}_proj"},
                                           {Part::down_weight, "mlp.down_proj"}};
std::string llama_head(const ModelSpec& spec, Part weight);

/// No biases, and a head of its own matrix.
void choose_llama(ModelSpec& spec);
/// Whole heads turn.
void complete_llama(ModelSpec& spec);

/// Heads of keys and values, `key_value_heads` where the config leaves them out (0: as many as of queries);
/// the size of heads; rotary positions. Errors as spec_from_config().
Status read_llama(const format::Json& config, int64_t key_value_heads, ModelSpec& spec);
void write_llama(const ModelSpec& spec, format::Json& config);

}  // namespace loom::model
