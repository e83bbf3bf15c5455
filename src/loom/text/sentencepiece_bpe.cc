#include "text/sentencepiece_bpe.h"

#include <algorithm>
#include <limits>

#include "base/file.h"
#include "text/sentencepiece_files.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"

namespace loom::text {
namespace {

constexpr size_t kMarkBytes = sizeof kSpaceMark - 1;
constexpr char32_t kNoCharacter = std::numeric_limits<char32_t>::max();

char32_t character_at(std::string_view text, size_t at, size_t& bytes) {
  const Utf8Char c = utf8_at(text, at);
  bytes = c.bytes;
  return c.valid ? c.value : kNoCharacter;
}

/// The first and the last character of a text that is not empty.
std::pair<char32_t, char32_t> ends_of(std::string_view text) {
  size_t bytes = 0;
  const char32_t first = character_at(text, 0, bytes);
  char32_t last = first;
  for (size_t at = bytes; at < text.size(); at += bytes) last = character_at(text, at, bytes);
  return {first, last};
}

uint64_t joint(char32_t left, char32_t right) { return uint64_t{left} << 32 | right; }

std::string marked(std::string_view text) {
  std::string with_marks;
  with_marks.reserve(text.size() + text.size() / 2);
  for (const char c : text) {
    if (c == ' ') with_marks += kSpaceMark;
    else with_marks += c;
  }
  return with_marks;
}

std::string unmarked(std::string_view spelling) {
  std::string text;
  for (size_t at = 0; at < spelling.size();) {
    const bool mark = spelling.substr(at).starts_with(kSpaceMark);
    text += mark ? ' ' : spelling[at];
    at += mark ? kMarkBytes : 1;
  }
  return text;
}

}  // namespace

Result<std::shared_ptr<const SentencePieceBpe>> SentencePieceBpe::make(SentencePieceModel model) {
  const std::shared_ptr<SentencePieceBpe> tokenizer(new SentencePieceBpe(std::move(model)));
  SentencePieceModel& own = tokenizer->model_;
  LOOM_TRY(tokenizer->index_spellings("SentencePiece BPE", own.vocabulary));
  LOOM_TRY(tokenizer->index_bytes());
  LOOM_TRY(tokenizer->index_merges());
  tokenizer->index_joints();
  const bool normalized = own.prefix == SpacePrefix::normalized;
  LOOM_TRY(tokenizer->index_added(
      static_cast<uint64_t>(own.prefix) * 2 + uint64_t{own.whole_words}, [&](const std::string& content) {
        return normalized && !content.empty() ? std::string(kSpaceMark) + marked(content) : content;
      }));
  if (normalized)
    for (const AddedToken& token : own.added)
      if (token.normalized) tokenizer->texts_[token.id] = ' ' + unmarked(token.content);
  LOOM_TRY(tokenizer->index_roles(own));
  return std::shared_ptr<const SentencePieceBpe>(tokenizer);
}

Status SentencePieceBpe::index_bytes() {
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::string spelling = fmt::format("<0x{:02X}>", byte);
    const std::optional<Token> token = spelled(spelling);
    if (!token)
      return fail(Code::invalid_data,
                  "no token for byte {}, spelled \"{}\": with \"byte_fallback\" there is one for each of 256",
                  byte, spelling);
    token_of_byte_[byte] = *token;
    texts_[*token] = static_cast<char>(byte);
  }
  for (const auto& [left, right] : model_.merges)
    for (const Token token : {left, right})
      if (texts_.contains(token))
        return fail(Code::unsupported,
                    "a merge has the token of a byte, \"{}\"; must be of other tokens only",
                    spellings_[static_cast<size_t>(token)]);
  return {};
}

/// A symbol of several characters ends with the last of them and begins with the first.
void SentencePieceBpe::index_joints() {
  for (const auto& [spelling, token] : token_spelled_) {
    if (utf8_at(spelling, 0).valid && utf8_at(spelling, 0).bytes == spelling.size())
      token_of_character_[utf8_at(spelling, 0).value] = token;
  }
  for (const auto& [left, right] : model_.merges)
    joints_.insert(joint(ends_of(spellings_[static_cast<size_t>(left)]).second,
                         ends_of(spellings_[static_cast<size_t>(right)]).first));
}

bool SentencePieceBpe::joined(char32_t left, char32_t right) const {
  return joints_.contains(joint(left, right));
}

void SentencePieceBpe::first_symbols(std::string_view word, std::vector<Token>& symbols) const {
  for (size_t at = 0, bytes = 0; at < word.size(); at += bytes) {
    const auto found = token_of_character_.find(character_at(word, at, bytes));
    if (found != token_of_character_.end()) {
      symbols.push_back(found->second);
      continue;
    }
    for (const char byte : word.substr(at, bytes))
      symbols.push_back(token_of_byte_[static_cast<unsigned char>(byte)]);
  }
}

