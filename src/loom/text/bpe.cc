#include "text/bpe.h"

#include <algorithm>
#include <limits>
#include <queue>

#include "text/byte_alphabet.h"
#include "text/normalize.h"
#include "text/utf8.h"

namespace loom::text {
namespace {

uint64_t pair_key(Token left, Token right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

}  // namespace

/// Encodes words, and remembers those it has seen: most of a text are few words again and again. Belongs to
/// one call.
class BpeTokenizer::WordEncoder {
 public:
  explicit WordEncoder(const BpeTokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void encode(std::string_view word, std::vector<Token>& tokens) {
    const auto seen = seen_.find(word);
    if (seen != seen_.end()) {
      tokens.insert(tokens.end(), seen->second.begin(), seen->second.end());
      return;
    }
    const size_t start = tokens.size();
    if (const std::optional<Token> whole = tokenizer_.whole_word(word)) tokens.push_back(*whole);
    else merge(word, tokens);
    if (word.size() <= kLongestSeen && seen_.size() < kMostSeen) {
      seen_.emplace(word,
                    std::vector<Token>(tokens.begin() + static_cast<std::ptrdiff_t>(start), tokens.end()));
    }
  }

 private:
  static constexpr size_t kLongestSeen = 64;
  static constexpr size_t kMostSeen = size_t{1} << 18;
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
    const Merge* const merge = tokenizer_.merge_of(symbols_[left].token, symbols_[symbols_[left].next].token);
    if (merge != nullptr) candidates_.push({merge->rank, left, merge->result});
  }

  /// Whether the two symbols of a candidate are still there and still become its result.
  bool stands(const Candidate& candidate) const {
    const Symbol& left = symbols_[candidate.left];
    if (left.gone || left.next == kNone) return false;
    const Merge* const merge = tokenizer_.merge_of(left.token, symbols_[left.next].token);
    return merge != nullptr && merge->result == candidate.result;
  }

