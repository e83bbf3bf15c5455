// The table. Rows of a family stand beside those of all families.
#include "model/config_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/check.h"
#include "model/families.h"

namespace loom::model {
namespace {

using format::Json;

constexpr KeyAlias kGptAliases[] = {{"hidden_size", "n_embd"},
                                    {"max_position_embeddings", "n_positions"},
                                    {"num_attention_heads", "n_head"},
                                    {"num_hidden_layers", "n_layer"}};
constexpr KeyAlias kGptNeoAliases[] = {{"num_attention_heads", "num_heads"},
                                       {"num_hidden_layers", "num_layers"}};
constexpr KeyAlias kBloomAliases[] = {
    {"num_attention_heads", "n_head"}, {"num_hidden_layers", "n_layer"}, {"n_embed", "hidden_size"}};

/// Keys that config_json.cc reads besides those of FamilyKeys.
constexpr const char* kRead[] = {"model_type",        "architectures", "vocab_size", "tie_word_embeddings",
                                 "initializer_range", "pad_token_id",  "id2label",   "label2id",
                                 "num_labels"};

std::span<const char* const> read_by(Family family) {
  static constexpr const char* kGptJ[] = {"rotary_dim"};
  static constexpr const char* kNeoX[] = {"use_parallel_residual", "attention_bias",  "rotary_pct",
                                          "rotary_emb_base",       "rope_parameters", "head_dim"};
  static constexpr const char* kGptNeo[] = {"window_size", "attention_types", "attention_layers"};
  static constexpr const char* kBert[] = {"classifier_dropout", "type_vocab_size"};
  switch (family) {
    case Family::gptj: return kGptJ;
    case Family::gpt_neox: return kNeoX;
    case Family::gpt_neo: return kGptNeo;
    case Family::bert:
    case Family::roberta: return kBert;
    default: return {};
  }
}

/// A key whose other values ask for what is not computed here; `value` is JSON.
struct Required {
  const char *key, *value;
};

constexpr Required kRequired[] = {{"is_encoder_decoder", "false"},
                                  {"add_cross_attention", "false"},
                                  {"quantization_config", "null"},
                                  // These two name other files: of weights, and of a config for each version.
                                  {"transformers_weights", "null"},
                                  {"configuration_files", "null"},
                                  {"per_layer_config", "null"}};

std::span<const Required> required_of(Family family) {
  static constexpr Required kGpt2[] = {{"scale_attn_weights", "true"},
                                       {"scale_attn_by_inverse_layer_idx", "false"}};
  static constexpr Required kNeoX[] = {{"rope_scaling", "null"}};
  static constexpr Required kBloom[] = {{"apply_residual_connection_post_layernorm", "false"}};
  static constexpr Required kBert[] = {{"position_embedding_type", "\"absolute\""}, {"is_decoder", "false"}};
  switch (family) {
    case Family::gpt2: return kGpt2;
    case Family::gpt_neox: return kNeoX;
    case Family::bloom: return kBloom;
    case Family::bert:
    case Family::roberta: return kBert;
    default: return {};
  }
}

/// These keys say where a model comes from, how it is stored or run, what is returned, and how texts are
/// generated; or only the tokenizer needs them.
constexpr const char* kWithoutMeaning[] = {
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_commit_hash",
    "_name_or_path",
    "_num_labels",
    "attn_implementation",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "chunk_size_feed_forward",
    "cross_attention_hidden_size",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "experts_implementation",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "is_decoder",
    "keys_to_ignore_at_inference",
    "length_penalty",
    "max_length",
    "min_length",
    "name_or_path",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "output_scores",
    "prefix",
    "problem_type",
    "pruned_heads",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tie_last_hidden_states",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "typical_p",
    "unk_token_id",
    "use_bfloat16",
    "use_cache",
    "xla_device",
};

/// These keys of a family are for other heads, for training elsewhere, or from older versions.
std::span<const char* const> without_meaning(Family family) {
  static constexpr const char* kGpt[] = {"n_ctx",
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
  static constexpr const char* kNeoX[] = {"attention_probs_dropout_prob", "hidden_dropout_prob",
                                          "masked_softmax_fusion",        "classifier_dropout",
                                          "partial_rotary_factor",        "rope_theta"};
  static constexpr const char* kBloom[] = {"attention_softmax_in_fp32",
                                           "bias_dropout_fusion",
                                           "masked_softmax_fusion",
                                           "n_inner",
                                           "offset_alibi",
                                           "pretraining_pp",
                                           "pretraining_tp",
                                           "skip_bias_add",
                                           "skip_bias_add_qkv",
                                           "slow_but_exact",
                                           "classifier_dropout"};
  static constexpr const char* kBert[] = {
      "directionality",       "pooler_fc_size",       "pooler_num_attention_heads",
      "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type"};
  switch (family) {
    case Family::gpt2:
    case Family::gptj:
    case Family::gpt_neo: return kGpt;
    case Family::gpt_neox: return kNeoX;
    case Family::bloom: return kBloom;
    case Family::bert:
    case Family::roberta: return kBert;
  }
  return {};
}

template <typename Names>
bool has(const Names& names, std::string_view key) {
  return std::any_of(std::begin(names), std::end(names), [&](const char* name) { return key == name; });
}

bool is_known(Family family, std::string_view key) {
  const FamilyKeys names = keys_of(family);
  const char* const common[] = {names.context,          names.width,
                                names.layers,           names.heads,
                                names.feed_forward,     names.activation,
                                names.epsilon,          names.embedding_dropout,
                                names.residual_dropout, names.attention_dropout};
  const auto is_key = [&](const char* name) { return name != nullptr && key == name; };
  const auto requires_it = [&](const Required& one) { return key == one.key; };
  const std::span<const Required> required = required_of(family);
  return std::any_of(std::begin(common), std::end(common), is_key) || has(kRead, key) ||
         has(read_by(family), key) || has(kWithoutMeaning, key) || has(without_meaning(family), key) ||
         std::any_of(names.aliases.begin(), names.aliases.end(),
                     [&](const KeyAlias& one) { return key == one.alias; }) ||
         std::any_of(std::begin(kRequired), std::end(kRequired), requires_it) ||
         std::any_of(required.begin(), required.end(), requires_it);
}

/// Where a false value is right, null is, too.
Status check_value(const Json& config, const Required& required) {
  if (!config.contains(required.key)) return {};
  const Json& value = config[required.key];
  const Json right = Json::parse(required.value);
  if (value == right || (value.is_null() && right == false)) return {};
  return fail(Code::unsupported, "{} is {}; only {} is supported{}", required.key, value.dump(),
              required.value, right.is_null() ? ", or no such key" : "");
}

}  // namespace

FamilyKeys keys_of(Family family) {
  const FamilyKeys gpt = {"n_positions",
                          "n_embd",
                          "n_layer",
                          "n_head",
                          "n_inner",
                          "activation_function",
                          "layer_norm_epsilon",
                          "embd_pdrop",
                          "resid_pdrop",
                          "attn_pdrop",
                          family == Family::gptj ? "GPTJ" : "GPT2",
                          kGptAliases,
                          family == Family::gptj ? 0.0f : 0.1f};
  const FamilyKeys bert = {"max_position_embeddings",
                           "hidden_size",
                           "num_hidden_layers",
                           "num_attention_heads",
                           "intermediate_size",
                           "hidden_act",
                           "layer_norm_eps",
                           "hidden_dropout_prob",
                           "hidden_dropout_prob",
                           "attention_probs_dropout_prob",
                           family == Family::roberta ? "Roberta" : "Bert",
                           {},
                           0.1f,
                           3072};
  switch (family) {
    case Family::gpt2:
    case Family::gptj: return gpt;
    case Family::bert:
    case Family::roberta: return bert;
    case Family::gpt_neox:
      return {"max_position_embeddings",
              "hidden_size",
              "num_hidden_layers",
              "num_attention_heads",
              "intermediate_size",
              "hidden_act",
              "layer_norm_eps",
              "hidden_dropout",
              "hidden_dropout",
              "attention_dropout",
              "GPTNeoX",
              {},
              0,
              24576};
    case Family::gpt_neo:
      return {"max_position_embeddings",
              "hidden_size",
              "num_layers",
              "num_heads",
              "intermediate_size",
              "activation_function",
              "layer_norm_epsilon",
              "embed_dropout",
              "resid_dropout",
              "attention_dropout",
              "GPTNeo",
              kGptNeoAliases};
    case Family::bloom:
      return {"seq_length", "hidden_size",        "n_layer", "n_head",         nullptr,
              nullptr,      "layer_norm_epsilon", nullptr,   "hidden_dropout", "attention_dropout",
              "Bloom",      kBloomAliases};
  }
  return {};
}

const char* key_in(const Json& config, Family family, const char* own) {
  for (const KeyAlias& one : keys_of(family).aliases)
    if (std::string_view(own) == one.own && config.contains(one.alias) && !config[one.alias].is_null())
      return one.alias;
  return own;
}

Status check_required(const Json& config, Family family, Task task, bool computes) {
  for (const Required& required : kRequired) LOOM_TRY(check_value(config, required));
  for (const Required& required : required_of(family)) LOOM_TRY(check_value(config, required));
  // Earlier versions of transformers take heads out of the matrices that a file has.
  if (config.contains("pruned_heads") && !config["pruned_heads"].empty())
    return fail(Code::unsupported, "pruned_heads is {}; only whole layers are supported, {{}}",
                config["pruned_heads"].dump());
  if (computes && task == Task::classification && config.contains("problem_type") &&
      !config["problem_type"].is_null() && config["problem_type"] != "single_label_classification")
    return fail(Code::unsupported,
                "problem_type is {}; only \"single_label_classification\", one class a text, is supported",
                config["problem_type"].dump());
  return {};
}

std::vector<std::string> unknown_keys(const Json& config, Family family) {
  std::vector<std::string> unknown;
  for (const auto& [key, value] : config.items())
    if (!is_known(family, key)) unknown.push_back(key);
  if (family == Family::gpt_neox && config.contains("rope_parameters") &&
      config["rope_parameters"].is_object())
    for (const auto& [key, value] : config["rope_parameters"].items())
      if (key != "rope_type" && key != "type" && key != "rope_theta" && key != "partial_rotary_factor")
        unknown.push_back("rope_parameters." + key);
  return unknown;
}

}  // namespace loom::model
