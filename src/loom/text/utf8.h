// UTF-8, one character at a time (RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF).
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <string_view>

namespace loom::text {

struct Utf8Char {
  char32_t value = 0;  // of a valid one
  size_t bytes = 1;    // 1 when it is not valid: the next byte may begin another
  bool valid = false;
};

/// The character at `at`, which must be inside the text.
inline Utf8Char utf8_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1, true};
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() - at < length) return {};
  char32_t value = first & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    value = value << 6 | (byte(i) & 0x3fu);
  }
  const bool overlong = value < (length == 4 ? 0x10000u : length == 3 ? 0x800u : 0x80u);
  if (overlong || value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) return {};
  return {value, length, true};
}

inline bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Char character = utf8_at(text, at);
    if (!character.valid) return false;
    at += character.bytes;
  }
  return true;
}

}  // namespace loom::text
