// What Llama and the families after it have in common. Norms are by the root of the mean square, and
// feed-forward is gated. Positions are rotary, of half-split pairs. Heads of queries share heads of keys.
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
constexpr FamilyKeys llama_keys(const char* classes, std::span<const char* const> read,
                                std::span<const char* const> without_meaning, int64_t context,
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
          .without_meaning = without_meaning,
          .nested = kLlamaNested,
          .nested_read = kLlamaRope,
          .missing_feed_forward = feed_forward,
          .missing_context = context,
          .missing_epsilon = 1e-6f};
}

inline constexpr PartName kLlamaEmbedding[] = {{Part::token_embedding, "embed_tokens"}};
inline constexpr PartName kLlamaBlock[] = {{Part::norm1_weight, "input_layernorm"},
                                           {Part::qkv_weight, "self_attn.{}_proj"},
                                           {Part::head_norm_weight, "self_attn.{}_norm"},
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

/// A relative's description: all have Llama's names, and a head for classes.
constexpr FamilyDescription like_llama(Family family, const char* name, const FamilyKeys& keys,
                                       decltype(FamilyDescription::choose) choose,
                                       decltype(FamilyDescription::complete) complete,
                                       decltype(FamilyDescription::read) read,
                                       decltype(FamilyDescription::write) write) {
  return {.family = family,
          .name = name,
          .reads = Reads::one_way,
          .classifies = true,
          .choose = choose,
          .complete = complete,
          .keys = keys,
          .read = read,
          .write = write,
          .body = "model.",
          .blocks = "layers.",
          .embedding_names = kLlamaEmbedding,
          .block_names = kLlamaBlock,
          .head_name = llama_head};
}

}  // namespace loom::model
