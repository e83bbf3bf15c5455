// The files of a tokenizer, and a text that is encoded with them: the first line.
#include "file_folder.h"
#include "fuzz.h"
#include "text/tokenizer.h"

using namespace loom;

FUZZ_TARGET(tokenizer_files) {
  static const char* const kNames[] = {"tokenizer.json",
                                       "vocab.json",
                                       "merges.txt",
                                       "vocab.txt",
                                       "tokenizer_config.json",
                                       "special_tokens_map.json",
                                       "added_tokens.json",
                                       "config.json",
                                       "loom-tokenizer.json"};
  const std::string text = input.take_until('\n');
  const fuzz::FileFolder folder(input, kNames);
  const auto opened = text::open_tokenizer(folder.path());
  if (!opened.ok()) return;
  const text::Tokenizer& tokenizer = **opened;
  const std::vector<text::Token> tokens = tokenizer.encode(text);
  for (const text::Token token : tokens)
    fuzz::require(tokenizer.has(token), "a text's tokens are in the vocabulary");
  fuzz::require(tokenizer.decode(tokens).ok(), "a text's tokens are decoded");
  for (text::Token token = -1; token < std::min<int64_t>(tokenizer.vocabulary_size() + 1, 64); ++token)
    (void)tokenizer.decode(std::span(&token, 1));
  (void)tokenizer.sequence_template();
  (void)tokenizer.hash();
  (void)tokenizer.description();
}
