// config.json of every family: what all have by their keys, and what is one's own by its description.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "model/config_keys.h"
#include "model/config_reader.h"
#include "model/families.h"
#include "model/families/family.h"
#include "model/hugging_face.h"
#include "model/objectives/objective.h"

namespace loom::model {
namespace {

using format::Json;

Result<ops::Activation> activation_from(const std::string& key, const std::string& name) {
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast")
    return ops::Activation::gelu_tanh;
  if (name == "gelu") return ops::Activation::gelu_erf;
  if (name == "relu") return ops::Activation::relu;
  if (name == "silu" || name == "swish") return ops::Activation::silu;
  return fail(Code::unsupported,
              "{} is \"{}\", must be gelu_new, gelu_pytorch_tanh, gelu_fast, gelu, relu, silu or swish", key,
              name);
}

/// Whether the name of a model class in `architectures` ends with one of these.
bool names_class(const Json& config, std::initializer_list<const char*> endings) {
  if (!config.contains("architectures") || !config["architectures"].is_array()) return false;
  return std::any_of(config["architectures"].begin(), config["architectures"].end(), [&](const Json& name) {
    return name.is_string() && std::any_of(endings.begin(), endings.end(), [&](const char* ending) {
             return name.get<std::string>().ends_with(ending);
           });
  });
}

/// That tells classes apart, by the model classes in `architectures`; null: none.
const Objective* classifier_in(const Json& config) {
  for (const Objective* one : objectives())
    if (one->predicts_classes && names_class(config, {one->model_class})) return one;
  return nullptr;
}

/// What the model classes in `architectures` are for.
Task task_in(const Json& config, Family family) {
  const Objective* const classifier = classifier_in(config);
  return classifier != nullptr ? classifier->task : usual_task(family);
}

/// Whether a model of this config has the task's head: those that are named may be without any, or with one
/// that no task here has.
bool has_head(const Json& config, Family family, Task task) {
  if (task_in(config, family) != task) return false;
  if (!config.contains("architectures") || !config["architectures"].is_array()) return true;
  return config["architectures"].empty() || names_class(config, {"LMHeadModel", "ForPreTraining"}) ||
         std::ranges::any_of(objectives(),
                             [&](const Objective* one) { return names_class(config, {one->model_class}); });
}

/// Counts the model's own labels, or takes the `wanted` ones of a run that begins with it.
Status read_labels(const Json& config, bool has_classes, int64_t wanted, ModelSpec& spec) {
  const Result<int64_t> labels = count_labels(config);
  LOOM_TRY(labels.status());
  spec.labels = wanted > 0 ? wanted : *labels;
  spec.new_classes = has_classes && spec.labels != *labels;
  if (wanted > 0 || *labels != 1) return {};
  return fail(Code::unsupported,
              "the model has 1 label, which transformers takes for regression; only classes are supported, "
              "at least 2");
}

std::string numbered_label(int64_t label) { return fmt::format("LABEL_{}", label); }

/// The name of `transformers`' class for a spec.
std::string class_of(const ModelSpec& spec) {
  const FamilyKeys& keys = description_of(spec.family).keys;
  const bool own = keys.usual_class != nullptr && spec.task == usual_task(spec.family);
  return std::string(keys.classes) + (own ? keys.usual_class : spec.objective().model_class);
}

/// Sets what `transformers` takes for keys that are left out. New models may have other values.
void take_defaults(const FamilyKeys& names, const Json& config, ModelSpec& spec) {
  if (names.embedding_dropout != nullptr) spec.embedding_dropout = names.missing_dropout;
  spec.residual_dropout = spec.attention_dropout = names.missing_dropout;
  if (names.missing_epsilon > 0) spec.epsilon = names.missing_epsilon;
  if (names.feed_forward != nullptr && !config.contains(names.feed_forward))
    spec.feed_forward = names.missing_feed_forward;
}

Status read_common(const Json& config, ModelSpec& spec) {
  FamilyKeys names = description_of(spec.family).keys;
  for (const char** name : {&names.context, &names.width, &names.layers, &names.heads})
    *name = key_in(config, spec.family, *name);
  take_defaults(names, config, spec);
  std::string activation = activation_name(spec.activation);
  ConfigReader keys(config);
  keys.required<int64_t>("vocab_size", spec.vocabulary)
      .required<int64_t>(names.width, spec.width)
      .required<int64_t>(names.layers, spec.layers)
      .required<int64_t>(names.heads, spec.heads);
  if (names.missing_context > 0) {
    spec.context = names.missing_context;
    keys.optional<int64_t>(names.context, spec.context);
  } else {
    keys.required<int64_t>(names.context, spec.context);
  }
  keys.optional<int64_t>(names.feed_forward, spec.feed_forward)
      .optional<std::string>(names.activation, activation)
      .optional<float>(names.epsilon, spec.epsilon)
      .optional<float>(names.embedding_dropout, spec.embedding_dropout)
      .optional<float>(names.residual_dropout, spec.residual_dropout)
      .optional<float>(names.attention_dropout, spec.attention_dropout)
      .optional<float>("initializer_range", spec.initial_deviation);
  if (!spec.objective().predicts_classes) keys.flag("tie_word_embeddings", spec.tied);
  if (!spec.objective().continues_texts) keys.optional<int32_t>("pad_token_id", spec.padding);
  LOOM_TRY(keys.status());
  const bool given_padding = is_given(config, "pad_token_id");
  if (!spec.causal && given_padding && spec.padding < 0)
    return fail(Code::invalid_data, "pad_token_id is {}, must be a token, or null for the family's",
                spec.padding);
  // By the names that they have here, and before anything is computed of them.
  LOOM_TRY(from_one_to("vocab_size", spec.vocabulary, INT32_MAX));
  LOOM_TRY(from_one_to(names.width, spec.width, kMostWidth));
  LOOM_TRY(from_one_to(names.layers, spec.layers, kMostLayers));
  LOOM_TRY(from_one_to(names.heads, spec.heads, kMostWidth));
  LOOM_TRY(from_one_to(names.context, spec.context, INT32_MAX));
  const bool given = names.feed_forward != nullptr && is_given(config, names.feed_forward);
  if (given) LOOM_TRY(from_one_to(names.feed_forward, spec.feed_forward, kMostFeedForward));
  const Result<ops::Activation> chosen =
      activation_from(names.activation != nullptr ? names.activation : "", activation);
  LOOM_TRY(chosen.status());
  spec.activation = *chosen;
  return {};
}

}  // namespace

Result<ModelSpec> spec_from_config(const Json& config, std::optional<Task> task, int64_t labels) {
  std::string name;
  ConfigReader keys(config);
  keys.required<std::string>("model_type", name);
  LOOM_TRY(keys.status());
  const Result<Family> family = family_from(name);
  LOOM_TRY(family.status().in("model_type"));
  Result<ModelSpec> choices = choices_of(*family, task.value_or(task_in(config, *family)));
  LOOM_TRY(choices.status());
  ModelSpec spec = choices.take();
  spec.new_head = task && !has_head(config, *family, *task);
  LOOM_TRY(check_required(config, *family, spec.task, !task));
  if (spec.objective().predicts_classes)
    LOOM_TRY(read_labels(config, has_head(config, *family, spec.task), labels, spec));
  LOOM_TRY(read_common(config, spec));
  if (description_of(*family).read != nullptr) LOOM_TRY(description_of(*family).read(config, spec));
  complete(spec);
  spec.context -= spec.first_position;  // RoBERTa's table has rows that no token takes
  LOOM_TRY(spec.check());
  return spec;
}

bool classifies(const Json& config) { return classifier_in(config) != nullptr; }

/// id2label wins, as it does in `transformers`, which has saved either.
Result<int64_t> count_labels(const Json& config) {
  constexpr int64_t kLeftOut = 2, kMost = 1 << 20;
  if (config.contains("id2label") && !config["id2label"].is_null()) {
    if (!config["id2label"].is_object())
      return fail(Code::invalid_data, "id2label is {}, must be an object, from numbers to names",
                  config["id2label"].dump());
    const auto labels = static_cast<int64_t>(config["id2label"].size());
    LOOM_TRY(from_one_to("the number of classes in id2label", labels, kMost));
    return labels;
  }
  const Result<int64_t> labels = format::value_or<int64_t>(config, "num_labels", kLeftOut);
  LOOM_TRY(labels.status());
  LOOM_TRY(from_one_to("num_labels", *labels, kMost));
  return labels;
}

Result<std::vector<std::string>> label_names(const Json& config) {
  std::vector<std::string> names;
  if (!config.contains("id2label") || !config["id2label"].is_object()) return names;
  // Json looks for a key in all of them, one after the other.
  const format::SortedJson given = config["id2label"];
  bool named = false;
  for (int64_t label = 0; label < static_cast<int64_t>(given.size()); ++label) {
    const std::string key = fmt::format("{}", label);
    const auto found = given.find(key);
    if (found == given.end() || !found->is_string())
      return fail(Code::invalid_data,
                  "id2label has no text for \"{}\", must have one for each class below {}", key,
                  given.size());
    names.push_back(found->get<std::string>());
    named = named || names.back() != numbered_label(label);
  }
  if (!named) names.clear();
  return names;
}

void set_label_names(const std::vector<std::string>& names, Json& config) {
  Json::object_t by_number, by_name;  // looking for equal keys would take time squared
  std::set<std::string_view> seen;
  for (size_t label = 0; label < names.size(); ++label) {
    by_number.push_back({fmt::format("{}", label), names[label]});
    if (seen.insert(names[label]).second) by_name.push_back({names[label], label});
  }
  config.erase("id2label");
  config.erase("label2id");
  config["id2label"] = Json(std::move(by_number));
  config["label2id"] = Json(std::move(by_name));
}

Json config_of(const ModelSpec& spec) {
  const FamilyKeys names = description_of(spec.family).keys;
  Json config = {{"architectures", Json::array({class_of(spec)})},
                 {"model_type", family_name(spec.family)},
                 {"vocab_size", spec.vocabulary},
                 {names.context, spec.first_position + spec.context},
                 {names.width, spec.width},
                 {names.layers, spec.layers},
                 {names.heads, spec.heads},
                 {names.epsilon, format::shortest(spec.epsilon)},
                 {names.attention_dropout, format::shortest(spec.attention_dropout)},
                 {"initializer_range", format::shortest(spec.initial_deviation)},
                 {"tie_word_embeddings", spec.tied},
                 {"bos_token_id", nullptr},  // the tokenizer knows; the family's may not be in the vocabulary
                 {"eos_token_id", nullptr},
                 {"pad_token_id", nullptr},
                 {"dtype", "float32"},
                 {"torch_dtype", "float32"}};
  if (names.feed_forward != nullptr) config[names.feed_forward] = spec.feed_forward;
  if (names.activation != nullptr) config[names.activation] = activation_name(spec.activation);
  if (names.embedding_dropout != nullptr)
    config[names.embedding_dropout] = format::shortest(spec.embedding_dropout);
  if (names.residual_dropout != nullptr)
    config[names.residual_dropout] = format::shortest(spec.residual_dropout);
  if (spec.padding >= 0) config["pad_token_id"] = spec.padding;
  if (spec.objective().predicts_classes) {
    config["problem_type"] = spec.objective().problem_type;
    std::vector<std::string> names;
    for (int64_t label = 0; label < spec.labels; ++label) names.push_back(numbered_label(label));
    set_label_names(names, config);
  }
  if (description_of(spec.family).write != nullptr) description_of(spec.family).write(spec, config);
  return config;
}

}  // namespace loom::model
