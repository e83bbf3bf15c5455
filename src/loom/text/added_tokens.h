// AddedTokens: finds tokens that are spelled out in a text, before it is split into words: always the
// leftmost one, and of those that begin there the longest.
//
// Thread safety: never changes after it is made.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace loom::text {

/// A token that is found in the text before it is split into words.
struct AddedToken {
  std::string content;
  Token id = 0;
  bool special = true;
  bool left_strip = false;   // takes the white space before it
  bool right_strip = false;  // takes the white space after it
  bool normalized = false;   // is looked for after normalization
};

/// The texts of the tokens that have a role, where the files name them; an empty one has its usual name.
struct SpecialNames {
  std::string begin, end, mask, padding, end_of_text;
};

class AddedTokens {
 public:
  /// Errors (invalid_data): an empty token.
  Status add(const AddedToken& token);

  struct Match {
    size_t begin = 0;  // with the white space that it takes
    size_t end = 0;
    Token id = 0;
  };
  /// The first match at or after `from`.
  std::optional<Match> find(std::string_view text, size_t from) const;
  /// Whether one is spelled out at `at`, which may be the end.
  bool begins_at(std::string_view text, size_t at) const;

 private:
  struct Starting {
    std::string same;                // with which all of them begin: many have "<|"
    std::vector<AddedToken> tokens;  // the longest first
  };
  /// The token that is spelled out at `at`, which must be inside the text.
  const AddedToken* token_at(std::string_view text, size_t at) const;

  bool none_ = true;
  std::array<Starting, 256> starting_;  // by the first byte
};

}  // namespace loom::text
