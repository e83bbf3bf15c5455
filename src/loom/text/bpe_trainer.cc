#include "text/bpe_trainer.h"

#include <algorithm>
#include <queue>

#include "base/hash.h"
#include "text/byte_alphabet.h"
#include "text/words.h"

namespace loom::text {
namespace {

struct Word {
  std::vector<Token> symbols;
  int64_t count = 0;
};

using Pair = std::pair<Token, Token>;

struct PairHash {
  size_t operator()(const Pair& pair) const {
    return mix64(static_cast<uint64_t>(static_cast<uint32_t>(pair.first)) << 32 |
                 static_cast<uint32_t>(pair.second));
  }
};

/// How often a pair was there when this was put into the queue, which may have changed since.
struct Candidate {
  int64_t count;
  Pair pair;
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

/// Words as symbols, with the counts of all pairs of neighbours, kept up to date by every merge.
class Corpus {
 public:
  explicit Corpus(std::vector<Word> words) : words_(std::move(words)) {
    for (size_t w = 0; w < words_.size(); ++w) {
      const Word& word = words_[w];
      for (size_t i = 0; i + 1 < word.symbols.size(); ++i)
        change({word.symbols[i], word.symbols[i + 1]}, w, word.count);
    }
    for (const auto& [pair, entry] : pairs_) queue_.push({entry.count, pair});
  }

  /// The most frequent pair, and the smallest of several; nothing when none is there `least` times.
  std::optional<Pair> best(int64_t least) {
    while (!queue_.empty()) {
      const Candidate top = queue_.top();
      queue_.pop();
      const auto found = pairs_.find(top.pair);
      const int64_t count = found == pairs_.end() ? 0 : found->second.count;
      if (count == top.count && count >= least) return top.pair;
      if (count != top.count && count >= least) queue_.push({count, top.pair});
    }
    return std::nullopt;
  }

  void merge(Pair pair, Token result) {
    const std::vector<uint32_t> words = std::move(pairs_.at(pair).words);
    pairs_.erase(pair);
    std::vector<Pair> grown;
    for (const uint32_t w : words) merge_word(w, pair, result, grown);
    std::sort(grown.begin(), grown.end());
    grown.erase(std::unique(grown.begin(), grown.end()), grown.end());
    for (const Pair& other : grown) {
      const auto found = pairs_.find(other);
      if (found != pairs_.end() && found->second.count > 0) queue_.push({found->second.count, other});
    }
    pairs_.erase(pair);  // "aaa" has counted what overlaps
  }

 private:
  struct Entry {
    int64_t count = 0;
    std::vector<uint32_t> words;  // where it is, or was
  };

  void change(Pair pair, size_t word, int64_t by) {
    Entry& entry = pairs_[pair];
    entry.count += by;
    const uint32_t w = static_cast<uint32_t>(word);
    if (by > 0 && (entry.words.empty() || entry.words.back() != w)) entry.words.push_back(w);
  }

  void merge_word(uint32_t w, Pair pair, Token result, std::vector<Pair>& grown) {
    Word& word = words_[w];
    std::vector<Token>& symbols = word.symbols;
    size_t out = 0;
    for (size_t in = 0; in < symbols.size(); ++in, ++out) {
      symbols[out] = symbols[in];
      if (symbols[in] != pair.first || in + 1 >= symbols.size() || symbols[in + 1] != pair.second) continue;
      if (out > 0) {
        const Token left = symbols[out - 1];
        change({left, pair.first}, w, -word.count);
        change({left, result}, w, word.count);
        grown.emplace_back(left, result);
      }
      if (in + 2 < symbols.size()) {
        const Token right = symbols[in + 2];
        change({pair.second, right}, w, -word.count);
        change({result, right}, w, word.count);
        grown.emplace_back(result, right);
      }
      symbols[out] = result;
      ++in;
    }
    symbols.resize(out);
  }

