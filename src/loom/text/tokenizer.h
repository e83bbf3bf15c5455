// Tokenizer: text to tokens and back.
//
// Thread safety: a tokenizer never changes after it is made; all functions may be called from any thread at
// once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/words.h"

namespace loom::text {

/// A token is its number in the vocabulary, in [0, vocabulary size).
using Token = int32_t;

/// In place of the next token in a batch's targets: nothing is learned there. kEndsText says that a text
/// ends, and that the next token begins another one (model/batch_arrays.h).
inline constexpr Token kNoTarget = -1, kEndsText = -2;

/// Tokens that stand for no text, where a tokenizer has them: what begins and ends a sequence that a
/// bidirectional model reads, what hides a token, and what fills sequences up.
struct SpecialTokens {
  std::optional<Token> begin, end, mask, padding;
  bool operator==(const SpecialTokens&) const = default;
};

/// The special tokens that stand around a text that a model reads whole, as a classifier does.
struct SequenceTemplate {
  std::vector<Token> before, after;
  bool operator==(const SequenceTemplate&) const = default;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Appends the tokens of `text` to `tokens`. Every text can be encoded; decoding its tokens gives it back,
  /// byte for byte, unless the tokenizer's own files ask for normalization or a space in front. Special
  /// tokens that are spelled out in the text become themselves.
  virtual void encode(std::string_view text, std::vector<Token>& tokens) const = 0;
  /// The bytes that tokens stand for; a part of a text may be no valid UTF-8. Errors: invalid_argument for a
  /// token that is not in the vocabulary, with its position.
  virtual Result<std::string> decode(std::span<const Token> tokens) const = 0;

  virtual int64_t vocabulary_size() const = 0;
  /// Whether a token stands for something: numbers of a vocabulary may have gaps.
  virtual bool has(Token token) const { return token >= 0 && token < vocabulary_size(); }
  /// Whether a text that is cut by safe_cut() has the tokens of its parts.
  virtual bool may_be_cut() const = 0;
  /// The first such place at or after `at`, except the beginning; the end where there is none.
  virtual size_t safe_cut(std::string_view text, size_t at) const { return text::safe_cut(text, at); }
  /// encode() for the parts behind such a place, before which nothing is put.
  virtual void encode_rest(std::string_view text, std::vector<Token>& tokens) const { encode(text, tokens); }
  /// What stands between documents, if there is such a token.
  virtual std::optional<Token> end_of_text() const = 0;
  virtual SpecialTokens specials() const { return {}; }
  /// What the tokenizer's files put around a text.
  virtual SequenceTemplate sequence_template() const {
    SequenceTemplate around;
    if (specials().begin) around.before.push_back(*specials().begin);
    if (specials().end) around.after.push_back(*specials().end);
    return around;
  }
  /// What a text begins with that a model is to continue: the token that begins sequences, or, where there is
  /// none, the one that ends the text before. Nothing where no token ends one.
  std::optional<Token> begin_of_text() const {
    const std::optional<Token> end = end_of_text();
    return end && specials().begin ? specials().begin : end;
  }
  /// What stands in front of a document that a causal model reads: what the template puts in front of a text,
  /// as Llama's does. Nothing where it puts something behind a text, too, as BERT's does.
  std::vector<Token> before_document() const {
    const SequenceTemplate around = sequence_template();
    return around.after.empty() ? around.before : std::vector<Token>();
  }
  /// How many of `tokens` are that: all of before_document() where they begin with it, else 0.
  size_t begun(std::span<const Token> tokens) const;
  /// The same for tokenizers that encode in the same way; token files carry it.
  virtual uint64_t hash() const = 0;
  /// "bytes", or "byte-level BPE of 50257 tokens".
  virtual std::string description() const = 0;
  /// Writes the files that open_tokenizer() reads, into a folder that is there.
  virtual Status save(const std::string& folder) const = 0;

  std::vector<Token> encode(std::string_view text) const {
    std::vector<Token> tokens;
    encode(text, tokens);
    return tokens;
  }
  /// The tokens of a document, with before_document() in front unless the text spells it out.
  std::vector<Token> encode_document(std::string_view text) const;
};

/// `path` is "bytes" for the built-in one, a tokenizer.json, or a folder with tokenizer.json (byte-level BPE,
/// SentencePiece BPE or WordPiece), or with vocab.json and merges.txt, or vocab.txt, or loom-tokenizer.json
/// (which the built-in one saves). What lies beside them counts, too (text/files_beside.h). Errors:
/// not_found, invalid_data, invalid_argument (files that contradict each other), unsupported.
Result<std::shared_ptr<const Tokenizer>> open_tokenizer(const std::string& path);

}  // namespace loom::text
