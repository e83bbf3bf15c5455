// ByteTokenizer: a token is a byte; 256 stands between documents. It needs no files and loses nothing.
#pragma once

#include "text/tokenizer.h"

namespace loom::text {

class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr Token kEndOfText = 256;

  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<Token>& tokens) const override;
  /// The end of text decodes to nothing.
  Result<std::string> decode(std::span<const Token> tokens) const override;
  int64_t vocabulary_size() const override { return 257; }
  bool may_be_cut() const override { return true; }
  std::optional<Token> end_of_text() const override { return kEndOfText; }
  uint64_t hash() const override;
  std::string description() const override { return "bytes"; }
  /// Writes loom-tokenizer.json, and for other programs the same as a byte-level BPE without merges:
  /// tokenizer.json and tokenizer_config.json.
  Status save(const std::string& folder) const override;
};

}  // namespace loom::text
