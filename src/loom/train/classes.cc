#include "train/classes.h"

#include <algorithm>

#include "base/file.h"
#include "model/hugging_face.h"

namespace loom::train {
namespace {

using format::Json;

bool classifies(const Json& config) {
  if (!config.is_object() || !config.contains("architectures") || !config["architectures"].is_array())
    return false;
  return std::any_of(config["architectures"].begin(), config["architectures"].end(), [](const Json& name) {
    return name.is_string() && name.get<std::string>().ends_with("ForSequenceClassification");
  });
}

Result<int64_t> count_of(const Json& config) {
  if (config.contains("id2label") && config["id2label"].is_object())
    return static_cast<int64_t>(config["id2label"].size());
  const Result<int> count = format::value_or<int>(config, "num_labels", 2);
  LOOM_TRY(count.status());
  if (*count < 1) return fail(Code::invalid_data, "\"num_labels\" is {}, must be at least 1", *count);
  return int64_t{*count};
}

/// A number that `label2id` has for a name; nothing where it has none.
std::optional<int64_t> number_of(const Json& config, const std::string& name) {
  if (!config.contains("label2id") || !config["label2id"].is_object() || !config["label2id"].contains(name))
    return std::nullopt;
  const Json& number = config["label2id"][name];
  return number.is_number_integer() ? std::optional(number.get<int64_t>()) : std::nullopt;
}

/// The names of `label2id`, where it has one for each class.
std::vector<std::string> names_by_number(const Json& config, int64_t count) {
  std::vector<std::string> names(static_cast<size_t>(count));
  if (!config.contains("label2id") || !config["label2id"].is_object()) return {};
  for (const auto& [name, json] : config["label2id"].items()) {
    const std::optional<int64_t> number = number_of(config, name);
    if (number && *number >= 0 && *number < count) names[static_cast<size_t>(*number)] = name;
  }
  return std::count(names.begin(), names.end(), "") == 0 ? names : std::vector<std::string>();
}

}  // namespace

Result<text::ModelClasses> classes_of(const Json& config, const std::string& folder) {
  text::ModelClasses classes;
  classes.model = folder;
  if (!classifies(config)) return classes;
  const Result<int64_t> count = count_of(config);
  LOOM_TRY(count.status().in(folder));
  Result<std::vector<std::string>> names = model::label_names(config);
  LOOM_TRY(names.status().in(folder));
  classes.names = names.take();
  if (classes.names.empty()) classes.names = names_by_number(config, *count);
  if (classes.names.empty()) classes.names = text::unnamed_classes(*count);
  for (size_t number = 0; number < classes.names.size(); ++number) {
    const std::string& name = classes.names[number];
    const auto first = std::find(classes.names.begin(), classes.names.end(), name) - classes.names.begin();
    if (static_cast<size_t>(first) != number)
      return fail(Code::invalid_data,
                  "{}: the classes {} and {} of config.json are both \"{}\", must have names of "
                  "their own",
                  folder, first, number, name);
    const std::optional<int64_t> other = number_of(config, name);
    if (other && *other != static_cast<int64_t>(number))
      return fail(Code::invalid_data,
                  "{}: config.json has \"{}\" as class {} in id2label and as class {} in label2id, must be "
                  "the same in "
                  "both",
                  folder, name, number, *other);
  }
  return classes;
}

Result<text::ModelClasses> classes_beside(const std::string& tokenizer) {
  const std::string path = join_path(tokenizer, "config.json");
  if (!is_folder(tokenizer) || !is_file(path)) return text::ModelClasses();
  const Result<Json> config = format::read_json(path);
  LOOM_TRY(config.status());
  return classes_of(*config, tokenizer);
}

Status check_classes(const std::vector<std::string>& labels, const std::string& dataset,
                     const text::ModelClasses& classes) {
  if (text::are_classes(labels, classes.names)) return {};
  size_t number = 0;
  while (number < std::min(labels.size(), classes.names.size()) && labels[number] == classes.names[number])
    ++number;
  const auto named = [&](const std::vector<std::string>& names) {
    return number < names.size() ? fmt::format("\"{}\"", names[number]) : std::string("none");
  };
  return fail(
      Code::invalid_argument,
      "class {} is {} in the model {} and {} in the dataset {}, must be the same in both: `loom tokenize "
      "--labels --tokenizer {}` numbers labels as the model does",
      number, named(classes.names), classes.model, named(labels), dataset, classes.model);
}

}  // namespace loom::train
