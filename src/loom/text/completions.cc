#include "text/completions.h"

#include <algorithm>
#include <limits>

#include "base/file.h"
#include "text/fields.h"

namespace loom::text {
namespace {

using format::Json;

constexpr char kFormat[] = "loom completions";

Status check_completion(const TwoFields& record) {
  LOOM_TRY(check_text("prompt", record.first));
  return check_text("completion", record.second);
}

constexpr FieldRules kRules = {.first = "prompt", .second = "completion", .check = check_completion};

bool is_of_completions(const Json& json) {
  return json.is_object() && json.contains("format") && json["format"] == kFormat;
}

}  // namespace

Result<std::vector<Completion>> read_completions(const TextFile& file, const std::string& format) {
  Result<std::vector<TwoFields>> records = read_fields(file, format, kRules);
  LOOM_TRY(records.status());
  std::vector<Completion> completions;
  for (TwoFields& record : *records)
    completions.push_back({std::move(record.first), std::move(record.second)});
  return completions;
}

NumberedSequence completion_tokens(const Completion& completion, const Tokenizer& tokenizer) {
  const std::vector<Token> prompt = tokenizer.encode_document(completion.prompt);
  std::vector<Token> both = tokenizer.encode_document(completion.prompt + completion.completion);
  const auto shared =
      std::mismatch(prompt.begin(), prompt.end(), both.begin(), both.end()).first - prompt.begin();
  const std::optional<Token> end = tokenizer.end_of_text();
  if (end && (both.empty() || both.back() != *end)) both.push_back(*end);
  return {std::move(both), static_cast<Token>(shared)};
}

Result<SplitSizes> tokenize_completions(std::span<const Completion> completions, const std::string& folder,
                                        const Tokenizer& tokenizer, double validation) {
  std::vector<NumberedSequence> sequences;
  for (const Completion& one : completions) sequences.push_back(completion_tokens(one, tokenizer));
  return write_sequences(sequences, folder, tokenizer, validation, "prompts", {{"format", kFormat}});
}

bool holds_completions(const std::string& folder) {
  const Result<Json> json = format::read_json(join_path(folder, kDatasetFile));
  return json.ok() && is_of_completions(*json);
}

Result<std::shared_ptr<const StoredSequences>> open_completions(const std::string& folder, Split split) {
  const std::string path = join_path(folder, kDatasetFile);
  const Result<Json> json = format::read_json(path);
  LOOM_TRY(json.status());
  if (!is_of_completions(*json))
    return fail(Code::invalid_data,
                "{} is of other data; `loom tokenize --completions` makes prompts with completions", path);
  Result<StoredSequences> stored = StoredSequences::open(folder, split, *json);
  LOOM_TRY(stored.status());
  for (uint64_t i = 0; i < stored->size(); ++i)
    if (stored->number(i) < 0 || static_cast<size_t>(stored->number(i)) > stored->tokens(i).size())
      return fail(Code::invalid_data, "prompt {} of the {} split of {} has {} of {} tokens", i,
                  split_name(split), folder, stored->number(i), stored->tokens(i).size());
  return std::make_shared<const StoredSequences>(stored.take());
}

CompletionBatches::Places CompletionBatches::places(uint64_t sequence) const {
  const auto tokens = static_cast<int64_t>(completions_->tokens(sequence).size());
  const int64_t prompt = completions_->number(sequence);
  // Nothing stands before the first token, so that it is no target.
  return {std::max<int64_t>(prompt, 1) - 1, std::min(tokens - 1, options_.sequence_length)};
}

Result<CompletionBatches> CompletionBatches::create(std::shared_ptr<const StoredSequences> completions,
                                                    const BatchOptions& options) {
  LOOM_TRY(check_sizes(options));
  CompletionBatches batches(std::move(completions), options);
  const StoredSequences& all = *batches.completions_;
  int64_t shortest = std::numeric_limits<int64_t>::max();
  for (uint64_t i = 0; i < all.size(); ++i) {
    const Places places = batches.places(i);
    shortest = std::min(shortest, places.begin + 1);
    if (places.begin >= places.end) continue;
    batches.used_.push_back(i);
    if (static_cast<int64_t>(all.tokens(i).size()) - 1 > options.sequence_length) ++batches.cut_;
  }
  if (batches.used_.empty())
    return fail(Code::invalid_argument,
                "sequences of {} tokens have no room for any of the {} completions behind their prompts; the "
                "shortest needs {}",
                options.sequence_length, all.size(), shortest);
  return batches;
}

uint64_t CompletionBatches::dataset_key() const {
  Hash64 key;
  completions_->add_to(key);
  return key.value();
}

std::string CompletionBatches::note() const {
  const uint64_t left_out = completions_->size() - used_.size();
  if (left_out == 0 && cut_ == 0) return "";
  return fmt::format(
      "with sequences of {} tokens, {} of {} completions are left out, since their prompts leave no room, "
      "and {} are cut",
      options_.sequence_length, left_out, completions_->size(), cut_);
}

int64_t CompletionBatches::targets(uint64_t step, int64_t rows) const {
  int64_t count = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const Places some = places(used_[example_at(step, row, options_, used_.size())]);
    count += some.end - some.begin;
  }
  return count;
}

Status CompletionBatches::read(uint64_t step, Rows rows, std::span<Token> inputs,
                               std::span<Token> targets) const {
  const auto length = static_cast<size_t>(options_.sequence_length);
  LOOM_TRY(check_rows(rows, options_.global_batch, options_.sequence_length, inputs.size(), targets.size()));
  std::ranges::fill(inputs, completions_->padding());
  std::ranges::fill(targets, Token{-1});
  for (int64_t row = 0; row < rows.count; ++row) {
    const uint64_t number = used_[example_at(step, rows.begin + row, options_, used_.size())];
    const std::span<const Token> tokens = completions_->tokens(number);
    const size_t first = static_cast<size_t>(row) * length;
    std::copy_n(tokens.begin(), std::min(tokens.size(), length),
                inputs.begin() + static_cast<std::ptrdiff_t>(first));
    const Places some = places(number);
    for (int64_t place = some.begin; place < some.end; ++place)
      targets[first + static_cast<size_t>(place)] = tokens[static_cast<size_t>(place) + 1];
  }
  return {};
}

}  // namespace loom::text
