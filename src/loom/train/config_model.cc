// The model that a config asks for: its own sizes, or those of model.from.
#include <fmt/ranges.h>

#include "model/families.h"
#include "model/families/family.h"
#include "model/hugging_face.h"
#include "model/objectives/objective.h"
#include "model/same_model.h"
#include "text/completions.h"
#include "text/examples.h"
#include "text/same_tokenizer.h"
#include "train/config.h"
#include "train/folders.h"

namespace loom::train {
namespace {

using format::Json;

constexpr int64_t kWidth = 256, kLayers = 4, kHeads = 4;

int64_t value_or(int64_t given, int64_t otherwise) { return given != 0 ? given : otherwise; }

Result<Json> config_of_from(const Config& config) {
  LOOM_TRY(expect(config.model.from, Wanted::model).in("model.from"));
  return format::read_config(config.model.from);
}

Result<model::Family> family_of(const Config& config) {
  const std::string& name = config.model.family;
  const Result<model::Family> family = name.empty() ? model::Family::gpt2 : model::family_from(name);
  LOOM_TRY(family.status().in("model.family"));
  return family;
}

/// A user who gives both a size and a model to begin with may not know that they differ.
Status check_given(const Config::Model& given, const model::ModelSpec& spec) {
  const auto same = [&](const char* key, const auto& value, const auto& has, bool open) -> Status {
    if (open || value == has) return {};
    return fail(Code::invalid_argument,
                "model.{0} is {1}, but the model in {2} (model.from) has {3}: leave model.{0} out, or begin "
                "with another model",
                key, value, given.from, has);
  };
  const auto size = [&](const char* key, int64_t value, int64_t has) {
    return same(key, value, has, value == 0);
  };
  const auto name = [&](const char* key, const std::string& value, const std::string& has) {
    return same(key, value, has, value.empty());
  };
  LOOM_TRY(name("family", given.family, model::family_name(spec.family)));
  LOOM_TRY(size("vocabulary", given.vocabulary, spec.vocabulary));
  LOOM_TRY(size("context", given.context, spec.context));
  LOOM_TRY(size("width", given.width, spec.width));
  LOOM_TRY(size("layers", given.layers, spec.layers));
  LOOM_TRY(size("heads", given.heads, spec.heads));
  LOOM_TRY(size("key_value_heads", given.key_value_heads, spec.attention().key_value_heads));
  LOOM_TRY(size("feed_forward", given.feed_forward, spec.feed_forward));
  LOOM_TRY(name("activation", given.activation, model::activation_name(spec.activation)));
  return same("tied", given.tied.value_or(spec.tied), spec.tied, !given.tied);
}

void set_dropout(double probability, model::ModelSpec& spec) {
  spec.embedding_dropout = spec.residual_dropout = spec.attention_dropout = static_cast<float>(probability);
  const model::FamilyKeys& keys = model::description_of(spec.family).keys;
  if (keys.embedding_dropout == nullptr) spec.embedding_dropout = 0;
  if (keys.residual_dropout == nullptr) spec.residual_dropout = 0;
  if (spec.pooler) spec.head_dropout = spec.residual_dropout;
}

/// The one number that stands for all of a model's, as written; none where they differ.
std::optional<double> dropout_of(const model::ModelSpec& spec) {
  model::ModelSpec same = spec;
  set_dropout(static_cast<double>(spec.attention_dropout), same);
  if (same.embedding_dropout != spec.embedding_dropout || same.residual_dropout != spec.residual_dropout ||
      same.head_dropout != spec.head_dropout)
    return {};
  return format::shortest(spec.attention_dropout);
}

/// A model is stored as its config.json. A choice without a key of its family would be lost, and a reader of
/// the model would compute another one.
Status check_stored(const model::ModelSpec& spec) {
  const Result<model::ModelSpec> stored =
      model::spec_from_config(model::config_of(spec), spec.task, spec.labels);
  LOOM_TRY(stored.status());
  const std::string lost = model::difference(*stored, spec);
  if (lost.empty()) return {};
  return fail(Code::invalid_argument,
              "the config.json of a {} model would stand for {}: the family has no key for another",
              model::family_name(spec.family), lost);
}

/// The dataset says what its sequences are filled up with.
Status take_padding(int32_t padding, const std::string& from, model::ModelSpec& spec) {
  if (spec.first_position > 0 && padding != spec.padding)
    return fail(
        Code::invalid_argument,
        "the dataset fills sequences up with token {0}, the model {1} with token {2}, from which a {3} "
        "counts its positions: `loom tokenize --tokenizer {1}` makes a dataset that fits where the "
        "tokenizer has a padding token, \"<pad>\" of a BPE, or \"[PAD]\"; without one the model cannot be "
        "tuned",
        padding, from, spec.padding, model::family_name(spec.family));
  spec.padding = padding;
  return {};
}

Result<model::ModelSpec> spec_of_from(const Config& config, model::Task task, int64_t dataset_vocabulary,
                                      int64_t labels, int32_t padding) {
  const Result<Json> json = config_of_from(config);
  LOOM_TRY(json.status());
  Result<model::ModelSpec> spec = model::spec_from_config(*json, task, labels);
  LOOM_TRY(spec.status().in(config.model.from));
  if (spec->objective().predicts_classes && padding >= 0)
    LOOM_TRY(take_padding(padding, config.model.from, *spec));
  LOOM_TRY(text::check_vocabulary_of_model(config.model.from, spec->vocabulary, dataset_vocabulary));
  LOOM_TRY(check_given(config.model, *spec));
  if (config.model.dropout) set_dropout(*config.model.dropout, *spec);
  LOOM_TRY(spec->check());
  LOOM_TRY(check_stored(*spec));
  return spec;
}

}  // namespace

Result<model::Task> task_of(const Config& config) {
  if (!config.model.task.empty()) {
    const Result<model::Task> task = model::task_from(config.model.task);
    if (!task.ok()) return task.status().in("model.task");
    return task;
  }
  if (text::holds_examples(config.data.folder)) return model::kClassification.task;
  if (text::holds_completions(config.data.folder)) return model::kCausal.task;
  if (!config.model.from.empty()) {
    const Result<Json> json = config_of_from(config);
    LOOM_TRY(json.status());
    const Result<model::ModelSpec> spec = model::spec_from_config(*json);
    LOOM_TRY(spec.status());
    return spec->task;
  }
  const Result<model::Family> family = family_of(config);
  LOOM_TRY(family.status());
  return model::usual_task(*family);
}

Result<model::ModelSpec> spec_of(const Config& config, int64_t dataset_vocabulary, int64_t labels,
                                 int32_t padding) {
  const Result<model::Task> task = task_of(config);
  LOOM_TRY(task.status());
  if (!config.model.from.empty()) return spec_of_from(config, *task, dataset_vocabulary, labels, padding);
  const Result<model::Family> family = family_of(config);
  LOOM_TRY(family.status());
  Result<model::ModelSpec> choices = model::choices_of(*family, *task);
  if (!choices.ok() && text::holds_completions(config.data.folder))
    return choices.status().in(fmt::format(
        "{} holds prompts with completions, which only a causal model trains on", config.data.folder));
  LOOM_TRY(choices.status());
  model::ModelSpec spec = choices.take();
  if (spec.objective().predicts_classes) spec.labels = labels;
  if (!spec.objective().continues_texts) spec.padding = padding;
  spec.vocabulary = value_or(config.model.vocabulary, dataset_vocabulary);
  if (spec.vocabulary < dataset_vocabulary)
    return fail(Code::invalid_argument, "model.vocabulary is {}, must be at least the dataset's, {}",
                spec.vocabulary, dataset_vocabulary);
  spec.context = value_or(config.model.context, config.data.sequence_length);
  spec.width = value_or(config.model.width, kWidth);
  spec.layers = value_or(config.model.layers, kLayers);
  spec.heads = value_or(config.model.heads, kHeads);
  spec.key_value_heads = config.model.key_value_heads;
  spec.feed_forward = config.model.feed_forward;
  if (config.model.activation == "gelu") spec.activation = ops::Activation::gelu_erf;
  if (config.model.activation == "relu") spec.activation = ops::Activation::relu;
  if (config.model.activation == "silu") spec.activation = ops::Activation::silu;
  if (config.model.activation == "gelu_new") spec.activation = ops::Activation::gelu_tanh;
  set_dropout(config.model.dropout.value_or(0), spec);
  if (!spec.objective().predicts_classes) spec.tied = config.model.tied.value_or(spec.tied);
  model::complete(spec);
  LOOM_TRY(spec.check());
  LOOM_TRY(check_stored(spec));
  return spec;
}

Config resolved(const Config& config, const model::ModelSpec& spec, const program::Job& job, int threads) {
  Config filled = config;
  Config::Model& model = filled.model;
  model.family = model::family_name(spec.family);
  model.task = spec.objective().name;
  model.vocabulary = spec.vocabulary;
  model.context = spec.context;
  model.width = spec.width;
  model.layers = spec.layers;
  model.heads = spec.heads;
  model.key_value_heads = spec.attention().key_value_heads;
  model.feed_forward = spec.feed_forward;
  model.activation = model::activation_name(spec.activation);
  if (!model.dropout) model.dropout = dropout_of(spec);
  model.tied = spec.tied;
  filled.data.microbatch = job.batch / (job.prescaled_batch ? 1 : job.tensor_degree);
  filled.parallel.sharded_data_parallel_degree = job.degree;
  filled.parallel.threads = threads;
  if (!job.first_units.empty()) {
    filled.parallel.partition = fmt::format("{}", fmt::join(job.first_units, ","));
    if (spec.tied) filled.parallel.tied = "copies";  // as it was cut, and now looks as if cut by hand
  }
  return filled;
}

}  // namespace loom::train
