#include "text/pair_merges.h"

#include <algorithm>
#include <limits>
#include <queue>

namespace loom::text {

size_t PairMerges::end_of_results() const {
  size_t end = 0;
  for (const auto& [pair, merge] : merges_) end = std::max(end, static_cast<size_t>(merge.result) + 1);
  return end;
}

/// Merges the symbols of one word after the other, in memory that it keeps.
class WordEncoder::Merging {
 public:
  explicit Merging(const PairMerges& merges) : merges_(merges) {}

  std::vector<Token>& first_symbols() {
    first_.clear();
    return first_;
  }

  /// Merges first_symbols().
  void merge(std::vector<Token>& tokens) {
    symbols_.clear();
    for (size_t i = 0; i < first_.size(); ++i)
      symbols_.push_back({first_[i], i == 0 ? kNone : i - 1, i + 1 == first_.size() ? kNone : i + 1});
    for (size_t i = 0; i + 1 < symbols_.size(); ++i) consider(i);
    while (!candidates_.empty()) {
      const Candidate best = candidates_.top();
      candidates_.pop();
      if (!stands(best)) continue;
      Symbol& left = symbols_[best.left];
      Symbol& right = symbols_[left.next];
      left.token = best.result;
      left.next = right.next;
      right.gone = true;
      if (left.next != kNone) symbols_[left.next].previous = best.left;
      consider(left.previous);
      consider(best.left);
    }
    for (size_t i = 0; i != kNone && i < symbols_.size(); i = symbols_[i].next)
      tokens.push_back(symbols_[i].token);
  }

 private:
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();

  /// A list of symbols, in which two neighbours become one: the left takes the result, the right is gone.
  struct Symbol {
    Token token = 0;
    size_t previous = kNone;
    size_t next = kNone;
    bool gone = false;
  };
  struct Candidate {
    int32_t rank;
    size_t left;
    Token result;
    /// The queue gives the earliest merge first, the leftmost of several.
    bool operator<(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };

  void consider(size_t left) {
    if (left == kNone || symbols_[left].next == kNone) return;
    const PairMerges::Merge* const merge =
        merges_.find(symbols_[left].token, symbols_[symbols_[left].next].token);
    if (merge != nullptr) candidates_.push({merge->rank, left, merge->result});
  }

  /// Whether the two symbols of a candidate are still there and still become its result.
  bool stands(const Candidate& candidate) const {
    const Symbol& left = symbols_[candidate.left];
    if (left.gone || left.next == kNone) return false;
    const PairMerges::Merge* const merge = merges_.find(left.token, symbols_[left.next].token);
    return merge != nullptr && merge->result == candidate.result;
  }

  const PairMerges& merges_;
  std::vector<Token> first_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Candidate> candidates_;
};

WordEncoder::WordEncoder(const PairMerges& merges, FirstSymbols first_symbols)
    : first_symbols_(std::move(first_symbols)), merging_(std::make_unique<Merging>(merges)) {}

WordEncoder::~WordEncoder() = default;

void WordEncoder::encode(std::string_view word, std::vector<Token>& tokens) {
  constexpr size_t kLongestSeen = 64;
  constexpr size_t kMostSeen = size_t{1} << 18;
  const auto seen = seen_.find(word);
  if (seen != seen_.end()) {
    tokens.insert(tokens.end(), seen->second.begin(), seen->second.end());
    return;
  }
  const size_t start = tokens.size();
  first_symbols_(word, merging_->first_symbols());
  merging_->merge(tokens);
  if (word.size() <= kLongestSeen && seen_.size() < kMostSeen) {
    seen_.emplace(word,
                  std::vector<Token>(tokens.begin() + static_cast<std::ptrdiff_t>(start), tokens.end()));
  }
}

}  // namespace loom::text
