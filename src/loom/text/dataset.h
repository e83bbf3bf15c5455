// TokenDataset: the token files of one split, as one long row of tokens.
//
// A folder of tokens holds dataset.json, the tokenizer's files, and train-00000.tokens …,
// validation-00000.tokens … (text/tokenize_files.h makes it).
//
// Thread safety: may be used from any thread at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/json_file.h"
#include "text/token_file.h"

namespace loom::text {

/// Says which files a folder of tokens has.
inline constexpr char kDatasetFile[] = "dataset.json";

/// Of folders of tokens.
inline constexpr int64_t kDatasetVersion = 1;
/// Refuses a dataset.json of another version than `version`. Errors: unsupported, naming both; invalid_data.
Status check_version(const format::Json& dataset_json, int64_t version, const std::string& path);

enum class Split { train, validation };

const char* split_name(Split split);

class TokenDataset {
 public:
  /// Opens the files that dataset.json names. Errors: not_found (no folder, no dataset.json, no such split);
  /// invalid_data (a file that is gone or damaged, files of different tokenizers, other counts than
  /// dataset.json says); unsupported (another version).
  static Result<std::shared_ptr<const TokenDataset>> open(const std::string& folder, Split split);

  uint64_t tokens() const { return starts_.back(); }
  int64_t vocabulary_size() const { return files_.front().vocabulary_size(); }
  uint64_t tokenizer_hash() const { return files_.front().tokenizer_hash(); }
  /// Bytes of text that the tokens stand for: what turns a loss per token into one per byte.
  uint64_t text_bytes() const { return text_bytes_; }
  const std::string& folder() const { return folder_; }
  /// Tells datasets apart by their content, wherever they lie; nothing but headers is read.
  uint64_t key() const;
  /// Copies the tokens [begin, begin + into.size()), across files. Errors: invalid_argument, invalid_data.
  Status read(uint64_t begin, std::span<Token> into) const;
  /// Reads everything and compares with the stored hashes.
  Status verify() const;

 private:
  TokenDataset() = default;
  Status add_file(const std::string& path);

  std::string folder_;
  std::vector<TokenFile> files_;
  std::vector<uint64_t> starts_ = {0};  // of each file, and the end
  uint64_t text_bytes_ = 0;
};

}  // namespace loom::text
