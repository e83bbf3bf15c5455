// Examples: texts with a label, to classify. A folder of examples holds dataset.json (with the labels'
// names), the tokenizer's files, and the texts of each split as numbered sequences (text/stored_sequences.h).
//
// Thread safety: may be used from any thread at once.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/batches.h"
#include "text/dataset.h"
#include "text/labels.h"
#include "text/stored_sequences.h"
#include "text/text_file.h"

namespace loom::text {

struct Example {
  std::string text, label;
  int64_t line = 0;  // where it begins
};

/// Texts and labels of a file. Its name gives the format:
/// * .jsonl has lines of {"text": …, "label": …}
/// * .csv has columns, of which the first line names "text" and "label"
/// * any other, or a pipe, has the same columns separated by tabs, or lines of a label, a tab and a text
/// Fields of columns may be in quotation marks (text/delimited.h); in plain lines they have no meaning.
/// Errors: not_found; invalid_data with the line, also for a label or a text that is empty or has a NUL, and
/// for white space around a label, which would make it another one.
Result<std::vector<Example>> read_examples(const std::string& path);
/// The same; `format` is "jsonl", "csv" or "tsv", or empty: as the name says. Errors: invalid_argument.
Result<std::vector<Example>> read_examples(const TextFile& file, const std::string& format);

/// The tokens that a classifier reads of a text: they stand in the tokenizer's template.
std::vector<Token> example_tokens(const std::string& text, const Tokenizer& tokenizer);
/// Copies a text's tokens, at most as many as `into` has, and gives their number. The last `kept` ones stay
/// where others are cut off: those that the tokenizer's template puts behind a text.
size_t copy_example(std::span<const Token> tokens, size_t kept, std::span<Token> into);

struct ExampleSummary {
  SplitSizes sizes;                 // of texts
  std::vector<std::string> labels;  // their numbers are their places
  std::string note;                 // what is to be told about them; mostly nothing
};

/// Makes a folder of examples, and replaces what is there. The part `validation` of the texts is held
/// out, chosen by a permutation. A text gets what the tokenizer's template has around it. Errors:
/// invalid_argument (a part that is not in [0, 1) or leaves a split without texts, or as Labels::make()), as
/// read_examples(); then what was there stays.
Result<ExampleSummary> tokenize_examples(const std::vector<std::string>& files, const std::string& folder,
                                         const Tokenizer& tokenizer, double validation,
                                         const ModelClasses& classes = {});

/// Texts of one file.
struct ExampleFile {
  std::string name;
  std::vector<Example> examples;
};
/// The same, of texts that were read.
Result<ExampleSummary> tokenize_examples(const std::vector<ExampleFile>& files, const std::string& folder,
                                         const Tokenizer& tokenizer, double validation,
                                         const ModelClasses& classes);

class ExampleDataset {
 public:
  /// Errors: not_found; invalid_data (files that are gone or damaged, or a folder of tokens that have no
  /// labels).
  static Result<std::shared_ptr<const ExampleDataset>> open(const std::string& folder, Split split);

  const StoredSequences& texts() const { return texts_; }
  Token label(uint64_t text) const { return texts_.numbers(text)[0]; }
  const std::vector<std::string>& label_names() const { return names_; }
  /// Tokens at the end of every text that stay where it is cut.
  size_t kept() const { return kept_; }
  /// Tells datasets apart by their content, wherever they lie.
  uint64_t key() const { return key_; }

 private:
  StoredSequences texts_;  // each has its label as its only number
  std::vector<std::string> names_;
  size_t kept_ = 1;
  uint64_t key_ = 0;
};

/// Whether a folder made by `loom tokenize` holds examples.
bool holds_examples(const std::string& folder);

/// One example a sequence: its tokens, cut to T, and padding; the only target is the label, at the first
/// token.
class ExampleBatches final : public BatchSource {
 public:
  static Result<ExampleBatches> create(std::shared_ptr<const ExampleDataset> dataset,
                                       const BatchOptions& options);

  uint64_t windows() const override { return dataset_->texts().size(); }
  uint64_t dataset_key() const override { return dataset_->key(); }
  int64_t targets(uint64_t, int64_t rows) const override { return rows; }
  Status read(uint64_t step, Rows rows, std::span<Token> inputs, std::span<Token> targets) const override;

 private:
  ExampleBatches(std::shared_ptr<const ExampleDataset> dataset, const BatchOptions& options)
      : BatchSource(options), dataset_(std::move(dataset)) {}
  std::shared_ptr<const ExampleDataset> dataset_;
};

}  // namespace loom::text
