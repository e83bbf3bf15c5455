// BpeTokenizer: the byte-level BPE of GPT-2, and of BLOOM, Llama 3 and Qwen2, which cut words differently
// (Radford et al., "Language models are unsupervised multitask learners", 2019; Sennrich, Haddow, Birch,
// 2016; Grattafiori et al., "The Llama 3 herd of models", 2024; Yang et al., "Qwen2 technical report", 2024).
// Special tokens are found first. The text between them is split into words (text/words.h). The bytes of a
// word are its first symbols. The pair of neighbours that is first in the list of merges becomes one symbol,
// until no pair is in the list.
//
// Encodes to the same tokens as Hugging Face's `tokenizers`; what its template puts around a text stands in
// sequence_template().
#pragma once

#include <array>
#include <string>
#include <vector>

#include "text/pair_tokenizer.h"
#include "text/words.h"

namespace loom::text {

/// Everything that a tokenizer is made of; what the files hold, checked by BpeTokenizer::make(). A token of
/// the vocabulary is its bytes, an added one its text.
struct BpeModel : PairModel {
  bool add_prefix_space = false;
  bool normalize_nfc = false;
  WordRule words = WordRule::gpt2;
};

class BpeTokenizer final : public PairTokenizer {
 public:
  /// Errors (invalid_data): a byte without a token, a merge whose result is no token, ids out of range or
  /// used twice.
  static Result<std::shared_ptr<const BpeTokenizer>> make(BpeModel model);
  /// Errors: not_found; invalid_data; unsupported for a tokenizer.json of another kind, naming the setting.
  static Result<std::shared_ptr<const BpeTokenizer>> from_tokenizer_json(const std::string& path);
  static Result<std::shared_ptr<const BpeTokenizer>> from_vocabulary(const std::string& vocab_json,
                                                                     const std::string& merges_txt);

  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<Token>& tokens) const override;
  /// Special tokens decode to their text.
  Result<std::string> decode(std::span<const Token> tokens) const override;
  bool may_be_cut() const override;
  size_t safe_cut(std::string_view text, size_t at) const override;
  std::string description() const override;
  /// Writes tokenizer.json and tokenizer_config.json. GPT-2's and BLOOM's kinds have vocab.json and
  /// merges.txt, too; those of others would be taken for GPT-2's.
  Status save(const std::string& folder) const override;

  const BpeModel& model() const override { return model_; }

 private:
  explicit BpeTokenizer(BpeModel model) : model_(std::move(model)) {}
  Status index_bytes();
  void first_symbols(std::string_view word, std::vector<Token>& symbols) const;
  void encode_normalized(std::string_view text, WordEncoder& words, std::vector<Token>& tokens) const;
  void encode_words(std::string_view text, WordEncoder& words, std::vector<Token>& tokens) const;

  BpeModel model_;
  std::array<Token, 256> token_of_byte_{};
};

}  // namespace loom::text
