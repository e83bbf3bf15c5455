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
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "text/added_tokens.h"
#include "text/tokenizer.h"
#include "text/words.h"

namespace loom::text {

/// Everything that a tokenizer is made of; what the files hold, checked by BpeTokenizer::make().
struct BpeModel {
  std::vector<std::string>
      vocabulary;  // bytes of each token (of an added one: its text); empty where no token is
  std::vector<std::pair<Token, Token>> merges;  // the earlier, the sooner
  std::vector<AddedToken> added;
  bool add_prefix_space = false;
  bool normalize_nfc = false;
  WordRule words = WordRule::gpt2;
  bool whole_words = false;  // a word that is a token of the vocabulary is that one, whatever the merges say
  SpecialNames names = {};
  /// Nothing where no file says: then RoBERTa's, where there are tokens to begin, to end and to hide.
  std::optional<SequenceTemplate> around = {};
};

class BpeTokenizer final : public Tokenizer {
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
  int64_t vocabulary_size() const override { return static_cast<int64_t>(model_.vocabulary.size()); }
  bool has(Token token) const override {
    return Tokenizer::has(token) && !model_.vocabulary[static_cast<size_t>(token)].empty();
  }
  bool may_be_cut() const override;
  size_t safe_cut(std::string_view text, size_t at) const override;
  /// The added token of that role, or else "<|endoftext|>", else "</s>".
  std::optional<Token> end_of_text() const override { return end_of_text_; }
  /// The added tokens of these roles, or else "<s>", "</s>", "<mask>" and "<pad>", as RoBERTa has them.
  SpecialTokens specials() const override { return specials_; }
  SequenceTemplate sequence_template() const override { return *model_.around; }
  uint64_t hash() const override { return hash_; }
  std::string description() const override;
  /// Writes tokenizer.json and tokenizer_config.json. GPT-2's and BLOOM's kinds have vocab.json and
  /// merges.txt, too; those of others would be taken for GPT-2's.
  Status save(const std::string& folder) const override;

  const BpeModel& model() const { return model_; }

 private:
  struct Merge {
    int32_t rank = 0;
    Token result = 0;
  };
  struct PairHash {
    size_t operator()(uint64_t pair) const { return mix64(pair); }
  };
  class WordEncoder;

  explicit BpeTokenizer(BpeModel model) : model_(std::move(model)) {}
  Status index_vocabulary();
  Status index_merges();
  Status index_added();
  Status index_roles();
  size_t end_of_pieces() const;
  const Merge* merge_of(Token left, Token right) const;
  std::optional<Token> whole_word(std::string_view word) const;
  void encode_normalized(std::string_view text, WordEncoder& words, std::vector<Token>& tokens) const;
  void encode_words(std::string_view text, WordEncoder& words, std::vector<Token>& tokens) const;

  BpeModel model_;
  std::vector<std::string> spellings_;  // of each token, as its files have it
  std::array<Token, 256> token_of_byte_{};
  std::unordered_map<std::string_view, Token> token_spelled_;
  std::unordered_map<uint64_t, Merge, PairHash> merges_;
  AddedTokens before_, after_;  // normalization
  std::optional<Token> end_of_text_;
  SpecialTokens specials_;
  uint64_t hash_ = 0;
};

}  // namespace loom::text
