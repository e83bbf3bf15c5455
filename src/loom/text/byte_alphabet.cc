#include "text/byte_alphabet.h"

#include <array>
#include <unordered_map>

#include "text/utf8.h"

namespace loom::text {
namespace {

struct Alphabet {
  std::array<std::string, 256> spellings;
  std::unordered_map<char32_t, char> bytes;
};

bool stands_for_itself(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

const Alphabet& alphabet() {
  static const Alphabet made = [] {
    Alphabet alphabet;
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const char32_t c = stands_for_itself(byte) ? byte : next++;
      // None has more than two bytes of UTF-8.
      std::string& spelling = alphabet.spellings[byte];
      if (c >= 0x80) spelling.push_back(static_cast<char>(0xc0 | c >> 6));
      spelling.push_back(static_cast<char>(c < 0x80 ? c : 0x80 | (c & 0x3f)));
      alphabet.bytes[c] = static_cast<char>(byte);
    }
    return alphabet;
  }();
  return made;
}

}  // namespace

const std::string& spelling_of(unsigned char byte) { return alphabet().spellings[byte]; }

std::string spell(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += spelling_of(static_cast<unsigned char>(byte));
  return text;
}

std::optional<std::string> unspell(std::string_view text) {
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_at(text, at);
    const auto found = alphabet().bytes.find(c.value);
    if (!c.valid || found == alphabet().bytes.end()) return std::nullopt;
    bytes += found->second;
    at += c.bytes;
  }
  return bytes;
}

}  // namespace loom::text
