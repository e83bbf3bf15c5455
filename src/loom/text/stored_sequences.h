// StoredSequences: the sequences of one split of a dataset, each with numbers: a label, or the bounds of what
// is learned. SPLIT.tokens has all tokens one after the other. SPLIT.examples has the form of a token file.
// For each sequence it has the count of its tokens, the count of its numbers, and these.
//
// Thread safety: may be used from any thread at once.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "format/json_file.h"
#include "text/dataset.h"
#include "text/tokenizer.h"

namespace loom::text {

struct NumberedSequence {
  std::vector<Token> tokens;
  std::vector<Token> numbers;
};

class StoredSequences {
 public:
  /// `json` is what dataset.json says; all of both files is read and checked. Errors: not_found (no such
  /// split); invalid_data (files that are gone or damaged); unsupported (another version).
  static Result<StoredSequences> open(const std::string& folder, Split split, const format::Json& json);

  uint64_t size() const { return starts_.size() - 1; }
  std::span<const Token> tokens(uint64_t sequence) const {
    return std::span(tokens_).subspan(starts_[sequence], starts_[sequence + 1] - starts_[sequence]);
  }
  std::span<const Token> numbers(uint64_t sequence) const {
    return std::span(numbers_).subspan(numbers_at_[sequence],
                                       numbers_at_[sequence + 1] - numbers_at_[sequence]);
  }
  /// Tokens of the longest sequence.
  size_t longest() const;
  int64_t vocabulary_size() const { return vocabulary_size_; }
  uint64_t tokenizer_hash() const { return tokenizer_hash_; }
  /// What sequences are filled up with: the tokenizer's padding, or else its end of text.
  Token padding() const { return padding_; }
  /// Adds what tells contents apart.
  void add_to(Hash64& key) const {
    for (const uint64_t file : file_keys_) key.add(file);
  }

 private:
  std::vector<Token> tokens_;
  std::vector<size_t> starts_ = {0};
  std::vector<Token> numbers_;
  std::vector<size_t> numbers_at_ = {0};
  int64_t vocabulary_size_ = 0;
  uint64_t tokenizer_hash_ = 0;
  Token padding_ = 0;
  std::array<uint64_t, 2> file_keys_{};
};

struct SplitSizes {
  uint64_t train = 0, validation = 0;  // sequences
  uint64_t longest = 0;                // tokens of the longest one
};

/// That a part of the sequences can be held out: [0, 1). Errors: invalid_argument.
Status check_fraction(double validation);

/// Makes a dataset's folder of sequences, and replaces what is there. Those without tokens are left out. The
/// part `validation` is held out, chosen by a permutation; of 0 there is no such split. `what` is "texts",
/// for sentences. `json` is what dataset.json says besides. Errors: invalid_argument (a split without
/// sequences, or a tokenizer that has nothing to fill them up with; then what was there stays), disk_full,
/// system_error.
Result<SplitSizes> write_sequences(std::span<const NumberedSequence> sequences, const std::string& folder,
                                   const Tokenizer& tokenizer, double validation, const char* what,
                                   format::Json json);

}  // namespace loom::text
