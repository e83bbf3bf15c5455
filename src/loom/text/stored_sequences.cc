#include "text/stored_sequences.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "base/file.h"
#include "text/permutation.h"
#include "text/replace_tokenizer.h"
#include "text/token_file.h"
#include "text/tokenize_files.h"

namespace loom::text {
namespace {

using format::Json;

constexpr int64_t kVersion = 2;

/// Numbers of .examples files: any that a token can be.
constexpr int64_t kAnyNumber = std::numeric_limits<Token>::max();

/// Writes one split.
class Writer {
 public:
  static Result<Writer> create(const std::string& folder, Split split, const Tokenizer& tokenizer) {
    const std::string stem = join_path(folder, split_name(split));
    Result<TokenFileWriter> tokens =
        TokenFileWriter::create(stem + ".tokens", tokenizer.vocabulary_size(), tokenizer.hash());
    LOOM_TRY(tokens.status());
    Result<TokenFileWriter> examples =
        TokenFileWriter::create(stem + ".examples", kAnyNumber, tokenizer.hash());
    LOOM_TRY(examples.status());
    return Writer(tokens.take(), examples.take());
  }
  Status add(const NumberedSequence& sequence) {
    const Token counts[] = {static_cast<Token>(sequence.tokens.size()),
                            static_cast<Token>(sequence.numbers.size())};
    ++sequences_;
    LOOM_TRY(tokens_.append(sequence.tokens));
    LOOM_TRY(examples_.append(counts));
    return examples_.append(sequence.numbers);
  }
  Json to_json() const { return {{"examples", sequences_}, {"tokens", tokens_.count()}}; }
  Status finish() {
    LOOM_TRY(tokens_.finish());
    return examples_.finish();
  }

