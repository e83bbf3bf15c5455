// What BERT and RoBERTa have in common (Devlin et al., 2019; Liu et al., 2019).
#pragma once

#include "base/check.h"
#include "model/config_reader.h"
#include "model/families/family.h"
#include "model/objectives/objective.h"

namespace loom::model {

inline constexpr const char* kEncoderRead[] = {"classifier_dropout", "type_vocab_size"};
inline constexpr Required kEncoderRequired[] = {{"position_embedding_type", "\"absolute\""},
                                                {"is_decoder", "false"}};
inline constexpr const char* kEncoderWithoutMeaning[] = {
    "directionality",       "pooler_fc_size",       "pooler_num_attention_heads",
    "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type"};

constexpr FamilyKeys encoder_keys(const char* classes) {
  return {.context = "max_position_embeddings",
          .width = "hidden_size",
          .layers = "num_hidden_layers",
          .heads = "num_attention_heads",
          .feed_forward = "intermediate_size",
          .activation = "hidden_act",
          .epsilon = "layer_norm_eps",
          .embedding_dropout = "hidden_dropout_prob",
          .residual_dropout = "hidden_dropout_prob",
          .attention_dropout = "attention_probs_dropout_prob",
          .classes = classes,
          .read = kEncoderRead,
          .required = kEncoderRequired,
          .without_meaning = kEncoderWithoutMeaning,
          .missing_dropout = 0.1f,
          .missing_feed_forward = 3072,
          .missing_epsilon = 1e-12f};
}

inline void choose_encoder(ModelSpec& spec) {
  spec.norms = NormPlacement::post;
  spec.causal = false;
  spec.embedding_norm = true;
  spec.activation = ops::Activation::gelu_erf;
  spec.pooling = Pooling::first;
  spec.head_bias = true;
  spec.pooler = spec.objective().predicts_classes;
  spec.head_transform = spec.tied = !spec.pooler;
}

inline Status read_encoder(const format::Json& config, ModelSpec& spec) {
  spec.head_dropout = spec.residual_dropout;
  spec.token_types = 2;
  ConfigReader keys(config);
  keys.optional<float>("classifier_dropout", spec.head_dropout)
      .optional<int64_t>("type_vocab_size", spec.token_types);
  LOOM_TRY(keys.status());
  return from_one_to("type_vocab_size", spec.token_types, kMostWidth);
}

inline void write_encoder(const ModelSpec& spec, format::Json& config) {
  config["classifier_dropout"] = spec.head_dropout;
  config["type_vocab_size"] = spec.token_types;
}

inline constexpr PartName kEncoderEmbedding[] = {{Part::token_embedding, "embeddings.word_embeddings"},
                                                 {Part::position_embedding, "embeddings.position_embeddings"},
                                                 {Part::type_embedding, "embeddings.token_type_embeddings"},
                                                 {Part::embedding_norm_weight, "embeddings.LayerNorm"}};
inline constexpr PartName kEncoderBlock[] = {{Part::norm1_weight, "attention.output.LayerNorm"},
                                             {Part::qkv_weight, "attention.self.{}"},
                                             {Part::projection_weight, "attention.output.dense"},
                                             {Part::norm2_weight, "output.LayerNorm"},
                                             {Part::up_weight, "intermediate.dense"},
                                             {Part::down_weight, "output.dense"}};
inline constexpr std::array<const char*, 3> kEncoderQkv = {"query", "key", "value"};

}  // namespace loom::model
