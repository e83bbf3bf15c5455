// WordPieceTokenizer: BERT's (Devlin et al., 2019). Special tokens are found first. The text between them is
// cleaned, and on request put in lower case and freed of accents. It is cut at white space and around
// punctuation and Chinese characters. Each word is cut from the left into the longest pieces of the
// vocabulary. A word without such pieces is the unknown token.
//
// Encodes to the same tokens as Hugging Face's `tokenizers`. sequence_template() has what its template puts
// around a text. Decoding does not restore what normalization removed.
#pragma once

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/added_tokens.h"
#include "text/bert_words.h"
#include "text/tokenizer.h"

namespace loom::text {

/// What the files of a WordPiece hold; WordPieceTokenizer::make() checks it.
struct WordPieceModel {
  std::vector<std::string> vocabulary;  // a token's spelling at its number
  size_t behind = 0;                    // its last tokens, which are added ones alone and no pieces of words
  bool lower_case = true;
  bool strip_accents = true;
  bool clean_text = true;
  bool chinese_characters = true;  // stand alone
  std::string unknown = "[UNK]";
  /// These tokens are found in a text before anything else. Only those that the vocabulary has count, and
  /// they have its numbers.
  std::vector<AddedToken> added = {{"[PAD]"}, {"[UNK]"}, {"[CLS]"}, {"[SEP]"}, {"[MASK]"}};
  bool adds(const std::string& name) const {
    return std::any_of(added.begin(), added.end(),
                       [&](const AddedToken& token) { return token.content == name; });
  }
  SpecialNames names = {};
  /// Nothing where no file says: then BERT's.
  std::optional<SequenceTemplate> around = {};
  std::string prefix = "##";   // of pieces that do not begin a word
  int64_t longest_word = 100;  // characters; a longer one is unknown
};

class WordPieceTokenizer final : public Tokenizer {
 public:
  /// Errors (invalid_data): no unknown token, the same token twice.
  static Result<std::shared_ptr<const WordPieceTokenizer>> make(WordPieceModel model);
  /// Errors: not_found; invalid_data; unsupported for another kind, naming the setting.
  static Result<std::shared_ptr<const WordPieceTokenizer>> from_tokenizer_json(const std::string& path);
  /// One token a line. Lower case unless the files beside it say otherwise.
  static Result<std::shared_ptr<const WordPieceTokenizer>> from_vocabulary(const std::string& vocab_txt);

  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<Token>& tokens) const override;
  /// Words with a space between; special tokens are left out.
  Result<std::string> decode(std::span<const Token> tokens) const override;
  int64_t vocabulary_size() const override { return static_cast<int64_t>(model_.vocabulary.size()); }
  /// Not where an added token has white space, at which a text may be cut.
  bool may_be_cut() const override;
  /// [SEP].
  std::optional<Token> end_of_text() const override { return specials_.end; }
  SpecialTokens specials() const override { return specials_; }
  SequenceTemplate sequence_template() const override { return *model_.around; }
  uint64_t hash() const override;
  std::string description() const override;
  /// Writes vocab.txt, tokenizer.json and tokenizer_config.json.
  Status save(const std::string& folder) const override;

  const WordPieceModel& model() const { return model_; }

 private:
  explicit WordPieceTokenizer(WordPieceModel model) : model_(std::move(model)) {}
  Status add_tokens();
  Status set_template();
  BertNormalization normalization() const;
  void encode_plain(std::string_view text, std::vector<Token>& tokens) const;
  void encode_word(std::string_view word, std::vector<Token>& tokens) const;

  WordPieceModel model_;
  std::unordered_map<std::string, Token> token_spelled_;
  AddedTokens before_, after_;  // normalization
  Token pieces_ = 0;            // the vocabulary's first tokens, of which words are made
  SpecialTokens specials_;
  Token unknown_ = 0;
};

}  // namespace loom::text
