// Texts with labels to a folder of examples.
#include <map>

#include "text/examples.h"

namespace loom::text {

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
  std::map<std::string, std::string> places;
  for (const ExampleFile& file : files)
    for (const Example& example : file.examples)
      if (!places.contains(example.label))
        places[example.label] = fmt::format("{}, line {}", file.name, example.line);
  const Result<Labels> labels = Labels::make(places, classes);
  LOOM_TRY(labels.status());
  std::vector<NumberedSequence> sequences;
  for (const ExampleFile& file : files)
    for (const Example& example : file.examples)
      sequences.push_back({example_tokens(example.text, tokenizer), {labels->number(example.label)}});
  const Result<SplitSizes> sizes = write_sequences(sequences, folder, tokenizer, validation, "texts",
                                                   {{"format", "loom examples"},
                                                    {"kept", tokenizer.sequence_template().after.size()},
                                                    {"labels", labels->names()}});
  LOOM_TRY(sizes.status());
  return ExampleSummary{*sizes, labels->names(), labels->note()};
}

}  // namespace loom::text
