// config.json of every family: by the table of keys what all have, and a function for what is special.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "model/config_keys.h"
#include "model/families.h"
#include "model/hugging_face.h"

namespace loom::model {
namespace {

using format::Json;

/// BLOOM has no table of positions; this is what it was trained with where the config does not say.
constexpr int64_t kBloomContext = 2048;

Result<ops::Activation> activation_from(const std::string& key, const std::string& name) {
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast")
    return ops::Activation::gelu_tanh;
  if (name == "gelu") return ops::Activation::gelu_erf;
  if (name == "relu") return ops::Activation::relu;
  return fail(Code::unsupported, "{} is \"{}\", must be gelu_new, gelu_pytorch_tanh, gelu_fast, gelu or relu",
              key, name);
}

/// Reads keys into places; the first failure stays.
class Keys {
 public:
  explicit Keys(const Json& json) : json_(json) {}
  template <typename F, typename T>
  Keys& required(const char* key, T& into) {
    return take(format::required<F>(json_, key), into);
  }
  template <typename F, typename T>
  Keys& optional(const char* key, T& into) {
    if (key == nullptr) return *this;
    return take(format::value_or<F>(json_, key, static_cast<F>(into)), into);
  }
  /// Python takes null for false, which here would be the family's usual choice.
  Keys& flag(const char* key, bool& into) {
    if (status_.ok() && json_.contains(key) && !json_[key].is_boolean())
      status_ = fail(Code::invalid_data, "{} is {}, must be true or false", key, json_[key].dump());
    return optional<bool>(key, into);
  }
  Status status() const { return status_; }

