#include "text/examples.h"

#include <algorithm>

#include "base/file.h"
#include "base/hash.h"
#include "format/json_file.h"

namespace loom::text {

using format::Json;

bool holds_examples(const std::string& folder) {
  const Result<Json> json = format::read_json(join_path(folder, kDatasetFile));
  return json.ok() && json->is_object() && json->contains("labels");
}

Result<std::shared_ptr<const ExampleDataset>> ExampleDataset::open(const std::string& folder, Split split) {
  const std::string path = join_path(folder, kDatasetFile);
  const Result<Json> json = format::read_json(path);
  LOOM_TRY(json.status());
  if (!json->is_object() || !json->contains("labels"))
    return fail(Code::invalid_data,
                "{} is of texts without labels; `loom tokenize --labels` makes examples to classify", path);
  Result<StoredSequences> texts = StoredSequences::open(folder, split, *json);
  LOOM_TRY(texts.status());
  const auto dataset = std::make_shared<ExampleDataset>();
  dataset->texts_ = texts.take();
  Result<std::vector<std::string>> names = format::required<std::vector<std::string>>(*json, "labels");
  LOOM_TRY(names.status().in(path));
  dataset->names_ = names.take();
  const Result<int> kept = format::value_or<int>(*json, "kept", 1);  // datasets of earlier versions keep one
  LOOM_TRY(kept.status().in(path));
  if (*kept < 0) return fail(Code::invalid_data, "\"kept\" of {} is {}, must not be negative", path, *kept);
  dataset->kept_ = static_cast<size_t>(*kept);
  const auto labels = static_cast<Token>(dataset->names_.size());
  for (uint64_t text = 0; text < dataset->texts_.size(); ++text) {
    const std::string example =
        fmt::format("example {} of the {} split of {}", text, split_name(split), folder);
    if (const size_t count = dataset->texts_.numbers(text).size(); count != 1)
      return fail(Code::invalid_data, "{} has {} labels, must have one", example, count);
    if (dataset->label(text) >= labels)
      return fail(Code::invalid_data, "{} has the label {}, must be below {}", example, dataset->label(text),
                  labels);
  }
  Hash64 key;
  dataset->texts_.add_to(key);
  for (const std::string& name : dataset->names_) key.add(name);
  dataset->key_ = key.value();
  return std::shared_ptr<const ExampleDataset>(dataset);
}

size_t copy_example(std::span<const Token> tokens, size_t kept, std::span<Token> into) {
  const size_t some = std::min(tokens.size(), into.size());
  const size_t last = std::min(kept, some);
  std::copy_n(tokens.begin(), some - last, into.begin());
  std::copy_n(tokens.end() - static_cast<std::ptrdiff_t>(last), last,
              into.begin() + static_cast<std::ptrdiff_t>(some - last));
  return some;
}

Result<ExampleBatches> ExampleBatches::create(std::shared_ptr<const ExampleDataset> dataset,
                                              const BatchOptions& options) {
  LOOM_TRY(check_sizes(options));
  return ExampleBatches(std::move(dataset), options);
}

Status ExampleBatches::read(uint64_t step, Rows rows, std::span<Token> inputs,
                            std::span<Token> targets) const {
  const auto length = static_cast<size_t>(options_.sequence_length);
  LOOM_TRY(check_rows(rows, options_.global_batch, options_.sequence_length, inputs.size(), targets.size()));
  std::fill(inputs.begin(), inputs.end(), dataset_->texts().padding());
  std::fill(targets.begin(), targets.end(), Token{-1});
  for (int64_t row = 0; row < rows.count; ++row) {
    const uint64_t number = example_at(step, rows.begin + row, options_, dataset_->texts().size());
    const std::span<const Token> tokens = dataset_->texts().tokens(number);
    const size_t first = static_cast<size_t>(row) * length;
    copy_example(tokens, dataset_->kept(), inputs.subspan(first, length));
    targets[first] = dataset_->label(number);
  }
  return {};
}

}  // namespace loom::text
