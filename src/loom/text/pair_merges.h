// What every byte-pair encoding does: the pair of neighbours that is first in the list of merges becomes one
// symbol, until no pair is in the list. Source: Sennrich, Haddow, Birch, "Neural machine translation of rare
// words with subword units", 2016.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "text/tokenizer.h"

namespace loom::text {

/// Which pairs become one token. Thread safety: any number of threads may read.
class PairMerges {
 public:
  struct Merge {
    int32_t rank = 0;  // the least comes first
    Token result = 0;
  };
  /// Replaces the merge of the same pair, if there is one.
  void add(Token left, Token right, Merge merge) { merges_[key(left, right)] = merge; }
  const Merge* find(Token left, Token right) const {
    const auto found = merges_.find(key(left, right));
    return found == merges_.end() ? nullptr : &found->second;
  }
  void reserve(size_t count) { merges_.reserve(count); }
  static uint64_t key(Token left, Token right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  /// One behind the largest token that a merge makes; 0 without merges.
  size_t end_of_results() const;

 private:
  struct PairHash {
    size_t operator()(uint64_t pair) const { return mix64(pair); }
  };
  std::unordered_map<uint64_t, Merge, PairHash> merges_;
};

/// Encodes words, and remembers those it has seen: most of a text are few words again and again. Time is
/// n log n in a word's symbols. Belongs to one call.
class WordEncoder {
 public:
  /// Appends the tokens of which a word is made before any merge.
  using FirstSymbols = std::function<void(std::string_view word, std::vector<Token>& symbols)>;

  /// `merges` must outlive it.
  WordEncoder(const PairMerges& merges, FirstSymbols first_symbols);
  ~WordEncoder();
  /// Appends the tokens of a word.
  void encode(std::string_view word, std::vector<Token>& tokens);

 private:
  struct TextHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  class Merging;

  FirstSymbols first_symbols_;
  std::unique_ptr<Merging> merging_;
  std::unordered_map<std::string, std::vector<Token>, TextHash, std::equal_to<>> seen_;
};

}  // namespace loom::text