 private:
  Writer(TokenFileWriter tokens, TokenFileWriter examples)
      : tokens_(std::move(tokens)), examples_(std::move(examples)) {}
  TokenFileWriter tokens_, examples_;
  uint64_t sequences_ = 0;
};

}  // namespace

Result<StoredSequences> StoredSequences::open(const std::string& folder, Split split, const Json& json) {
  const std::string path = join_path(folder, kDatasetFile);
  LOOM_TRY(check_version(json, kVersion, path));
  if (!json.contains(split_name(split)))
    return fail(Code::not_found, "{} has no {} split; `loom tokenize --validation 0.1` holds some out", path,
                split_name(split));
  StoredSequences stored;
  const Result<int> padding = format::required<int>(json, "padding");
  LOOM_TRY(padding.status().in(path));
  stored.padding_ = *padding;

  const std::string stem = join_path(folder, split_name(split));
  const Result<TokenFile> tokens = TokenFile::open_listed(stem + ".tokens");
  LOOM_TRY(tokens.status());
  const Result<TokenFile> examples = TokenFile::open_listed(stem + ".examples");
  LOOM_TRY(examples.status());
  // All of it is read here anyway.
  LOOM_TRY(tokens->verify());
  LOOM_TRY(examples->verify());
  stored.vocabulary_size_ = tokens->vocabulary_size();
  if (*padding < 0 || *padding >= tokens->vocabulary_size())
    return fail(Code::invalid_data, "\"padding\" of {} is {}, must be in the vocabulary, [0, {})", path,
                *padding, tokens->vocabulary_size());
  stored.tokenizer_hash_ = tokens->tokenizer_hash();
  stored.file_keys_ = {tokens->key(), examples->key()};
  stored.tokens_.resize(tokens->count());
  LOOM_TRY(tokens->read(0, stored.tokens_));
  std::vector<Token> numbers(examples->count());
  LOOM_TRY(examples->read(0, numbers));
  const Status damaged =
      fail(Code::invalid_data,
           "{}.examples must have the counts of the {} tokens of {}.tokens, and has others; "
           "`loom tokenize` makes both anew",
           stem, tokens->count(), stem);
  for (size_t at = 0; at < numbers.size();) {
    if (numbers.size() - at < 2 || numbers[at] < 1) return damaged;
    const auto count = static_cast<size_t>(numbers[at]), values = static_cast<size_t>(numbers[at + 1]);
    at += 2;
    if (values > numbers.size() - at) return damaged;
    const auto first = numbers.begin() + static_cast<std::ptrdiff_t>(at);
    stored.numbers_.insert(stored.numbers_.end(), first, first + static_cast<std::ptrdiff_t>(values));
    stored.numbers_at_.push_back(stored.numbers_.size());
    stored.starts_.push_back(stored.starts_.back() + count);
    at += values;
  }
  if (stored.size() == 0 || stored.starts_.back() != stored.tokens_.size()) return damaged;
  return stored;
}

size_t StoredSequences::longest() const {
  size_t longest = 0;
  for (uint64_t i = 0; i < size(); ++i) longest = std::max(longest, tokens(i).size());
  return longest;
}

Status check_fraction(double validation) {
  if (validation >= 0 && validation < 1) return {};
  return fail(Code::invalid_argument, "the validation fraction is {}, must be in [0, 1)", validation);
}

Result<SplitSizes> write_sequences(std::span<const NumberedSequence> sequences, const std::string& folder,
                                   const Tokenizer& tokenizer, double validation, const char* what,
                                   Json json) {
  LOOM_TRY(check_fraction(validation));
  const std::optional<Token> padding =
      tokenizer.specials().padding ? tokenizer.specials().padding : tokenizer.end_of_text();
  if (!padding)
    return fail(Code::invalid_argument,
                "the tokenizer has neither a padding token nor an end of text to fill sequences up with");
  // By a permutation: every n-th sequence might be always of the same kind.
  const Permutation order(sequences.size(), 0, 0);
  const auto wanted = static_cast<uint64_t>(static_cast<double>(sequences.size()) * validation);
  SplitSizes sizes;
  for (uint64_t i = 0; i < sequences.size(); ++i) {
    if (!sequences[i].tokens.empty()) ++(order(i) < wanted ? sizes.validation : sizes.train);
    sizes.longest = std::max<uint64_t>(sizes.longest, sequences[i].tokens.size());
  }
  if (sizes.train + sizes.validation == 0)
    return fail(Code::invalid_argument, "there are no {}, must be at least one", what);
  if (sizes.train == 0 || (validation > 0 && sizes.validation == 0))
    return fail(
        Code::invalid_argument,
        "{} {} with {:g} % held out leave {} to train on and {} to validate with, must be at least "
        "one each: give more {}, or choose another fraction (--validation 0.3), or none (--validation "
        "0)",
        sequences.size(), what, validation * 100, sizes.train, sizes.validation, what);
  LOOM_TRY(make_folders(folder));
  LOOM_TRY(remove_dataset(folder));
  LOOM_TRY(replace_tokenizer(tokenizer, folder));
  json["version"] = kVersion;
  json["tokenizer"] = {{"description", tokenizer.description()},
                       {"vocabulary_size", tokenizer.vocabulary_size()},
                       {"hash", fmt::format("{:016x}", tokenizer.hash())}};
  json["padding"] = *padding;
  for (const Split split : {Split::train, Split::validation}) {
    if (split == Split::validation && sizes.validation == 0) continue;
    Result<Writer> writer = Writer::create(folder, split, tokenizer);
    LOOM_TRY(writer.status());
    for (uint64_t i = 0; i < sequences.size(); ++i)
      if (!sequences[i].tokens.empty() && (order(i) < wanted) == (split == Split::validation))
        LOOM_TRY(writer->add(sequences[i]));
    LOOM_TRY(writer->finish());
    json[split_name(split)] = writer->to_json();
  }
  LOOM_TRY(format::write_json(join_path(folder, kDatasetFile), json));
  return sizes;
}

}  // namespace loom::text
