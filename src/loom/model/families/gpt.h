// What several families have in common with GPT-2: keys of their configs, and names.
#pragma once

#include "model/families/family.h"
#include "model/objectives/objective.h"

namespace loom::model {

inline constexpr KeyAlias kGptAliases[] = {{"hidden_size", "n_embd"},
                                           {"max_position_embeddings", "n_positions"},
                                           {"num_attention_heads", "n_head"},
                                           {"num_hidden_layers", "n_layer"}};

/// Keys for other heads, for training elsewhere, or from older versions.
inline constexpr const char* kGptWithoutMeaning[] = {"n_ctx",
                                                     "n_special",
                                                     "predict_special_tokens",
                                                     "reorder_and_upcast_attn",
                                                     "rotary",
                                                     "scale_attn_weights",
                                                     "summary_activation",
                                                     "summary_first_dropout",
                                                     "summary_last_dropout",
                                                     "summary_proj_to_labels",
                                                     "summary_type",
                                                     "summary_use_proj",
                                                     "classifier_dropout",
                                                     "hidden_dropout"};

/// GPT-2's and GPT-J's, with the prefix of their classes and what a missing dropout stands for.
constexpr FamilyKeys gpt_keys(const char* classes, float missing_dropout) {
  return {.context = "n_positions",
          .width = "n_embd",
          .layers = "n_layer",
          .heads = "n_head",
          .feed_forward = "n_inner",
          .activation = "activation_function",
          .epsilon = "layer_norm_epsilon",
          .embedding_dropout = "embd_pdrop",
          .residual_dropout = "resid_pdrop",
          .attention_dropout = "attn_pdrop",
          .classes = classes,
          .aliases = kGptAliases,
          .without_meaning = kGptWithoutMeaning,
          .missing_dropout = missing_dropout};
}

inline constexpr PartName kGptEmbedding[] = {{Part::token_embedding, "wte"},
                                             {Part::position_embedding, "wpe"}};

inline std::string gpt_head(const ModelSpec& spec, Part weight) {
  if (weight == Part::final_norm_weight) return "transformer.ln_f";
  return spec.objective().predicts_classes ? "score" : "lm_head";
}

}  // namespace loom::model
