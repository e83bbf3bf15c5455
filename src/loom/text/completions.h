// Completions: texts of which a causal model learns parts: what follows a prompt, or the replies of a chat.
//
// A sequence is what begins a document, the segments, and the end of text. The segments are encoded as one
// text; a token that holds characters of two belongs to the later one. The end of text belongs to the last
// segment. What begins or ends a text is not added where the segments spell it out.
//
// A folder of completions holds dataset.json, the tokenizer's files, and numbered sequences
// (text/stored_sequences.h), whose numbers are the bounds of what is learned: begin, end, begin, end.
//
// Thread safety: may be used from any thread at once, but for go_on().
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "text/batches.h"
#include "text/stored_sequences.h"
#include "text/text_file.h"

namespace loom::text {

struct Segment {
  std::string text;
  bool learned = false;
};
/// The texts of a sequence, one after the other. A prompt and its completion are two, of which the second is
/// learned.
using Segments = std::vector<Segment>;

/// The sequences of a file: fields `prompt` and `completion` (text/fields.h). A line of JSON may have a list
/// `segments` instead, of objects with `text` and `label`, which is true for what is learned. Errors: as
/// read_fields(); also for a text that is empty or has a NUL, and for segments that are all without a label.
Result<std::vector<Segments>> read_completions(const TextFile& file, const std::string& format);

/// The tokens of a sequence, and the bounds of those that are learned.
NumberedSequence completion_tokens(const Segments& segments, const Tokenizer& tokenizer);

/// Makes a folder of completions, and replaces what is there. The part `validation` is held out. Errors: as
/// write_sequences().
Result<SplitSizes> tokenize_completions(std::span<const Segments> completions, const std::string& folder,
                                        const Tokenizer& tokenizer, double validation);

/// Whether a folder made by `loom tokenize` holds completions.
bool holds_completions(const std::string& folder);

/// Opens a split. Errors: not_found; invalid_data (files that are gone or damaged, or a folder of other
/// data); unsupported.
Result<std::shared_ptr<const StoredSequences>> open_completions(const std::string& folder, Split split);

/// Calls `use(begin, end)` for the places of a sequence with these bounds that have targets, in their order;
/// the sequence is cut to `length` tokens. Nothing stands before the first token, so that it is no target.
template <typename Use>
void for_targets(std::span<const Token> bounds, int64_t length, Use use) {
  for (size_t i = 0; i < bounds.size(); i += 2) {
    const int64_t begin = std::max<int64_t>(bounds[i], 1) - 1;
    const int64_t end = std::min<int64_t>(bounds[i + 1] - 1, length);
    if (begin < end) use(begin, end);
  }
}
inline int64_t count_targets(std::span<const Token> bounds,
                             int64_t length = std::numeric_limits<int64_t>::max()) {
  int64_t count = 0;
  for_targets(bounds, length, [&](int64_t begin, int64_t end) { count += end - begin; });
  return count;
}

/// A sequence of a batch is a text: its tokens, cut to T, and padding. The targets are the tokens that are
/// learned, each at the token before it. A text that has no target among its first T tokens is in no batch.
/// With `pack` a sequence is as many whole texts as there is room for, and has kEndsText at the last token of
/// each. Which texts are together is always the same.
class CompletionBatches final : public BatchSource {
 public:
  /// Errors: invalid_argument for lengths or batches below 1, and where T leaves room for no completion.
  static Result<CompletionBatches> create(std::shared_ptr<const StoredSequences> completions,
                                          const BatchOptions& options);

  uint64_t windows() const override { return starts_.size() - 1; }
  uint64_t dataset_key() const override;
  int64_t targets(uint64_t step, int64_t rows) const override;
  std::string note() const override;
  Status read(uint64_t step, Rows rows, std::span<Token> inputs, std::span<Token> targets) const override;

 private:
  CompletionBatches(std::shared_ptr<const StoredSequences> completions, const BatchOptions& options)
      : BatchSource(options), completions_(std::move(completions)) {}
  int64_t targets_of(uint64_t text) const {
    return count_targets(completions_->numbers(text), options_.sequence_length);
  }
  int64_t tokens_of(uint64_t text) const {
    return std::min(static_cast<int64_t>(completions_->tokens(text).size()), options_.sequence_length);
  }
  std::span<const uint64_t> texts_of(uint64_t sequence) const {
    return std::span(texts_).subspan(starts_[sequence], starts_[sequence + 1] - starts_[sequence]);
  }
  /// Fills in a sequence of padding without targets.
  void put(std::span<const uint64_t> texts, std::span<Token> inputs, std::span<Token> targets) const;

  std::shared_ptr<const StoredSequences> completions_;
  std::vector<uint64_t> texts_;       // those that have a target, sequence by sequence
  std::vector<size_t> starts_ = {0};  // of each sequence's, and behind the last
  uint64_t cut_ = 0;                  // texts of them whose last tokens are cut off
};

}  // namespace loom::text
