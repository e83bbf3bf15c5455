// PairTokenizer: what the tokenizers that merge pairs have in common: a vocabulary of spellings, a list of
// merges, added tokens, and the roles of these.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "format/json_file.h"
#include "text/added_tokens.h"
#include "text/pair_merges.h"
#include "text/tokenizer.h"

namespace loom::text {

/// What the files of every such tokenizer hold.
struct PairModel {
  std::vector<std::string> vocabulary;          // of each token, as its kind says; empty where no token is
  std::vector<std::pair<Token, Token>> merges;  // the earlier, the sooner
  std::vector<AddedToken> added;
  bool whole_words = false;  // a word that is a token of the vocabulary is that one, whatever the merges say
  SpecialNames names = {};
  /// Nothing where no file says: then RoBERTa's, where there are tokens to begin, to end and to hide.
  std::optional<SequenceTemplate> around = {};
};

class PairTokenizer : public Tokenizer {
 public:
  int64_t vocabulary_size() const override { return static_cast<int64_t>(model().vocabulary.size()); }
  bool has(Token token) const override {
    return Tokenizer::has(token) && !model().vocabulary[static_cast<size_t>(token)].empty();
  }
  /// The added token of that role, or else "<|endoftext|>", else "</s>".
  std::optional<Token> end_of_text() const override { return end_of_text_; }
  /// The added tokens of these roles, or else "<s>", "</s>", "<mask>" and "<pad>", as RoBERTa has them.
  SpecialTokens specials() const override { return specials_; }
  SequenceTemplate sequence_template() const override { return *model().around; }
  uint64_t hash() const override { return hash_; }

  virtual const PairModel& model() const = 0;

 protected:
  /// Takes the spelling of each token; `kind` begins the hash. Errors (invalid_data): added tokens with the
  /// number of another one, two tokens of one spelling.
  Status index_spellings(std::string_view kind, std::vector<std::string> spellings);
  /// Errors (invalid_data): a merge of no tokens, or whose result is none.
  Status index_merges();
  /// `settings` is whatever else changes tokens. `normalized` gives the text by which a token that is looked
  /// for after normalization is found. Errors (invalid_data): an empty token.
  Status index_added(uint64_t settings, const std::function<std::string(const std::string&)>& normalized);
  /// Roles do not change the hash, since tokens do not depend on them. Errors (invalid_data): a template of
  /// tokens that the vocabulary lacks.
  Status index_roles(PairModel& model);
  /// Refuses tokens that decode() does not know. Errors: invalid_argument, with the position.
  Status check_tokens(std::span<const Token> tokens) const;
  /// Whether no added token takes white space or has a line feed, beside which a text may be cut.
  bool added_tokens_stay_in_lines() const;
  std::optional<Token> spelled(std::string_view spelling) const;

  /// The merges as a list of "left right".
  format::Json merges_json() const;
  /// tokenizer_config.json's tokens of roles.
  format::Json roles_json() const;
  /// {spelling: number}, in the order of numbers, of tokens below `end`.
  format::Json vocabulary_json(size_t end) const;
  /// Older versions of `tokenizers` do not find an added token that the vocabulary has, too, if it is not
  /// special. Such tokens at its end, and what comes behind them, are left out where no merge makes them: the
  /// number of the first of those.
  size_t end_of_pieces() const;
  std::vector<std::string> spellings_;  // of each token, as its files have it
  std::unordered_map<std::string_view, Token> token_spelled_;
  PairMerges merges_;
  AddedTokens before_, after_;  // normalization

 private:
  std::optional<Token> end_of_text_;
  SpecialTokens specials_;
  uint64_t hash_ = 0;
};

}  // namespace loom::text
