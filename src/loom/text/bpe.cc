#include "text/bpe.h"

#include <algorithm>

#include "text/byte_alphabet.h"
#include "text/normalize.h"
#include "text/utf8.h"

namespace loom::text {
namespace {

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<signed char>(c) >= 0; });
}

}  // namespace

Result<std::shared_ptr<const BpeTokenizer>> BpeTokenizer::make(BpeModel model) {
  const std::shared_ptr<BpeTokenizer> tokenizer(new BpeTokenizer(std::move(model)));
  BpeModel& own = tokenizer->model_;
  std::vector<std::string> spellings;
  for (const std::string& token : own.vocabulary) spellings.push_back(spell(token));
  LOOM_TRY(tokenizer->index_spellings("byte-level BPE", std::move(spellings)));
  LOOM_TRY(tokenizer->index_bytes());
  LOOM_TRY(tokenizer->index_merges());
  const uint64_t settings = uint64_t{own.whole_words} * 16 + static_cast<uint64_t>(own.words) * 4 +
                            uint64_t{own.add_prefix_space} * 2 + uint64_t{own.normalize_nfc};
  LOOM_TRY(tokenizer->index_added(settings, [&](const std::string& content) {
    return own.normalize_nfc ? normalize_nfc(content) : content;
  }));
  LOOM_TRY(tokenizer->index_roles(own));
  return std::shared_ptr<const BpeTokenizer>(tokenizer);
}

Status BpeTokenizer::index_bytes() {
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::string& spelling = spelling_of(static_cast<unsigned char>(byte));
    const std::optional<Token> token = spelled(spelling);
    if (!token)
      return fail(Code::invalid_data,
                  "no token for byte {}, spelled \"{}\": byte-level BPE has one for each of 256", byte,
                  spelling);
    token_of_byte_[byte] = *token;
  }
  return {};
}

void BpeTokenizer::first_symbols(std::string_view word, std::vector<Token>& symbols) const {
  const std::optional<Token> whole = model_.whole_words ? spelled(spell(word)) : std::nullopt;
  // An added token is spelled by its text: such a token is another one.
  if (whole && model_.vocabulary[static_cast<size_t>(*whole)] == word) {
    symbols.push_back(*whole);
    return;
  }
  for (const char byte : word) symbols.push_back(token_of_byte_[static_cast<unsigned char>(byte)]);
}

void BpeTokenizer::encode(std::string_view text, std::vector<Token>& tokens) const {
  WordEncoder words(
      merges_, [this](std::string_view word, std::vector<Token>& symbols) { first_symbols(word, symbols); });
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
  LOOM_TRY(check_tokens(tokens));
  std::string text;
  for (const Token token : tokens) text += model_.vocabulary[static_cast<size_t>(token)];
  return text;
}

bool BpeTokenizer::may_be_cut() const {
  // Normalization may make such a token of another spelling, which begins_at() does not see.
  const auto respelled = [&](const AddedToken& token) {
    return model_.normalize_nfc && token.normalized && !is_ascii(token.content);
  };
  return !model_.add_prefix_space && model_.words != WordRule::bloom && added_tokens_stay_in_lines() &&
         std::none_of(model_.added.begin(), model_.added.end(), respelled);
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
