// SentencePieceBpe: the BPE of SentencePiece as Llama 2 and Mistral 7B have it (Kudo, Richardson,
// "SentencePiece: a simple and language independent subword tokenizer", 2018; Touvron et al., "Llama 2",
// 2023). Special tokens are found first. In the text between them "▁" (U+2581) stands for a space, and one
// more may stand in front. The first symbols are characters; one that the vocabulary lacks is the tokens of
// its bytes, <0x00> to <0xFF>. Merges act on the whole text: there are no words that they keep to.
//
// A text falls into words all the same: where no merge joins two neighbouring characters, no token reaches
// over. Such words are encoded one at a time.
//
// Encodes to the same tokens as Hugging Face's `tokenizers`; what its template puts around a text stands in
// sequence_template().
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "text/pair_tokenizer.h"

namespace loom::text {

/// What stands for a space in the vocabulary.
inline constexpr char kSpaceMark[] = "\u2581";

/// Where a "▁" is put in front of texts between special tokens.
enum class SpacePrefix {
  never,
  first,      // at the very beginning, unless one is there
  always,     // before each such text, unless one is there
  normalized  // before each such text, whatever it begins with; added tokens are looked for only then
};

/// A token of the vocabulary is its spelling.
struct SentencePieceModel : PairModel {
  SpacePrefix prefix = SpacePrefix::never;
  bool strip = false;   // decoding takes away a space in front
  std::string unknown;  // kept for other programs: with a token for each byte no text has it
};

class SentencePieceBpe final : public PairTokenizer {
 public:
  /// Errors (invalid_data): a byte without a token, a merge whose result is no token, ids out of range or
  /// used twice; (unsupported) a merge of the token of a byte.
  static Result<std::shared_ptr<const SentencePieceBpe>> make(SentencePieceModel model);
  /// Errors: not_found; invalid_data; unsupported for a tokenizer.json of another kind, naming the setting.
  static Result<std::shared_ptr<const SentencePieceBpe>> from_tokenizer_json(const std::string& path);

  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<Token>& tokens) const override {
    encode_part(text, true, tokens);
  }
  void encode_rest(std::string_view text, std::vector<Token>& tokens) const override {
    encode_part(text, false, tokens);
  }
  /// Special tokens decode to their text, with the space in front with which it was found. A "▁" that the
  /// text had comes back as a space.
  Result<std::string> decode(std::span<const Token> tokens) const override;
  bool may_be_cut() const override { return added_tokens_stay_in_lines() && !model_.whole_words; }
  /// After a line feed that no merge joins with what follows.
  size_t safe_cut(std::string_view text, size_t at) const override;
  std::string description() const override;
  /// Writes tokenizer.json and tokenizer_config.json.
  Status save(const std::string& folder) const override;

  const SentencePieceModel& model() const override { return model_; }

 private:
  explicit SentencePieceBpe(SentencePieceModel model) : model_(std::move(model)) {}
  Status index_bytes();
  void index_joints();
  bool joined(char32_t left, char32_t right) const;
  void first_symbols(std::string_view word, std::vector<Token>& symbols) const;
  void encode_part(std::string_view text, bool begins, std::vector<Token>& tokens) const;
  /// Where a text between added tokens is: at the beginning, there but behind a cut, or anywhere else.
  enum class Place { beginning, rest, inside };
  void encode_between(std::string_view text, Place place, WordEncoder& words,
                      std::vector<Token>& tokens) const;
  void encode_piece(std::string_view text, Place place, WordEncoder& words, std::vector<Token>& tokens) const;
  void encode_marked(std::string_view text, WordEncoder& words, std::vector<Token>& tokens) const;

  SentencePieceModel model_;
  std::array<Token, 256> token_of_byte_{};
  std::unordered_map<Token, std::string> texts_;  // of tokens that are not decoded to their spelling
  std::unordered_map<char32_t, Token> token_of_character_;
  std::unordered_set<uint64_t> joints_;  // pairs of characters over which a token may reach
};

}  // namespace loom::text
