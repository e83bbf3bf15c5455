// Texts with labels to a folder of examples.
#include <limits>
#include <map>

#include "base/file.h"
#include "format/json_file.h"
#include "text/examples.h"
#include "text/permutation.h"
#include "text/replace_tokenizer.h"
#include "text/tokenize_files.h"

namespace loom::text {
namespace {

using format::Json;

/// Numbers of .examples files: any that a token can be.
constexpr int64_t kAnyNumber = std::numeric_limits<Token>::max();

Status check_fraction(double validation) {
  if (validation >= 0 && validation < 1) return {};
  return fail(Code::invalid_argument, "the validation fraction is {}, must be in [0, 1)", validation);
}

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
  Status add(std::span<const Token> tokens, Token label) {
    const Token numbers[] = {static_cast<Token>(tokens.size()), label};
    LOOM_TRY(tokens_.append(tokens));
    return examples_.append(numbers);
  }
  Json to_json() const { return {{"examples", examples_.count() / 2}, {"tokens", tokens_.count()}}; }
  Status finish() {
    LOOM_TRY(tokens_.finish());
    return examples_.finish();
  }

 private:
  Writer(TokenFileWriter tokens, TokenFileWriter examples)
      : tokens_(std::move(tokens)), examples_(std::move(examples)) {}
  TokenFileWriter tokens_, examples_;
};

}  // namespace

std::vector<Token> example_tokens(const std::string& text, const Tokenizer& tokenizer) {
  const SequenceTemplate around = tokenizer.sequence_template();
  std::vector<Token> tokens = around.before;
  tokenizer.encode(text, tokens);
  tokens.insert(tokens.end(), around.after.begin(), around.after.end());
  return tokens;
}

Result<ExampleSummary> tokenize_examples(const std::vector<std::string>& files, const std::string& folder,
                                         const Tokenizer& tokenizer, double validation,
                                         const ModelClasses& classes) {
  LOOM_TRY(check_fraction(validation));
  std::vector<ExampleFile> all;
  for (const std::string& path : files) {
    Result<std::vector<Example>> some = read_examples(path);
    LOOM_TRY(some.status());
    all.push_back({path, some.take()});
  }
  return tokenize_examples(all, folder, tokenizer, validation, classes);
}

Result<ExampleSummary> tokenize_examples(const std::vector<ExampleFile>& files, const std::string& folder,
                                         const Tokenizer& tokenizer, double validation,
                                         const ModelClasses& classes) {
  LOOM_TRY(check_fraction(validation));
  std::vector<const Example*> all;
  std::map<std::string, std::string> places;
  for (const ExampleFile& file : files)
    for (const Example& example : file.examples) {
      all.push_back(&example);
      if (!places.contains(example.label))
        places[example.label] = fmt::format("{}, line {}", file.name, example.line);
    }
  const Result<Labels> labels = Labels::make(places, classes);
  LOOM_TRY(labels.status());
  const std::optional<Token> padding =
      tokenizer.specials().padding ? tokenizer.specials().padding : tokenizer.end_of_text();
  if (!padding)
    return fail(Code::invalid_argument,
                "the tokenizer has neither a padding token nor an end of text to fill sequences up with");
  // By a permutation: every n-th text might be always of the same label.
  const Permutation order(all.size(), 0, 0);
  const auto wanted = static_cast<uint64_t>(static_cast<double>(all.size()) * validation);
  std::vector<std::vector<Token>> tokens;
  ExampleSummary summary;
  summary.labels = labels->names();
  summary.note = labels->note();
  for (uint64_t i = 0; i < all.size(); ++i) {
    tokens.push_back(example_tokens(all[i]->text, tokenizer));
    if (!tokens.back().empty()) ++(order(i) < wanted ? summary.validation : summary.train);
  }
  if (summary.train == 0 || summary.validation == 0)
    return fail(
        Code::invalid_argument,
        "{} texts with {:g} % held out leave {} to train on and {} to validate with, must be at least "
        "one each: give more texts, or choose another fraction (--validation 0.3)",
        all.size(), validation * 100, summary.train, summary.validation);
  LOOM_TRY(make_folders(folder));
  LOOM_TRY(remove_dataset(folder));
  LOOM_TRY(replace_tokenizer(tokenizer, folder));
  Result<Writer> train = Writer::create(folder, Split::train, tokenizer),
                 held_out = Writer::create(folder, Split::validation, tokenizer);
  LOOM_TRY(train.status());
  LOOM_TRY(held_out.status());
  for (uint64_t i = 0; i < all.size(); ++i) {
    if (tokens[i].empty()) continue;
    LOOM_TRY((order(i) < wanted ? *held_out : *train).add(tokens[i], labels->number(all[i]->label)));
  }
  LOOM_TRY(train->finish());
  LOOM_TRY(held_out->finish());
  Json json;
  json["format"] = "loom examples";
  json["version"] = kDatasetVersion;
  json["tokenizer"] = {{"description", tokenizer.description()},
                       {"vocabulary_size", tokenizer.vocabulary_size()},
                       {"hash", fmt::format("{:016x}", tokenizer.hash())}};
  json["padding"] = *padding;
  json["kept"] = tokenizer.sequence_template().after.size();
  json["labels"] = summary.labels;
  json[split_name(Split::train)] = train->to_json();
  json[split_name(Split::validation)] = held_out->to_json();
  LOOM_TRY(format::write_json(join_path(folder, kDatasetFile), json));
  return summary;
}

}  // namespace loom::text
