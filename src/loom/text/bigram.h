// BigramModel: predicts a byte from the one before it. What any language model must beat.
//
// The probability of byte b after a is interpolated with its frequency alone, by Witten and Bell's weight
// (1991): after a byte that was seen n times with u different successors,
//   p(b|a) = (count(ab) + u·p(b)) / (n + u),   p(b) = (count(b) + 1) / (total + 256).
//
// Thread safety: add() belongs to one thread; the rest may be called from any.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer.h"

namespace loom::text {

class BigramModel {
 public:
  BigramModel() : pairs_(256 * 256) {}

  /// Counts a text; pairs never reach from one text into the next.
  void add(std::string_view text);
  /// Probability of `next` after `previous`; 1/256 for all when nothing was added.
  double probability(unsigned char previous, unsigned char next) const;
  /// Sum of -ln p over the bytes of `text` but the first, in nats.
  double surprise(std::string_view text) const;

 private:
  double probability_alone(unsigned char byte) const;

  std::vector<uint64_t> pairs_;           // [previous, next]
  std::array<uint64_t, 256> followed_{};  // times a byte was followed by another
  std::array<uint64_t, 256> variety_{};   // different successors
  std::array<uint64_t, 256> alone_{};
  uint64_t total_ = 0;
};

/// What a byte-bigram model, trained on a dataset's text for training, reaches on its validation text, or on
/// what the first `tokens` of that stand for (0: all), in nats a byte. A loss per token compares with it
/// after multiplying by tokens / text bytes of the validation split. Documents are taken apart; the longest
/// must fit into memory. Errors: as TokenDataset::open() and open_tokenizer(); invalid_data when the
/// tokenizer beside the tokens is another one, or no document has two bytes.
Result<double> bigram_baseline(const std::string& folder, uint64_t tokens = 0);

/// Bytes of text that the first `tokens` of a dataset's validation text stand for: what turns a loss per
/// token of that part into one per byte. Errors: as bigram_baseline().
Result<uint64_t> text_bytes_of_part(const std::string& folder, const Tokenizer& tokenizer, uint64_t tokens);

}  // namespace loom::text
