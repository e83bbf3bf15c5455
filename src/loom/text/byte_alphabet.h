// The alphabet in which the files of byte-level BPE spell bytes: printable characters for all 256, so that a
// token is a text without spaces. Bytes that are printable in Latin-1 stand for themselves; the others, in
// order, for U+0100 and on.
//
// Thread safety: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace loom::text {

/// The character that stands for a byte, as UTF-8.
const std::string& spelling_of(unsigned char byte);
/// The spelling of several bytes.
std::string spell(std::string_view bytes);
/// The bytes that a text spells, or nothing when one of its characters stands for none.
std::optional<std::string> unspell(std::string_view text);

}  // namespace loom::text
