#include "text/wordpiece.h"

#include "base/hash.h"
#include "text/bert_words.h"
#include "text/utf8.h"

namespace loom::text {

Result<std::shared_ptr<const WordPieceTokenizer>> WordPieceTokenizer::make(WordPieceModel model) {
  const std::shared_ptr<WordPieceTokenizer> made(new WordPieceTokenizer(std::move(model)));
  const WordPieceModel& m = made->model_;
  for (size_t id = 0; id < m.vocabulary.size(); ++id) {
    if (m.vocabulary[id].empty()) return fail(Code::invalid_data, "token {} of the vocabulary is empty", id);
    if (!made->token_spelled_.emplace(m.vocabulary[id], static_cast<Token>(id)).second)
      return fail(Code::invalid_data, "token \"{}\" is in the vocabulary twice", m.vocabulary[id]);
  }
  const auto find = [&](const std::string& name) -> std::optional<Token> {
    const auto found = made->token_spelled_.find(name);
    return found == made->token_spelled_.end() ? std::nullopt : std::optional<Token>(found->second);
  };
  const std::optional<Token> unknown = find(m.unknown);
  if (!unknown)
    return fail(Code::invalid_data, "the vocabulary lacks its token for unknown words, {}", m.unknown);
  made->unknown_ = *unknown;
  made->specials_ = {find("[CLS]"), find("[SEP]"), find("[MASK]"), find("[PAD]")};
  for (const std::string& name : m.added)
    if (const std::optional<Token> id = find(name)) LOOM_TRY(made->added_.add({name, *id}));
  return std::shared_ptr<const WordPieceTokenizer>(made);
}

void WordPieceTokenizer::encode(std::string_view text, std::vector<Token>& tokens) const {
  for (size_t at = 0; at < text.size();) {
    const std::optional<AddedTokens::Match> match = added_.find(text, at);
    const size_t end = match ? match->begin : text.size();
    encode_plain(text.substr(at, end - at), tokens);
    if (!match) return;
    tokens.push_back(match->id);
    at = match->end;
  }
}

void WordPieceTokenizer::encode_plain(std::string_view text, std::vector<Token>& tokens) const {
  for (const std::string& word : bert_words(
           text, {model_.clean_text, model_.chinese_characters, model_.strip_accents, model_.lower_case}))
    encode_word(word, tokens);
}

void WordPieceTokenizer::encode_word(std::string_view word, std::vector<Token>& tokens) const {
  std::vector<size_t> ends;  // of characters
  for (size_t at = 0; at < word.size();) ends.push_back(at += utf8_at(word, at).bytes);
  // First, since looking for pieces takes time squared in the word's length.
  if (static_cast<int64_t>(ends.size()) > model_.longest_word) return tokens.push_back(unknown_);
  const size_t before = tokens.size();
  std::string piece;
  for (size_t begin = 0, first = 0; begin < word.size();) {
    size_t last = ends.size();
    for (; last > first; --last) {
      piece.assign(begin > 0 ? model_.prefix : "");
      piece.append(word.substr(begin, ends[last - 1] - begin));
      const auto found = token_spelled_.find(piece);
      if (found == token_spelled_.end()) continue;
      tokens.push_back(found->second);
      break;
    }
    if (last == first) {
      tokens.resize(before);
      tokens.push_back(unknown_);
      return;
    }
    begin = ends[last - 1];
    first = last;
  }
}

Result<std::string> WordPieceTokenizer::decode(std::span<const Token> tokens) const {
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Token token = tokens[i];
    if (token < 0 || token >= vocabulary_size())
      return fail(Code::invalid_argument, "token {} is {}, must be in [0, {})", i, token, vocabulary_size());
    if (token == specials_.begin || token == specials_.end || token == specials_.padding) continue;
    const std::string& piece = model_.vocabulary[static_cast<size_t>(token)];
    if (piece.starts_with(model_.prefix)) {
      text += piece.substr(model_.prefix.size());
    } else {
      if (!text.empty()) text += ' ';
      text += piece;
    }
  }
  return text;
}

uint64_t WordPieceTokenizer::hash() const {
  Hash64 hash;
  hash.add("loom wordpiece");
  for (const std::string& token : model_.vocabulary) hash.add(token), hash.add("\n");
  hash.add(fmt::format("{} {} {} {} {} {} {}", model_.lower_case, model_.strip_accents, model_.clean_text,
                       model_.chinese_characters, model_.unknown, model_.prefix, model_.longest_word));
  for (const std::string& name : WordPieceModel().added)
    if (token_spelled_.contains(name) && !model_.adds(name)) hash.add("not added: " + name);
  if (!WordPieceModel().adds(model_.unknown) && !model_.adds(model_.unknown))
    hash.add("not added: " + model_.unknown);
  return hash.value();
}

std::string WordPieceTokenizer::description() const {
  return fmt::format("WordPiece of {} tokens{}", vocabulary_size(),
                     model_.lower_case ? ", in lower case" : "");
}

}  // namespace loom::text
