// Token files: tokens as they are trained on, to be mapped into memory.
//
//   offset  bytes  all little-endian
//        0      8  "LOOMTOKS"
//        8      4  version, 1
//       12      4  width of a token in bytes: 2 when the vocabulary has at most 65536 tokens, else 4
//       16      8  number of tokens
//       24      8  vocabulary size
//       32      8  hash of the tokenizer (Tokenizer::hash)
//       40      8  hash of the tokens
//       48      8  0
//       56      8  hash of the 56 bytes before
//       64         the tokens
//
// Thread safety: a reader may be used from any thread at once; a writer belongs to one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/mapped_file.h"
#include "base/status.h"
#include "text/tokenizer.h"

namespace loom::text {

class TokenFile {
 public:
  /// Checks the header and the file's length. Errors: not_found; unsupported (another version); invalid_data,
  /// saying what is wrong: no token file, a damaged header, a file that was cut short or is too long.
  static Result<TokenFile> open(const std::string& path);
  /// Of a file that a dataset says it has: that it is gone is invalid_data, and not as if it had never been.
  static Result<TokenFile> open_listed(const std::string& path);

  uint64_t count() const { return count_; }
  int64_t vocabulary_size() const { return vocabulary_size_; }
  uint64_t tokenizer_hash() const { return tokenizer_hash_; }
  const std::string& path() const { return path_; }
  /// Of what the header says, which has the number of tokens and their hash: other content has another key.
  uint64_t key() const { return key_; }

  /// Copies the tokens [begin, begin + into.size()). Errors: invalid_argument (past the end), invalid_data (a
  /// token that is not in the vocabulary).
  Status read(uint64_t begin, std::span<Token> into) const;
  /// Reads the whole file, and compares with the hash. Errors: invalid_data.
  Status verify() const;

 private:
  TokenFile() = default;
  MappedFile file_;
  std::string path_;
  uint32_t width_ = 0;
  uint64_t count_ = 0;
  int64_t vocabulary_size_ = 0;
  uint64_t tokenizer_hash_ = 0;
  uint64_t data_hash_ = 0;
  uint64_t key_ = 0;
};

/// Writes a token file; it appears with finish(), and not at all without.
class TokenFileWriter {
 public:
  static Result<TokenFileWriter> create(const std::string& path, int64_t vocabulary_size,
                                        uint64_t tokenizer_hash);
  /// Errors: invalid_argument for a token outside the vocabulary; disk_full, system_error.
  Status append(std::span<const Token> tokens);
  uint64_t count() const { return count_; }
  Status finish();

 private:
  TokenFileWriter(AtomicFile file, int64_t vocabulary_size, uint64_t tokenizer_hash);
  Status flush();

  AtomicFile file_;
  int64_t vocabulary_size_;
  uint64_t tokenizer_hash_;
  uint64_t count_ = 0;
  std::vector<std::byte> pending_;  // tokens as stored, less than a piece of the hash
  uint64_t written_bytes_ = 0;
  Hash64 hash_;
};

}  // namespace loom::text
