// Keys of all families, and how a family's own are looked for.
#include "model/config_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/check.h"
#include "model/families.h"
#include "model/families/family.h"
#include "model/objectives/objective.h"

namespace loom::model {
namespace {

using format::Json;

/// Keys that config_json.cc reads besides those of FamilyKeys.
constexpr const char* kRead[] = {"model_type",        "architectures", "vocab_size", "tie_word_embeddings",
                                 "initializer_range", "pad_token_id",  "id2label",   "label2id",
                                 "num_labels"};

constexpr Required kRequired[] = {{"is_encoder_decoder", "false"},
                                  {"add_cross_attention", "false"},
                                  {"quantization_config", "null"},
                                  // These two name other files: of weights, and of a config for each version.
                                  {"transformers_weights", "null"},
                                  {"configuration_files", "null"},
                                  {"per_layer_config", "null"}};

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

template <typename Names>
bool has(const Names& names, std::string_view key) {
  return std::any_of(std::begin(names), std::end(names), [&](const char* name) { return key == name; });
}

bool is_known(Family family, std::string_view key) {
  const FamilyKeys& names = description_of(family).keys;
  const char* const common[] = {names.context,          names.width,
                                names.layers,           names.heads,
                                names.feed_forward,     names.activation,
                                names.epsilon,          names.embedding_dropout,
                                names.residual_dropout, names.attention_dropout};
  const auto is_key = [&](const char* name) { return name != nullptr && key == name; };
  const auto requires_it = [&](const Required& one) { return key == one.key; };
  return std::any_of(std::begin(common), std::end(common), is_key) || has(kRead, key) ||
         has(names.read, key) || has(kWithoutMeaning, key) || has(names.without_meaning, key) ||
         std::any_of(names.aliases.begin(), names.aliases.end(),
                     [&](const KeyAlias& one) { return key == one.alias; }) ||
         std::any_of(std::begin(kRequired), std::end(kRequired), requires_it) ||
         std::any_of(names.required.begin(), names.required.end(), requires_it);
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

const char* key_in(const Json& config, Family family, const char* own) {
  for (const KeyAlias& one : description_of(family).keys.aliases)
    if (std::string_view(own) == one.own && config.contains(one.alias) && !config[one.alias].is_null())
      return one.alias;
  return own;
}

Status check_required(const Json& config, Family family, Task task, bool computes) {
  for (const Required& required : kRequired) LOOM_TRY(check_value(config, required));
  for (const Required& required : description_of(family).keys.required)
    LOOM_TRY(check_value(config, required));
  // Earlier versions of transformers take heads out of the matrices that a file has.
  if (config.contains("pruned_heads") && !config["pruned_heads"].empty())
    return fail(Code::unsupported, "pruned_heads is {}; only whole layers are supported, {{}}",
                config["pruned_heads"].dump());
  const char* const right = objective_of(task).problem_type;
  if (right != nullptr && computes && config.contains("problem_type") && !config["problem_type"].is_null() &&
      config["problem_type"] != right)
    return fail(Code::unsupported, "problem_type is {}; only \"{}\", one class a text, is supported",
                config["problem_type"].dump(), right);
  return {};
}

std::vector<std::string> unknown_keys(const Json& config, Family family) {
  std::vector<std::string> unknown;
  for (const auto& [key, value] : config.items())
    if (!is_known(family, key)) unknown.push_back(key);
  const FamilyKeys& names = description_of(family).keys;
  for (const char* const nested : names.nested)
    if (config.contains(nested) && config[nested].is_object())
      for (const auto& [key, value] : config[nested].items())
        if (!has(names.nested_read, key)) unknown.push_back(fmt::format("{}.{}", nested, key));
  return unknown;
}

}  // namespace loom::model