  void merge(std::string_view word, std::vector<Token>& tokens) {
    symbols_.clear();
    for (size_t i = 0; i < word.size(); ++i) {
      symbols_.push_back({tokenizer_.token_of_byte_[static_cast<unsigned char>(word[i])],
                          i == 0 ? kNone : i - 1, i + 1 == word.size() ? kNone : i + 1});
    }
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

  const BpeTokenizer& tokenizer_;
  std::unordered_map<std::string, std::vector<Token>, TextHash, std::equal_to<>> seen_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Candidate> candidates_;
};

Result<std::shared_ptr<const BpeTokenizer>> BpeTokenizer::make(BpeModel model) {
  const std::shared_ptr<BpeTokenizer> tokenizer(new BpeTokenizer(std::move(model)));
  LOOM_TRY(tokenizer->index_vocabulary());
  LOOM_TRY(tokenizer->index_merges());
  LOOM_TRY(tokenizer->index_added());
  LOOM_TRY(tokenizer->index_roles());
  return std::shared_ptr<const BpeTokenizer>(tokenizer);
}

Status BpeTokenizer::index_vocabulary() {
  std::vector<std::string>& vocabulary = model_.vocabulary;
  if (vocabulary.size() > static_cast<size_t>(std::numeric_limits<Token>::max())) {
    return fail(Code::invalid_data, "{} tokens, must be fewer than 2^31", vocabulary.size());
  }
  spellings_.resize(vocabulary.size());
  for (size_t id = 0; id < vocabulary.size(); ++id) spellings_[id] = spell(vocabulary[id]);
  for (const AddedToken& added : model_.added) {
    if (added.id < 0 || added.id >= vocabulary_size() ||
        vocabulary[static_cast<size_t>(added.id)] != added.content) {
      return fail(Code::invalid_data, "the added token \"{}\" has the number {}, which is another token's",
                  added.content, added.id);
    }
    spellings_[static_cast<size_t>(added.id)] = added.content;
  }
  Hash64 hash;
  hash.add("byte-level BPE");
  for (size_t id = 0; id < vocabulary.size(); ++id) {
    hash.add(spellings_[id]);
    if (spellings_[id].empty()) continue;
    const auto [other, added] = token_spelled_.emplace(spellings_[id], static_cast<Token>(id));
    if (!added) {
      return fail(Code::invalid_data, "the tokens {} and {} are both \"{}\"", other->second, id,
                  spellings_[id]);
    }
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    const auto found = token_spelled_.find(spelling_of(static_cast<unsigned char>(byte)));
    if (found == token_spelled_.end()) {
      return fail(Code::invalid_data,
                  "no token for byte {}, spelled \"{}\": byte-level BPE has one for each of 256", byte,
                  spelling_of(static_cast<unsigned char>(byte)));
    }
    token_of_byte_[byte] = found->second;
  }
  hash_ = hash.value();
  return {};
}

Status BpeTokenizer::index_merges() {
  Hash64 hash;
  hash.add(hash_);
  merges_.reserve(model_.merges.size());
  for (size_t rank = 0; rank < model_.merges.size(); ++rank) {
    const auto& [left, right] = model_.merges[rank];
    if (left < 0 || right < 0 || left >= vocabulary_size() || right >= vocabulary_size()) {
      return fail(Code::invalid_data, "merge {} is of tokens {} and {}, must be in [0, {})", rank, left,
                  right, vocabulary_size());
    }
    const std::string result = spellings_[static_cast<size_t>(left)] + spellings_[static_cast<size_t>(right)];
    const auto found = token_spelled_.find(result);
    if (found == token_spelled_.end()) {
      return fail(Code::invalid_data, "merge {} makes \"{}\", which is no token of the vocabulary", rank,
                  result);
    }
    merges_[pair_key(left, right)] = {static_cast<int32_t>(rank), found->second};
    hash.add(pair_key(left, right));
  }
  hash_ = hash.value();
  return {};
}

Status BpeTokenizer::index_added() {
  Hash64 hash;
  hash.add(hash_);
  hash.add(uint64_t{model_.whole_words} * 16 + static_cast<uint64_t>(model_.words) * 4 +
           uint64_t{model_.add_prefix_space} * 2 + uint64_t{model_.normalize_nfc});
  for (const AddedToken& token : model_.added) {
    if (model_.normalize_nfc && token.normalized) {
      AddedToken normalized = token;
      normalized.content = normalize_nfc(token.content);
      LOOM_TRY(after_.add(normalized));
    } else {
      LOOM_TRY(token.normalized ? after_.add(token) : before_.add(token));
    }
    hash.add(uint64_t(token.left_strip) * 4 + uint64_t(token.right_strip) * 2 + uint64_t(token.normalized));
    hash.add(static_cast<uint64_t>(token.id));
  }
  hash_ = hash.value();
  return {};
}

/// Roles do not change the hash, since tokens do not depend on them.
Status BpeTokenizer::index_roles() {
  const auto find = [&](const std::string& given, const char* usual) -> std::optional<Token> {
    for (const AddedToken& token : model_.added)
      if (token.content == (given.empty() ? usual : given)) return token.id;
    return std::nullopt;
  };
  const SpecialNames& names = model_.names;
  specials_ = {find(names.begin, "<s>"), find(names.end, "</s>"), find(names.mask, "<mask>"),
               find(names.padding, "<pad>")};
  end_of_text_ = find(names.end_of_text, "<|endoftext|>");
  if (!end_of_text_ && names.end_of_text.empty()) end_of_text_ = find("", "</s>");
  if (!model_.around) {
    model_.around.emplace();
    if (specials_.begin && specials_.end && specials_.mask)
      model_.around = {{*specials_.begin}, {*specials_.end}};
  }
  for (const std::vector<Token>* side : {&model_.around->before, &model_.around->after})
    for (const Token token : *side)
      if (!has(token))
        return fail(Code::invalid_data, "a text gets token {}, which is not in the vocabulary of [0, {})",
                    token, vocabulary_size());
  return {};
}

const BpeTokenizer::Merge* BpeTokenizer::merge_of(Token left, Token right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

std::optional<Token> BpeTokenizer::whole_word(std::string_view word) const {
  if (!model_.whole_words) return std::nullopt;
  const auto found = token_spelled_.find(spell(word));
  // An added token is spelled by its text: such a token is another one.
  if (found == token_spelled_.end() || model_.vocabulary[static_cast<size_t>(found->second)] != word)
    return std::nullopt;
  return found->second;
}

void BpeTokenizer::encode(std::string_view text, std::vector<Token>& tokens) const {
  WordEncoder words(*this);
  for (size_t at = 0; at < text.size();) {
    const std::optional<AddedTokens::Match> match = before_.find(text, at);
    const std::string_view part = text.substr(at, (match ? match->begin : text.size()) - at);
    if (model_.normalize_nfc) encode_normalized(normalize_nfc(part), words, tokens);
    else encode_normalized(part, words, tokens);
    if (match) tokens.push_back(match->id);
    at = match ? match->end : text.size();
  }
}

void BpeTokenizer::encode_normalized(std::string_view text, WordEncoder& words,
                                     std::vector<Token>& tokens) const {
  for (size_t at = 0; at < text.size();) {
    const std::optional<AddedTokens::Match> match = after_.find(text, at);
    encode_words(text.substr(at, (match ? match->begin : text.size()) - at), words, tokens);
    if (match) tokens.push_back(match->id);
    at = match ? match->end : text.size();
  }
}

void BpeTokenizer::encode_words(std::string_view text, WordEncoder& words, std::vector<Token>& tokens) const {
  std::string prefixed;
  if (model_.add_prefix_space && !text.empty() && text.front() != ' ') {
    prefixed.reserve(text.size() + 1);
    prefixed += ' ';
    prefixed += text;
    text = prefixed;
  }
  for (size_t at = 0; at < text.size();) {
    const size_t end = word_end(text, at, model_.words);
    words.encode(text.substr(at, end - at), tokens);
    at = end;
  }
}

Result<std::string> BpeTokenizer::decode(std::span<const Token> tokens) const {
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Token token = tokens[i];
    if (!has(token)) {
      return fail(Code::invalid_argument, "token {} is {}, which is not in the vocabulary of [0, {})", i,
                  token, vocabulary_size());
    }
    text += model_.vocabulary[static_cast<size_t>(token)];
  }
  return text;
}

bool BpeTokenizer::may_be_cut() const {
  const auto reaches_over_lines = [](const AddedToken& token) {
    return token.left_strip || token.right_strip || token.content.find('\n') != std::string::npos;
  };
  return !model_.add_prefix_space && model_.words != WordRule::bloom &&
         std::none_of(model_.added.begin(), model_.added.end(), reaches_over_lines);
}

size_t BpeTokenizer::safe_cut(std::string_view text, size_t at) const {
  for (;; ++at) {
    at = text::safe_cut(text, at, model_.words);
    if (at == text.size() || model_.words != WordRule::gpt2) return at;
    // White space in front of an added token ends its text, and all of it is one word.
    const size_t behind = at + utf8_at(text, at).bytes;
    if (!before_.begins_at(text, behind) && !after_.begins_at(text, behind)) return at;
  }
}

std::string BpeTokenizer::description() const {
  return fmt::format("byte-level BPE of {} tokens", vocabulary_size());
}

}  // namespace loom::text
