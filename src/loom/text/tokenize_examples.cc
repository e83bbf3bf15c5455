// Files of texts with labels, read and tokenized.
#include <algorithm>
#include <limits>
#include <set>

#include "base/file.h"
#include "base/mapped_file.h"
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

Result<Example> example_of_json(std::string_view line) {
  const Result<Json> json = format::parse_json(line);
  LOOM_TRY(json.status());
  Result<std::string> text = format::required<std::string>(*json, "text");
  LOOM_TRY(text.status());
  if (json->contains("label") && (*json)["label"].is_number_integer())
    return Example{text.take(), (*json)["label"].dump()};
  Result<std::string> label = format::required<std::string>(*json, "label");
  LOOM_TRY(label.status());
  return Example{text.take(), label.take()};
}

Result<Example> example_of_line(std::string_view line) {
  const size_t tab = line.find('\t');
  if (tab == std::string_view::npos || tab == 0 || tab + 1 == line.size())
    return fail(Code::invalid_data, "it must be a label, a tab and a text");
  return Example{std::string(line.substr(tab + 1)), std::string(line.substr(0, tab))};
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
  const SpecialTokens specials = tokenizer.specials();
  std::vector<Token> tokens;
  if (specials.begin) tokens.push_back(*specials.begin);
  tokenizer.encode(text, tokens);
  if (specials.end) tokens.push_back(*specials.end);
  return tokens;
}

void cut_example(std::vector<Token>& tokens, size_t length) {
  if (tokens.size() <= length) return;
  tokens[length - 1] = tokens.back();
  tokens.resize(length);
}

Result<std::vector<Example>> read_examples(const std::string& path) {
  const Result<MappedFile> file = MappedFile::open(path);
  LOOM_TRY(file.status());
  const std::string_view content = file->text();
  LOOM_TRY(check_text(content).in(path));
  const bool json = path.ends_with(".jsonl");
  std::vector<Example> examples;
  int64_t number = 0;
  for (size_t at = 0; at < content.size();) {
    const size_t end = std::min(content.find('\n', at), content.size());
    std::string_view line = content.substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    at = end + 1;
    ++number;
    if (line.empty()) continue;
    Result<Example> example = json ? example_of_json(line) : example_of_line(line);
    LOOM_TRY(example.status().in(fmt::format("{}, line {}", path, number)));
    examples.push_back(example.take());
  }
  return examples;
}

Result<ExampleSummary> tokenize_examples(const std::vector<std::string>& files, const std::string& folder,
                                         const Tokenizer& tokenizer, double validation) {
  if (!(validation >= 0 && validation < 1))
    return fail(Code::invalid_argument, "the validation fraction is {}, must be in [0, 1)", validation);
  std::vector<Example> all;
  for (const std::string& path : files) {
    Result<std::vector<Example>> some = read_examples(path);
    LOOM_TRY(some.status());
    all.insert(all.end(), some->begin(), some->end());
  }
  std::set<std::string> names;
  for (const Example& example : all) names.insert(example.label);
  if (names.size() < 2)
    return fail(Code::invalid_argument, "the texts have {} label, must have at least two to tell apart",
                names.size());
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
  summary.labels.assign(names.begin(), names.end());
  for (uint64_t i = 0; i < all.size(); ++i) {
    tokens.push_back(example_tokens(all[i].text, tokenizer));
    if (!tokens.back().empty()) ++(order(i) < wanted ? summary.validation : summary.train);
  }
  if (summary.train == 0 || summary.validation == 0)
    return fail(
        Code::invalid_argument,
        "{} texts with {:g} % held out leave {} to train on and {} to validate with, must be at least "
        "one each",
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
    const auto place = std::lower_bound(summary.labels.begin(), summary.labels.end(), all[i].label);
    LOOM_TRY((order(i) < wanted ? *held_out : *train)
                 .add(tokens[i], static_cast<Token>(place - summary.labels.begin())));
  }
  LOOM_TRY(train->finish());
  LOOM_TRY(held_out->finish());
  Json json;
  json["format"] = "loom examples";
  json["version"] = 1;
  json["tokenizer"] = {{"description", tokenizer.description()},
                       {"vocabulary_size", tokenizer.vocabulary_size()},
                       {"hash", fmt::format("{:016x}", tokenizer.hash())}};
  json["padding"] = *padding;
  json["labels"] = summary.labels;
  json[split_name(Split::train)] = train->to_json();
  json[split_name(Split::validation)] = held_out->to_json();
  LOOM_TRY(format::write_json(join_path(folder, kDatasetFile), json));
  return summary;
}

}  // namespace loom::text