  std::vector<Word> words_;
  std::unordered_map<Pair, Entry, PairHash> pairs_;
  std::priority_queue<Candidate> queue_;
};

}  // namespace

Result<BpeTrainer> BpeTrainer::create(BpeTraining training) {
  const int64_t least = 256 + static_cast<int64_t>(training.special_tokens.size());
  constexpr int64_t kMost = int64_t{1} << 24;
  if (training.vocabulary_size < least || training.vocabulary_size > kMost) {
    return fail(Code::invalid_argument,
                "a vocabulary of {} tokens, must be in [{}, {}]: the bytes and {} special tokens",
                training.vocabulary_size, least, kMost, training.special_tokens.size());
  }
  if (training.least_count < 1) {
    return fail(Code::invalid_argument, "pairs must be there {} times, must be at least 1",
                training.least_count);
  }
  std::vector<std::string> sorted = training.special_tokens;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i) {
    const std::optional<std::string> bytes = unspell(sorted[i]);
    if (sorted[i].empty() || (bytes && bytes->size() == 1)) {
      return fail(Code::invalid_argument, "the special token \"{}\" is {}", sorted[i],
                  sorted[i].empty() ? "empty" : "the spelling of a byte");
    }
    if (i > 0 && sorted[i] == sorted[i - 1]) {
      return fail(Code::invalid_argument, "the special token \"{}\" is there twice", sorted[i]);
    }
  }
  return BpeTrainer(std::move(training));
}

void BpeTrainer::add(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = word_end(text, at);
    ++words_[std::string(text.substr(at, end - at))];
    at = end;
  }
}

Result<std::shared_ptr<const BpeTokenizer>> BpeTrainer::train() const {
  if (words_.empty()) return fail(Code::invalid_argument, "no text was added, there is nothing to train on");
  BpeModel model;
  for (const std::string& special : training_.special_tokens) {
    model.added.push_back({special, static_cast<Token>(model.vocabulary.size())});
    model.vocabulary.push_back(special);
  }
  // Bytes are numbered in the order of their spellings.
  std::vector<unsigned char> bytes(256);
  for (unsigned i = 0; i < 256; ++i) bytes[i] = static_cast<unsigned char>(i);
  std::sort(bytes.begin(), bytes.end(),
            [](unsigned char a, unsigned char b) { return spelling_of(a) < spelling_of(b); });
  std::array<Token, 256> token_of_byte{};
  for (const unsigned char byte : bytes) {
    token_of_byte[byte] = static_cast<Token>(model.vocabulary.size());
    model.vocabulary.push_back(std::string(1, static_cast<char>(byte)));
  }
  std::unordered_map<std::string, Token> token_of;
  for (size_t id = 0; id < model.vocabulary.size(); ++id) {
    const std::string& token = model.vocabulary[id];
    token_of[id < training_.special_tokens.size() ? token : spell(token)] = static_cast<Token>(id);
  }

  std::vector<Word> words;
  words.reserve(words_.size());
  for (const auto& [text, count] : words_) {
    Word& word = words.emplace_back();
    word.count = count;
    for (const char byte : text) word.symbols.push_back(token_of_byte[static_cast<unsigned char>(byte)]);
  }
  Corpus corpus(std::move(words));
  while (static_cast<int64_t>(model.vocabulary.size()) < training_.vocabulary_size) {
    const std::optional<Pair> pair = corpus.best(training_.least_count);
    if (!pair) break;
    const std::string merged = model.vocabulary[static_cast<size_t>(pair->first)] +
                               model.vocabulary[static_cast<size_t>(pair->second)];
    // Two pairs may make the same text, which stays one token.
    const auto [token, is_new] = token_of.emplace(spell(merged), static_cast<Token>(model.vocabulary.size()));
    if (is_new) model.vocabulary.push_back(merged);
    model.merges.push_back(*pair);
    corpus.merge(*pair, token->second);
  }
  return BpeTokenizer::make(std::move(model));
}

}  // namespace loom::text
