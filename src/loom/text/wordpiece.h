// WordPieceTokenizer: BERT's (Devlin et al., 2019). Special tokens are found first; the text between them is
// cleaned, perhaps put in lower case and freed of accents, cut at white space and around punctuation and
// Chinese characters, and each word is cut into the longest pieces of the vocabulary, from the left. A word
// without such pieces is the unknown token.
//
// Encodes to the same tokens as Hugging Face's `tokenizers` without its post-processing templates. What
// normalization took away, decoding does not give back.
#pragma once

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/added_tokens.h"
#include "text/tokenizer.h"

namespace loom::text {

/// What the files of a WordPiece hold; WordPieceTokenizer::make() checks it.
struct WordPieceModel {
  std::vector<std::string> vocabulary;  // a token's spelling at its number
  bool lower_case = true;
  bool strip_accents = true;
  bool clean_text = true;
  bool chinese_characters = true;  // stand alone
  std::string unknown = "[UNK]";
  /// What is found in a text before anything else, BERT's own alone.
  std::vector<std::string> added = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  bool adds(const std::string& name) const {
    return std::find(added.begin(), added.end(), name) != added.end();
  }
  std::string prefix = "##";   // of pieces that do not begin a word
  int64_t longest_word = 100;  // characters; a longer one is unknown
};

class WordPieceTokenizer final : public Tokenizer {
 public:
  /// Errors (invalid_data): no unknown token, the same token twice.
  static Result<std::shared_ptr<const WordPieceTokenizer>> make(WordPieceModel model);
  /// Errors: not_found; invalid_data; unsupported for another kind, naming the setting.
  static Result<std::shared_ptr<const WordPieceTokenizer>> from_tokenizer_json(const std::string& path);
  /// One token a line. Lower case unless a tokenizer_config.json beside it says otherwise.
  static Result<std::shared_ptr<const WordPieceTokenizer>> from_vocabulary(const std::string& vocab_txt);

  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<Token>& tokens) const override;
  /// Words with a space between; special tokens are left out.
  Result<std::string> decode(std::span<const Token> tokens) const override;
  int64_t vocabulary_size() const override { return static_cast<int64_t>(model_.vocabulary.size()); }
  bool may_be_cut() const override { return true; }
  /// [SEP].
  std::optional<Token> end_of_text() const override { return specials_.end; }
  SpecialTokens specials() const override { return specials_; }
  uint64_t hash() const override;
  std::string description() const override;
  /// Writes vocab.txt, tokenizer.json and tokenizer_config.json.
  Status save(const std::string& folder) const override;

  const WordPieceModel& model() const { return model_; }

 private:
  explicit WordPieceTokenizer(WordPieceModel model) : model_(std::move(model)) {}
  void encode_plain(std::string_view text, std::vector<Token>& tokens) const;
  void encode_word(std::string_view word, std::vector<Token>& tokens) const;

  WordPieceModel model_;
  std::unordered_map<std::string, Token> token_spelled_;
  AddedTokens added_;
  SpecialTokens specials_;
  Token unknown_ = 0;
};

}  // namespace loom::text