 private:
  template <typename R, typename T>
  Keys& take(R result, T& into) {
    if (!status_.ok()) return *this;
    if (result.ok()) into = static_cast<T>(*result);
    else status_ = result.status();
    return *this;
  }
  const Json& json_;
  Status status_;
};

/// What the model classes in `architectures` are for.
Task task_in(const Json& config, Family family) {
  return classifies(config) ? Task::classification : usual_task(family);
}

/// Whether a model of this config has the task's head: those that are named may be without any, or with one
/// that no task here has.
bool has_head(const Json& config, Family family, Task task) {
  if (task_in(config, family) != task) return false;
  if (!config.contains("architectures") || !config["architectures"].is_array()) return true;
  constexpr std::string_view kHeads[] = {"ForSequenceClassification", "ForMaskedLM", "ForCausalLM",
                                         "LMHeadModel", "ForPreTraining"};
  return config["architectures"].empty() ||
         std::any_of(config["architectures"].begin(), config["architectures"].end(), [&](const Json& name) {
           return name.is_string() && std::any_of(std::begin(kHeads), std::end(kHeads), [&](auto head) {
                    return name.get<std::string>().ends_with(head);
                  });
         });
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

/// As transformers reckons: whole elements of a head, the rest cut off.
int64_t turned_dims(int64_t head_size, double part) {
  return static_cast<int64_t>(static_cast<double>(head_size) * part);
}

Status read_rope(const Json& config, ModelSpec& spec) {
  double part = 0.25;
  Keys old_keys(config);  // which fill in what the newer object leaves out
  old_keys.optional<double>("rotary_pct", part).optional<float>("rotary_emb_base", spec.rotary_base);
  LOOM_TRY(old_keys.status());
  const bool nested = config.contains("rope_parameters") && !config["rope_parameters"].is_null();
  if (nested) {
    const Json& given = config["rope_parameters"];
    if (!given.is_object())
      return fail(Code::invalid_data, "rope_parameters is {}, must be an object", given.dump());
    std::string type = "default";
    Keys keys(given);
    keys.optional<std::string>("type", type)
        .optional<std::string>("rope_type", type)
        .optional<double>("partial_rotary_factor", part)
        .optional<float>("rope_theta", spec.rotary_base);
    LOOM_TRY(keys.status());
    if (type != "default")
      return fail(Code::unsupported, "rope_type is \"{}\"; only \"default\" is supported", type);
  }
  if (!(part > 0 && part <= 1))
    return fail(Code::invalid_data,
                "{} is {}, must be above 0 and at most 1: the part of a head that is turned",
                nested ? "rope_parameters.partial_rotary_factor" : "rotary_pct", part);
  if (spec.width % spec.heads != 0) return {};  // refused later, by the names of both
  int64_t head_size = spec.head_size();
  Keys keys(config);
  keys.optional<int64_t>("head_dim", head_size);
  LOOM_TRY(keys.status());
  if (head_size != spec.head_size())
    return fail(Code::unsupported, "head_dim is {}; only the width over the heads, {}, is supported",
                head_size, spec.head_size());
  spec.rotary_dims = turned_dims(head_size, part);
  return {};
}

/// What turned_dims() gives back.
double turned_part(const ModelSpec& spec) {
  double part = static_cast<double>(spec.rotary_dims) / static_cast<double>(spec.head_size());
  while (turned_dims(spec.head_size(), part) < spec.rotary_dims) part = std::nextafter(part, 2.0);
  return part;
}

/// Layers from [[kinds], times], to be repeated; whether they are so.
bool read_kinds(const Json& types, ModelSpec& spec) {
  if (!types.is_array()) return false;
  for (const Json& group : types) {
    if (!group.is_array() || group.size() != 2 || !group[0].is_array() || !group[1].is_number_integer())
      return false;
    // No kinds at all would be no layers, however often.
    const double times = group[1].get<double>();
    if (group[0].empty() || times < 1 || times > static_cast<double>(spec.layers)) return false;
    for (int64_t time = 0; time < static_cast<int64_t>(times); ++time)
      for (const Json& kind : group[0]) {
        if (kind != "global" && kind != "local") return false;
        if (static_cast<int64_t>(spec.local.size()) > spec.layers) return false;
        spec.local.push_back(kind == "local");
      }
  }
  return true;
}

/// GPT-Neo's kinds of layers, as kinds to be repeated or by layer.
Status read_local_layers(const Json& config, ModelSpec& spec) {
  const auto wrong = [] {
    return fail(Code::invalid_data,
                "attention_types must be as in [[[\"global\", \"local\"], 12]], with \"global\" and "
                "\"local\", and as many "
                "as there are layers");
  };
  spec.window = 256;
  Keys keys(config);
  keys.optional<int64_t>("window_size", spec.window);
  LOOM_TRY(keys.status());
  const auto given = [&](const char* key) { return config.contains(key) && !config[key].is_null(); };
  if (given("attention_types") && !read_kinds(config["attention_types"], spec)) return wrong();
  if (!given("attention_layers")) return {};
  // The list by layer wins over what it is made from, as it does in `transformers`.
  const Json& kinds = config["attention_layers"];
  spec.local.clear();
  const bool right = kinds.is_array() && static_cast<int64_t>(kinds.size()) == spec.layers &&
                     std::all_of(kinds.begin(), kinds.end(),
                                 [](const Json& kind) { return kind == "global" || kind == "local"; });
  if (!right)
    return fail(Code::invalid_data,
                "attention_layers must have \"global\" or \"local\" for each of {} layers", spec.layers);
  for (const Json& kind : kinds) spec.local.push_back(kind == "local");
  return {};
}

Json local_layers(const ModelSpec& spec) {
  Json kinds = Json::array();
  for (int64_t layer = 0; layer < spec.layers; ++layer)
    kinds.push_back(spec.window_of(layer) > 0 ? "local" : "global");
  return kinds;
}

/// What only one family has.
Status read_special(const Json& config, ModelSpec& spec) {
  Keys keys(config);
  switch (spec.family) {
    case Family::gpt2:
    case Family::bloom: break;
    case Family::gptj:
      // The family's own default where the key is missing; null turns whole heads.
      spec.rotary_dims = config.contains("rotary_dim") ? spec.head_size() : 64;
      keys.optional<int64_t>("rotary_dim", spec.rotary_dims);
      LOOM_TRY(keys.status());
      LOOM_TRY(from_one_to("rotary_dim", spec.rotary_dims, kMostWidth));
      break;
    case Family::gpt_neox: {
      bool parallel = true;
      keys.flag("use_parallel_residual", parallel).flag("attention_bias", spec.qkv_bias);
      spec.residual = parallel ? Residual::parallel_two_norms : Residual::serial;
      spec.projection_bias = spec.qkv_bias;
      LOOM_TRY(read_rope(config, spec));
      break;
    }
    case Family::gpt_neo: LOOM_TRY(read_local_layers(config, spec)); break;
    case Family::roberta:
    case Family::bert:
      spec.head_dropout = spec.residual_dropout;
      spec.token_types = 2;
      keys.optional<float>("classifier_dropout", spec.head_dropout)
          .optional<int64_t>("type_vocab_size", spec.token_types);
      LOOM_TRY(keys.status());
      LOOM_TRY(from_one_to("type_vocab_size", spec.token_types, kMostWidth));
      break;
  }
  return keys.status();
}

void write_special(const ModelSpec& spec, Json& config) {
  switch (spec.family) {
    case Family::gpt2: config["n_ctx"] = spec.context; break;
    case Family::gptj: config["rotary_dim"] = spec.rotary_dims; break;
    case Family::gpt_neox: {
      const double part = turned_part(spec);
      config["use_parallel_residual"] = spec.residual != Residual::serial;
      config["attention_bias"] = spec.qkv_bias;
      config["rotary_pct"] = part;
      config["rotary_emb_base"] = spec.rotary_base;
      config["rope_parameters"] = {
          {"rope_type", "default"}, {"rope_theta", spec.rotary_base}, {"partial_rotary_factor", part}};
      break;
    }
    case Family::gpt_neo:
      config["window_size"] = spec.window;
      config["attention_layers"] = local_layers(spec);
      config["attention_types"] = Json::array({Json::array({local_layers(spec), 1})});
      break;
    case Family::bloom: config["apply_residual_connection_post_layernorm"] = false; break;
    case Family::roberta:
    case Family::bert:
      config["classifier_dropout"] = spec.head_dropout;
      config["type_vocab_size"] = spec.token_types;
      break;
  }
}

/// The name of `transformers`' class for a spec.
std::string class_of(const ModelSpec& spec) {
  const std::string prefix = keys_of(spec.family).classes;
  if (spec.task == Task::classification) return prefix + "ForSequenceClassification";
  if (spec.task == Task::masked) return prefix + "ForMaskedLM";
  return prefix + (spec.family == Family::gpt2 ? "LMHeadModel" : "ForCausalLM");
}

/// Sets what `transformers` takes for keys that are left out. New models may have other values.
void take_defaults(const FamilyKeys& names, const Json& config, ModelSpec& spec) {
  if (names.embedding_dropout != nullptr) spec.embedding_dropout = names.missing_dropout;
  spec.residual_dropout = spec.attention_dropout = names.missing_dropout;
  if (spec.family == Family::roberta) spec.epsilon = 1e-12f;
  if (names.feed_forward != nullptr && !config.contains(names.feed_forward))
    spec.feed_forward = names.missing_feed_forward;
}

Status read_common(const Json& config, ModelSpec& spec) {
  FamilyKeys names = keys_of(spec.family);
  for (const char** name : {&names.context, &names.width, &names.layers, &names.heads})
    *name = key_in(config, spec.family, *name);
  take_defaults(names, config, spec);
  std::string activation = activation_name(spec.activation);
  Keys keys(config);
  keys.required<int64_t>("vocab_size", spec.vocabulary)
      .required<int64_t>(names.width, spec.width)
      .required<int64_t>(names.layers, spec.layers)
      .required<int64_t>(names.heads, spec.heads);
  if (spec.family == Family::bloom) {
    spec.context = kBloomContext;
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
  if (spec.task != Task::classification) keys.flag("tie_word_embeddings", spec.tied);
  const bool fills_up = spec.task != Task::causal || usual_task(spec.family) == Task::masked;
  if (fills_up) keys.optional<int32_t>("pad_token_id", spec.padding);
  LOOM_TRY(keys.status());
  const bool given_padding = config.contains("pad_token_id") && !config["pad_token_id"].is_null();
  if (usual_task(spec.family) == Task::masked && given_padding && spec.padding < 0)
    return fail(Code::invalid_data, "pad_token_id is {}, must be a token, or null for the family's",
                spec.padding);
  // By the names that they have here, and before anything is computed of them.
  LOOM_TRY(from_one_to("vocab_size", spec.vocabulary, INT32_MAX));
  LOOM_TRY(from_one_to(names.width, spec.width, kMostWidth));
  LOOM_TRY(from_one_to(names.layers, spec.layers, kMostLayers));
  LOOM_TRY(from_one_to(names.heads, spec.heads, kMostWidth));
  LOOM_TRY(from_one_to(names.context, spec.context, INT32_MAX));
  const bool given = names.feed_forward != nullptr && config.contains(names.feed_forward) &&
                     !config[names.feed_forward].is_null();
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
  Keys keys(config);
  keys.required<std::string>("model_type", name);
  LOOM_TRY(keys.status());
  const Result<Family> family = family_from(name);
  LOOM_TRY(family.status().in("model_type"));
  Result<ModelSpec> choices = choices_of(*family, task.value_or(task_in(config, *family)));
  LOOM_TRY(choices.status());
  ModelSpec spec = choices.take();
  spec.new_head = task && !has_head(config, *family, *task);
  LOOM_TRY(check_required(config, *family, spec.task, !task));
  if (spec.task == Task::classification)
    LOOM_TRY(read_labels(config, has_head(config, *family, spec.task), labels, spec));
  LOOM_TRY(read_common(config, spec));
  LOOM_TRY(read_special(config, spec));
  complete(spec);
  spec.context -= spec.first_position;  // RoBERTa's table has rows that no token takes
  LOOM_TRY(spec.check());
  return spec;
}

bool classifies(const Json& config) {
  if (!config.contains("architectures") || !config["architectures"].is_array()) return false;
  return std::any_of(config["architectures"].begin(), config["architectures"].end(), [](const Json& name) {
    return name.is_string() && name.get<std::string>().ends_with("ForSequenceClassification");
  });
}

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
  const FamilyKeys names = keys_of(spec.family);
  Json config = {{"architectures", Json::array({class_of(spec)})},
                 {"model_type", family_name(spec.family)},
                 {"vocab_size", spec.vocabulary},
                 {names.context, spec.first_position + spec.context},
                 {names.width, spec.width},
                 {names.layers, spec.layers},
                 {names.heads, spec.heads},
                 {names.epsilon, spec.epsilon},
                 {names.residual_dropout, spec.residual_dropout},
                 {names.attention_dropout, spec.attention_dropout},
                 {"initializer_range", spec.initial_deviation},
                 {"tie_word_embeddings", spec.tied},
                 {"bos_token_id", nullptr},  // the tokenizer knows; the family's may not be in the vocabulary
                 {"eos_token_id", nullptr},
                 {"pad_token_id", nullptr},
                 {"dtype", "float32"},
                 {"torch_dtype", "float32"}};
  if (names.feed_forward != nullptr) config[names.feed_forward] = spec.feed_forward;
  if (names.activation != nullptr) config[names.activation] = activation_name(spec.activation);
  if (names.embedding_dropout != nullptr) config[names.embedding_dropout] = spec.embedding_dropout;
  if (spec.padding >= 0) config["pad_token_id"] = spec.padding;
  if (spec.task == Task::classification) {
    config["problem_type"] = "single_label_classification";
    std::vector<std::string> names;
    for (int64_t label = 0; label < spec.labels; ++label) names.push_back(numbered_label(label));
    set_label_names(names, config);
  }
  write_special(spec, config);
  return config;
}

}  // namespace loom::model
