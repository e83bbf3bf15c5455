#include "text/wordpiece.h"

#include <unicode/uchar.h>

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
  const auto role = [&](const std::string& given, const char* usual) {
    return find(given.empty() ? usual : given);
  };
  made->specials_ = {role(m.names.begin, "[CLS]"), role(m.names.end, "[SEP]"), role(m.names.mask, "[MASK]"),
                     role(m.names.padding, "[PAD]")};
  made->pieces_ = static_cast<Token>(m.vocabulary.size() - std::min(m.behind, m.vocabulary.size()));
  LOOM_TRY(made->add_tokens());
  LOOM_TRY(made->set_template());
  return std::shared_ptr<const WordPieceTokenizer>(made);
}

Status WordPieceTokenizer::add_tokens() {
  for (AddedToken token : model_.added) {
    const auto found = token_spelled_.find(token.content);
    if (found == token_spelled_.end()) continue;
    token.id = found->second;
    if (token.normalized) token.content = bert_normalized(token.content, normalization());
    LOOM_TRY((token.normalized ? after_ : before_).add(token));
  }
  return {};
}

Status WordPieceTokenizer::set_template() {
  if (!model_.around) {
    model_.around.emplace();
    if (specials_.begin && specials_.end) model_.around = {{*specials_.begin}, {*specials_.end}};
  }
  for (const std::vector<Token>* side : {&model_.around->before, &model_.around->after})
    for (const Token token : *side)
      if (!has(token))
        return fail(Code::invalid_data, "a text gets token {}, which is not in the vocabulary of [0, {})",
                    token, vocabulary_size());
  return {};
}

BertNormalization WordPieceTokenizer::normalization() const {
  return {model_.clean_text, model_.chinese_characters, model_.strip_accents, model_.lower_case};
}

void WordPieceTokenizer::encode(std::string_view text, std::vector<Token>& tokens) const {
  for (size_t at = 0; at < text.size();) {
    const std::optional<AddedTokens::Match> match = before_.find(text, at);
    const size_t end = match ? match->begin : text.size();
    encode_plain(text.substr(at, end - at), tokens);
    if (!match) return;
    tokens.push_back(match->id);
    at = match->end;
  }
}

void WordPieceTokenizer::encode_plain(std::string_view text, std::vector<Token>& tokens) const {
  const std::string normalized = bert_normalized(text, normalization());
  for (size_t at = 0; at < normalized.size();) {
    const std::optional<AddedTokens::Match> match = after_.find(normalized, at);
    const size_t end = match ? match->begin : normalized.size();
    for (const std::string& word : bert_words(std::string_view(normalized).substr(at, end - at)))
      encode_word(word, tokens);
    if (match) tokens.push_back(match->id);
    at = match ? match->end : normalized.size();
  }
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
      if (found == token_spelled_.end() || found->second >= pieces_) continue;
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
  for (const AddedToken& own : WordPieceModel().added)
    if (token_spelled_.contains(own.content) && !model_.adds(own.content))
      hash.add("not added: " + own.content);
  if (!WordPieceModel().adds(model_.unknown) && !model_.adds(model_.unknown))
    hash.add("not added: " + model_.unknown);
  // BERT's own tokens are left out, so that hashes of earlier versions stay.
  for (const AddedToken& token : model_.added) {
    const bool usual = WordPieceModel().adds(token.content) || token.content == model_.unknown;
    if (usual && !token.left_strip && !token.right_strip && !token.normalized) continue;
    hash.add(fmt::format("added: {} {} {} {} {}", token.content, token.left_strip, token.right_strip,
                         token.normalized, model_.behind));
  }
  return hash.value();
}

bool WordPieceTokenizer::may_be_cut() const {
  const auto has_white_space = [](const AddedToken& token) {
    for (size_t at = 0; at < token.content.size();) {
      const Utf8Char c = utf8_at(token.content, at);
      if (u_isUWhiteSpace(static_cast<UChar32>(c.value))) return true;
      at += c.bytes;
    }
    return false;
  };
  return std::none_of(model_.added.begin(), model_.added.end(), has_white_space);
}

std::string WordPieceTokenizer::description() const {
  return fmt::format("WordPiece of {} tokens{}", vocabulary_size(),
                     model_.lower_case ? ", in lower case" : "");
}

}  // namespace loom::text
