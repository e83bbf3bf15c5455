#include "text/byte_tokenizer.h"

#include "base/file.h"
#include "base/hash.h"
#include "format/json_file.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer_json.h"

namespace loom::text {

void ByteTokenizer::encode(std::string_view text, std::vector<Token>& tokens) const {
  tokens.reserve(tokens.size() + text.size());
  for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
}

Result<std::string> ByteTokenizer::decode(std::span<const Token> tokens) const {
  std::string text;
  text.reserve(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocabulary_size()) {
      return fail(Code::invalid_argument, "token {} is {}, must be in [0, {})", i, tokens[i],
                  vocabulary_size());
    }
    if (tokens[i] != kEndOfText) text += static_cast<char>(tokens[i]);
  }
  return text;
}

uint64_t ByteTokenizer::hash() const {
  Hash64 hash;
  hash.add("loom byte tokenizer");
  return hash.value();
}

/// In tokenizer.json the end of text is a token of the vocabulary and no added one, and texts are not
/// searched for special tokens: a text that spells it out means the bytes.
Status ByteTokenizer::save(const std::string& folder) const {
  format::Json vocabulary;
  for (Token byte = 0; byte < kEndOfText; ++byte)
    vocabulary[spelling_of(static_cast<unsigned char>(byte))] = byte;
  vocabulary[kEndOfTextSpelling] = kEndOfText;
  LOOM_TRY(format::write_json(join_path(folder, "tokenizer.json"),
                              byte_level_json({}, vocabulary, format::Json::array())));
  LOOM_TRY(write_tokenizer_config(folder, {{"bos_token", kEndOfTextSpelling},
                                           {"eos_token", kEndOfTextSpelling},
                                           {"split_special_tokens", true}}));
  return format::write_json(join_path(folder, "loom-tokenizer.json"), {{"type", "bytes"}});
}

}  // namespace loom::text
