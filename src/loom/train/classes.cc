#include "train/classes.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "base/file.h"
#include "model/hugging_face.h"

namespace loom::train {

using format::Json;

Result<text::ModelClasses> classes_of(const Json& config, const std::string& folder) {
  text::ModelClasses classes;
  classes.model = folder;
  if (!model::classifies(config)) return classes;
  const Result<int64_t> count = model::count_labels(config);
  LOOM_TRY(count.status().in(folder));
  Result<std::vector<std::string>> names = model::label_names(config);
  LOOM_TRY(names.status().in(folder));
  classes.names = names->empty() ? text::unnamed_classes(*count) : names.take();
  std::map<std::string_view, size_t> numbers;
  for (size_t number = 0; number < classes.names.size(); ++number) {
    const auto [place, isnew] = numbers.try_emplace(classes.names[number], number);
    if (!isnew)
      return fail(Code::invalid_data,
                  "{}: the classes {} and {} of config.json are both \"{}\", must have names of their own",
                  folder, place->second, number, place->first);
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
  const bool has_names = classes.names != text::unnamed_classes(static_cast<int64_t>(classes.names.size()));
  return fail(Code::invalid_argument,
              "class {} is {} in the model {} and {} in the dataset {}, must be the same in both: {}", number,
              named(classes.names), classes.model, named(labels), dataset,
              has_names
                  ? fmt::format("`loom tokenize --labels --tokenizer {}` numbers labels as the model does",
                                classes.model)
                  : fmt::format("the model has no names for its classes, so label the texts 0 to {}, in "
                                "the model's order",
                                classes.names.size() - 1));
}

Result<std::string> take_classes(const Config& config, const model::ModelSpec& spec,
                                 std::vector<std::string>& labels) {
  const std::string& from = config.model.from;
  if (labels.empty() || from.empty() || spec.new_head) return std::string();
  const Result<format::Json> json = format::read_config(from);
  LOOM_TRY(json.status());
  const Result<text::ModelClasses> own = classes_of(*json, from);
  LOOM_TRY(own.status());
  const std::vector<std::string>& classes = own->names;
  if (!spec.new_classes) {
    const bool named = classes != text::unnamed_classes(static_cast<int64_t>(classes.size()));
    if (text::are_classes(labels, classes)) {
      if (named) labels = classes;
      return std::string();
    }
    const std::set<std::string_view> known(classes.begin(), classes.end());
    if (std::any_of(labels.begin(), labels.end(), [&](const auto& label) { return known.contains(label); }))
      LOOM_TRY(check_classes(labels, config.data.folder, *own));
    if (!named) return std::string();
  }
  return fmt::format(
      "model.from, {}, classifies other texts than the dataset has: {}, where the labels here are {}; {}",
      from, text::listed(classes), text::listed(labels),
      spec.new_classes ? "the last layer of its head begins at random"
                       : "its head begins with the weights of those, by their numbers");
}

Status take_classes(const format::Json& stored, std::vector<std::string>& labels) {
  const Result<std::vector<std::string>> own = model::label_names(stored);
  LOOM_TRY(own.status());
  if (labels.empty() || own->empty()) return {};
  if (labels.size() == own->size() && text::are_classes(labels, *own)) {
    labels = *own;
    return {};
  }
  for (size_t label = 0; label < std::min(own->size(), labels.size()); ++label)
    if ((*own)[label] != labels[label])
      return fail(Code::invalid_argument,
                  "class {} is \"{}\" in the checkpoint and \"{}\" in the dataset, must be the same in both: "
                  "give it data with the labels that it was trained on, or name another run.out",
                  label, (*own)[label], labels[label]);
  return {};
}

}  // namespace loom::train
