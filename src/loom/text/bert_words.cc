#include "text/bert_words.h"

#include <unicode/uchar.h>

#include "text/normalize.h"
#include "text/utf8.h"

namespace loom::text {
namespace {

UChar32 code_of(char32_t character) { return static_cast<UChar32>(character); }

/// What cleaning removes: other than the line breaks and tabs, which are white space here.
bool is_control(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  return (U_GET_GC_MASK(code_of(c)) & (U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK)) != 0;
}

bool is_space(char32_t c) { return u_isUWhiteSpace(code_of(c)); }

/// Unicode's punctuation, and the symbols of ASCII.
bool is_punctuation(char32_t c) {
  if (c < 0x80) return c > 0x20 && c < 0x7f && !u_isalnum(code_of(c));
  return (U_GET_GC_MASK(code_of(c)) & U_GC_P_MASK) != 0;
}

bool is_chinese(char32_t c) {
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
         (c >= 0x2a700 && c <= 0x2b73f) || (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
         (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

void append(char32_t c, std::string& to) {
  if (c < 0x80) {
    to += static_cast<char>(c);
  } else if (c < 0x800) {
    to += static_cast<char>(0xc0 | c >> 6);
    to += static_cast<char>(0x80 | (c & 0x3f));
  } else {
    if (c < 0x10000) {
      to += static_cast<char>(0xe0 | c >> 12);
    } else {
      to += static_cast<char>(0xf0 | c >> 18);
      to += static_cast<char>(0x80 | (c >> 12 & 0x3f));
    }
    to += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    to += static_cast<char>(0x80 | (c & 0x3f));
  }
}

/// Calls visit(character) for every valid character.
template <typename F>
void for_each_character(std::string_view text, F&& visit) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_at(text, at);
    if (c.valid) visit(c.value);
    at += c.bytes;
  }
}

std::string cleaned(std::string_view text, const BertNormalization& n) {
  std::string clean;
  for_each_character(text, [&](char32_t c) {
    if (n.clean_text) {
      if (c == 0 || c == 0xfffd || is_control(c)) return;
      if (is_space(c)) c = ' ';
    }
    const bool alone = n.chinese_characters && is_chinese(c);
    if (alone) clean += ' ';
    append(c, clean);
    if (alone) clean += ' ';
  });
  return clean;
}

}  // namespace

std::string bert_normalized(std::string_view text, const BertNormalization& n) {
  std::string clean = cleaned(text, n);
  if (n.strip_accents) clean = normalize_nfd(clean);
  if (!n.strip_accents && !n.lower_case) return clean;
  std::string normalized;
  for_each_character(clean, [&](char32_t c) {
    if (n.strip_accents && u_charType(code_of(c)) == U_NON_SPACING_MARK) return;
    append(n.lower_case ? static_cast<char32_t>(u_tolower(code_of(c))) : c, normalized);
    // The one character whose lower case is two: an i, and the dot that it had.
    if (n.lower_case && c == 0x130) append(0x307, normalized);
  });
  return normalized;
}

std::vector<std::string> bert_words(std::string_view normalized) {
  std::vector<std::string> words;
  bool inside = false;  // a word that more characters may join
  for_each_character(normalized, [&](char32_t c) {
    if (is_space(c)) {
      inside = false;
      return;
    }
    const bool mark = is_punctuation(c);
    if (!inside || mark) words.emplace_back();
    append(c, words.back());
    inside = !mark;
  });
  return words;
}

std::vector<std::string> bert_words(std::string_view text, const BertNormalization& n) {
  return bert_words(bert_normalized(text, n));
}

}  // namespace loom::text
