// Completions: prompts, each with the text that a model is to answer. A causal model reads both and learns
// the completion alone.
//
// A sequence is what begins a document, the prompt, the completion, and the end of text. Prompt and
// completion are encoded as one text; a token that holds characters of both belongs to the completion. What
// begins or ends a text is not added where the texts spell it out.
//
// A folder of completions holds dataset.json, the tokenizer's files, and numbered sequences
// (text/stored_sequences.h), whose numbers are the tokens of their prompts.
//
// Thread safety: may be used from any thread at once, but for go_on().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/batches.h"
#include "text/stored_sequences.h"
#include "text/text_file.h"

namespace loom::text {

struct Completion {
  std::string prompt, completion;
};

/// Prompts and completions of a file: fields of these names (text/fields.h). Errors: as read_fields(); also
/// for a prompt or a completion that is empty or has a NUL.
Result<std::vector<Completion>> read_completions(const TextFile& file, const std::string& format);

/// The tokens of one, and how many of them are the prompt's.
NumberedSequence completion_tokens(const Completion& completion, const Tokenizer& tokenizer);

/// Makes a folder of completions, and replaces what is there. The part `validation` is held out. Errors: as
/// write_sequences().
Result<SplitSizes> tokenize_completions(std::span<const Completion> completions, const std::string& folder,
                                        const Tokenizer& tokenizer, double validation);

/// Whether a folder made by `loom tokenize` holds completions.
bool holds_completions(const std::string& folder);

/// Opens a split. Errors: not_found; invalid_data (files that are gone or damaged, or a folder of other
/// data).
Result<std::shared_ptr<const StoredSequences>> open_completions(const std::string& folder, Split split);

/// One completion a sequence: its tokens, cut to T, and padding. The targets are the tokens of the
/// completion, each at the token before it. A completion whose prompt leaves no room for a target is in no
/// batch.
class CompletionBatches final : public BatchSource {
 public:
  /// Errors: invalid_argument for lengths or batches below 1, and where T leaves room for no completion.
  static Result<CompletionBatches> create(std::shared_ptr<const StoredSequences> completions,
                                          const BatchOptions& options);

  uint64_t windows() const override { return used_.size(); }
  uint64_t dataset_key() const override;
  int64_t targets(uint64_t step, int64_t rows) const override;
  std::string note() const override;
  Status read(uint64_t step, Rows rows, std::span<Token> inputs, std::span<Token> targets) const override;
  void go_on(uint64_t step, uint64_t sequence) override {
    options_.from_step = step, options_.from_sequence = sequence;
  }

 private:
  CompletionBatches(std::shared_ptr<const StoredSequences> completions, const BatchOptions& options)
      : completions_(std::move(completions)), options_(options) {}
  /// Places of a sequence that have a target: [begin, end).
  struct Places {
    int64_t begin = 0, end = 0;
  };
  Places places(uint64_t sequence) const;

  std::shared_ptr<const StoredSequences> completions_;
  BatchOptions options_;
  std::vector<uint64_t> used_;  // sequences that have a target
  uint64_t cut_ = 0;            // of these, those whose last tokens are cut off
};

}  // namespace loom::text
