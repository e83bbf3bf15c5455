// Turns text files into a folder of tokens that TokenDataset reads. Every file is a document: before its
// first token stands what the tokenizer begins documents with (Tokenizer::before_document), and after its
// last the end of text, if there are such. The last part of every file is held out for validation, cut at the
// end of a line.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "text/text_file.h"
#include "text/tokenizer.h"

namespace loom::text {

struct TokenizeOptions {
  double validation_fraction = 0.1;  // of every file's bytes; in [0, 1)
  uint64_t tokens_a_file = uint64_t{1} << 28;
  int threads = 0;                          // 0: as many as there are CPUs
  uint64_t part_bytes = uint64_t{1} << 20;  // what a thread does at a time; the tokens do not depend on it
  /// Called after each round with the bytes done and the bytes in all.
  std::function<void(uint64_t done, uint64_t all)> progress;
};

struct TokenizeSummary {
  uint64_t train_tokens = 0;
  uint64_t validation_tokens = 0;
  uint64_t train_bytes = 0;  // of text
  uint64_t validation_bytes = 0;
};

/// Files, or standard input, by their names. The result is the same for any number of threads and any
/// part_bytes. dataset.json is written last: without it the folder is no dataset. Errors: invalid_argument
/// (no files, an option out of range); not_found; invalid_data for a file that is empty, or is no UTF-8 text
/// or has a NUL, with the offset; disk_full, system_error. A failed call leaves no dataset.json.
Result<TokenizeSummary> tokenize_files(const std::vector<std::string>& files, const std::string& folder,
                                       const Tokenizer& tokenizer, const TokenizeOptions& options = {});

/// The same, of files that are open.
Result<TokenizeSummary> tokenize_texts(const std::vector<TextFile>& texts, const std::string& folder,
                                       const Tokenizer& tokenizer, const TokenizeOptions& options = {});

/// Takes away what an earlier call made in a folder, texts with labels included, but for the tokenizer.
/// dataset.json goes first, so that no part is taken for the whole. Errors: not_found, system_error.
Status remove_dataset(const std::string& folder);

}  // namespace loom::text
