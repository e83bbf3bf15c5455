// Training of a byte-level BPE vocabulary. The most frequent pair of neighbours becomes a token, repeatedly.
// Ties go to the pair with the smaller left token, then the smaller right one. So the same text always gives
// the same vocabulary. It is the one that Hugging Face's `tokenizers` trains with the bytes as initial
// alphabet.
//
// Thread safety: a trainer belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "text/bpe.h"

namespace loom::text {

struct BpeTraining {
  int64_t vocabulary_size = 8192;                               // with special tokens and the 256 bytes
  int64_t least_count = 2;                                      // pairs that are rarer are never merged
  std::vector<std::string> special_tokens = {"<|endoftext|>"};  // they get the first numbers
};

class BpeTrainer {
 public:
  /// Errors (invalid_argument): a vocabulary that does not hold bytes and special tokens, or special tokens
  /// that are empty, bytes, or there twice.
  static Result<BpeTrainer> create(BpeTraining training);

  /// Counts the words of a text; call it as often as there are texts.
  void add(std::string_view text);
  /// The vocabulary is smaller than asked for when no pair is frequent enough. Errors: invalid_argument when
  /// no text was added.
  Result<std::shared_ptr<const BpeTokenizer>> train() const;

 private:
  explicit BpeTrainer(BpeTraining training) : training_(std::move(training)) {}
  BpeTraining training_;
  std::unordered_map<std::string, int64_t> words_;
};

}  // namespace loom::text