void SentencePieceBpe::encode_part(std::string_view text, bool begins, std::vector<Token>& tokens) const {
  WordEncoder words(
      merges_, [this](std::string_view word, std::vector<Token>& symbols) { first_symbols(word, symbols); });
  for (size_t at = 0; at < text.size();) {
    const std::optional<AddedTokens::Match> match = before_.find(text, at);
    const std::string_view between = text.substr(at, (match ? match->begin : text.size()) - at);
    encode_between(between, at == 0 ? (begins ? Place::beginning : Place::rest) : Place::inside, words,
                   tokens);
    if (match) tokens.push_back(match->id);
    at = match ? match->end : text.size();
  }
}

/// What is between tokens that are looked for before normalization.
void SentencePieceBpe::encode_between(std::string_view text, Place place, WordEncoder& words,
                                      std::vector<Token>& tokens) const {
  const bool normalized = model_.prefix == SpacePrefix::normalized;
  std::string whole;
  if (normalized && !text.empty()) {
    whole = (place == Place::rest ? "" : std::string(kSpaceMark)) + marked(text);
    text = whole;
  }
  for (size_t at = 0; at < text.size(); place = Place::inside) {
    const std::optional<AddedTokens::Match> match = after_.find(text, at);
    const std::string_view piece = text.substr(at, (match ? match->begin : text.size()) - at);
    if (normalized) encode_marked(piece, words, tokens);
    else encode_piece(piece, place, words, tokens);
    if (match) tokens.push_back(match->id);
    at = match ? match->end : text.size();
  }
}

/// What is between all added tokens, with its spaces.
void SentencePieceBpe::encode_piece(std::string_view text, Place place, WordEncoder& words,
                                    std::vector<Token>& tokens) const {
  if (text.empty()) return;
  std::string piece = marked(text);
  const bool asked = model_.prefix == SpacePrefix::always
                         ? place != Place::rest
                         : model_.prefix == SpacePrefix::first && place == Place::beginning;
  if (asked && !piece.starts_with(kSpaceMark)) piece.insert(0, kSpaceMark);
  encode_marked(piece, words, tokens);
}

void SentencePieceBpe::encode_marked(std::string_view text, WordEncoder& words,
                                     std::vector<Token>& tokens) const {
  if (const std::optional<Token> whole = model_.whole_words ? spelled(text) : std::nullopt) {
    tokens.push_back(*whole);
    return;
  }
  size_t begin = 0;
  char32_t previous = kNoCharacter;
  for (size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    const char32_t next = character_at(text, at, bytes);
    if (at > begin && !joined(previous, next)) {
      words.encode(text.substr(begin, at - begin), tokens);
      begin = at;
    }
    previous = next;
  }
  if (begin < text.size()) words.encode(text.substr(begin), tokens);
}

size_t SentencePieceBpe::safe_cut(std::string_view text, size_t at) const {
  for (at = std::max<size_t>(at, 1);; ++at) {
    const size_t line_feed = text.find('\n', at - 1);
    if (line_feed == std::string_view::npos || line_feed + 1 == text.size()) return text.size();
    at = line_feed + 1;
    size_t bytes = 0;
    const char32_t next = text[at] == ' ' ? utf8_at(kSpaceMark, 0).value : character_at(text, at, bytes);
    if (!joined('\n', next)) return at;
  }
}

Result<std::string> SentencePieceBpe::decode(std::span<const Token> tokens) const {
  LOOM_TRY(check_tokens(tokens));
  std::string text;
  for (const Token token : tokens) {
    const auto own = texts_.find(token);
    text += own != texts_.end() ? own->second : unmarked(spellings_[static_cast<size_t>(token)]);
  }
  if (model_.strip && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

std::string SentencePieceBpe::description() const {
  return fmt::format("SentencePiece BPE of {} tokens", vocabulary_size());
}

Result<std::shared_ptr<const SentencePieceBpe>> SentencePieceBpe::from_tokenizer_json(
    const std::string& path) {
  Result<SentencePieceModel> model = read_sentencepiece(path);
  LOOM_TRY(model.status());
  Result<std::shared_ptr<const SentencePieceBpe>> tokenizer = make(model.take());
  if (!tokenizer.ok()) return tokenizer.status().in(path);
  return tokenizer;
}

Status SentencePieceBpe::save(const std::string& folder) const {
  format::Json roles = roles_json();
  for (const AddedToken& token : model_.added)
    if (token.content == model_.unknown) roles["unk_token"] = token.content;
  LOOM_TRY(write_tokenizer_config(folder, roles));
  return format::write_json(join_path(folder, "tokenizer.json"),
                            sentencepiece_json(model_, vocabulary_json(end_of_pieces()), merges_json()));
}

}  // namespace loom::text
