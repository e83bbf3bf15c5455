#include "text/examples.h"

#include <algorithm>

#include "base/file.h"
#include "format/json_file.h"
#include "text/permutation.h"
#include "text/token_file.h"

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
  const auto dataset = std::make_shared<ExampleDataset>();
  LOOM_TRY(check_version(*json, path));
  Result<std::vector<std::string>> names = format::required<std::vector<std::string>>(*json, "labels");
  LOOM_TRY(names.status().in(path));
  dataset->names_ = names.take();
  const Result<int> padding = format::required<int>(*json, "padding");
  LOOM_TRY(padding.status().in(path));
  dataset->padding_ = *padding;

  const Result<int> kept = format::value_or<int>(*json, "kept", 1);  // datasets of earlier versions keep one
  LOOM_TRY(kept.status().in(path));
  if (*kept < 0) return fail(Code::invalid_data, "\"kept\" of {} is {}, must not be negative", path, *kept);
  dataset->kept_ = static_cast<size_t>(*kept);

  const std::string stem = join_path(folder, split_name(split));
  const Result<TokenFile> tokens = TokenFile::open_listed(stem + ".tokens");
  LOOM_TRY(tokens.status());
  const Result<TokenFile> examples = TokenFile::open_listed(stem + ".examples");
  LOOM_TRY(examples.status());
  // All of it is read here anyway.
  LOOM_TRY(tokens->verify());
  LOOM_TRY(examples->verify());
  dataset->vocabulary_size_ = tokens->vocabulary_size();
  if (*padding < 0 || *padding >= tokens->vocabulary_size())
    return fail(Code::invalid_data, "\"padding\" of {} is {}, must be in the vocabulary, [0, {})", path,
                *padding, tokens->vocabulary_size());
  dataset->tokenizer_hash_ = tokens->tokenizer_hash();
  Hash64 key;
  for (const TokenFile* file : {&*tokens, &*examples}) key.add(file->key());
  for (const std::string& name : dataset->names_) key.add(name);
  dataset->key_ = key.value();
  dataset->tokens_.resize(tokens->count());
  LOOM_TRY(tokens->read(0, dataset->tokens_));
  std::vector<Token> numbers(examples->count());
  LOOM_TRY(examples->read(0, numbers));
  for (size_t i = 0; i + 1 < numbers.size(); i += 2) {
    dataset->starts_.push_back(dataset->starts_.back() + static_cast<size_t>(numbers[i]));
    dataset->labels_.push_back(numbers[i + 1]);
    if (numbers[i] < 1 || numbers[i + 1] >= static_cast<Token>(dataset->names_.size()))
      return fail(Code::invalid_data, "example {} of {}.examples has {} tokens and the label {} of {}", i / 2,
                  stem, numbers[i], numbers[i + 1], dataset->names_.size());
  }
  if (dataset->labels_.empty() || dataset->starts_.back() != dataset->tokens_.size())
    return fail(Code::invalid_data, "{}.examples speaks of {} tokens, but {}.tokens has {}", stem,
                dataset->starts_.back(), stem, dataset->tokens_.size());
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
  if (options.sequence_length < 1 || options.global_batch < 1)
    return fail(Code::invalid_argument, "{} sequences of {} tokens, must be at least 1 of 1",
                options.global_batch, options.sequence_length);
  return ExampleBatches(std::move(dataset), options);
}

Status ExampleBatches::read(uint64_t step, Rows rows, std::span<Token> inputs,
                            std::span<Token> targets) const {
  const auto length = static_cast<size_t>(options_.sequence_length);
  LOOM_TRY(check_rows(rows, options_.global_batch, options_.sequence_length, inputs.size(), targets.size()));
  std::fill(inputs.begin(), inputs.end(), dataset_->padding());
  std::fill(targets.begin(), targets.end(), Token{-1});
  for (int64_t row = 0; row < rows.count; ++row) {
    const uint64_t number = example_at(step, rows.begin + row, options_, dataset_->size());
    const std::span<const Token> tokens = dataset_->tokens(number);
    const size_t first = static_cast<size_t>(row) * length;
    copy_example(tokens, dataset_->kept(), inputs.subspan(first, length));
    targets[first] = dataset_->label(number);
  }
  return {};
}

}  // namespace loom::text
