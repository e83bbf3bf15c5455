#include "text/words.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <array>

#include "text/utf8.h"

namespace loom::text {
namespace {

struct Char {
  CharClass kind = CharClass::other;
  size_t bytes = 1;
};

CharClass classify(char32_t character) {
  const UChar32 code = static_cast<UChar32>(character);
  const uint32_t category = U_GET_GC_MASK(code);
  if (category & U_GC_L_MASK) return CharClass::letter;
  if (category & U_GC_N_MASK) return CharClass::number;
  return u_isUWhiteSpace(code) ? CharClass::space : CharClass::other;
}

Char char_at(std::string_view text, size_t at) {
  static const std::array<CharClass, 128> ascii = [] {
    std::array<CharClass, 128> classes{};
    for (char32_t c = 0; c < 128; ++c) classes[c] = classify(c);
    return classes;
  }();
  const unsigned char first = static_cast<unsigned char>(text[at]);
  if (first < 128) return {ascii[first], 1};
  const Utf8Char decoded = utf8_at(text, at);
  if (!decoded.valid) return {CharClass::other, 1};
  return {classify(decoded.value), decoded.bytes};
}

/// The end of the run of characters of one class.
size_t run_end(std::string_view text, size_t at, CharClass kind) {
  while (at < text.size()) {
    const Char next = char_at(text, at);
    if (next.kind != kind) break;
    at += next.bytes;
  }
  return at;
}

/// Bytes of the English ending that begins with the apostrophe at `at`, or 0.
size_t contraction(std::string_view text, size_t at) {
  const std::string_view rest = text.substr(at + 1, 2);
  if (rest.empty()) return 0;
  if (std::string_view("stmd").find(rest[0]) != std::string_view::npos) return 2;
  return rest == "re" || rest == "ve" || rest == "ll" ? 3 : 0;
}

/// The same in letters of either case, and with the long s, which folds to an s.
size_t contraction_of_any_case(std::string_view text, size_t at) {
  constexpr std::string_view kLongS = "\u017f";
  if (text.substr(at + 1).starts_with(kLongS)) return 1 + kLongS.size();
  std::string small(text.substr(at, 3));
  for (char& c : small)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return contraction(small, 0);
}

bool ends_line(char c) { return c == '\n' || c == '\r'; }

/// The start of the character that ends at `at`.
size_t previous_char(std::string_view text, size_t at) {
  size_t start = at - 1;
  while (start > 0 && at - start < 4 && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) --start;
  return start + char_at(text, start).bytes == at ? start : at - 1;
}

/// Whether BLOOM's words are made of it, and bytes of the character: neither white space nor one of fourteen
/// marks.
std::pair<bool, size_t> word_char(std::string_view text, size_t at) {
  constexpr std::u32string_view kMarks = U"(|).,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c";
  const Char character = char_at(text, at);
  if (character.kind != CharClass::other) return {character.kind != CharClass::space, character.bytes};
  const char32_t value = character.bytes > 1 ? utf8_at(text, at).value
                                             : static_cast<char32_t>(static_cast<unsigned char>(text[at]));
  return {kMarks.find(value) == std::u32string_view::npos, character.bytes};
}

/// The end of the word that begins at `at`, perhaps with a space; `at` itself where none does.
size_t bloom_match(std::string_view text, size_t at) {
  size_t end = at + (text[at] == ' ' ? 1 : 0);
  const size_t first = end;
  while (end < text.size()) {
    const auto [belongs, bytes] = word_char(text, end);
    if (!belongs) break;
    end += bytes;
  }
  return end > first ? end : at;
}

size_t bloom_word_end(std::string_view text, size_t at) {
  if (const size_t end = bloom_match(text, at); end > at) return end;
  do at += word_char(text, at).second;
  while (at < text.size() && !word_char(text, at).first &&
         !(text[at] == ' ' && at + 1 < text.size() && word_char(text, at + 1).first));
  return at;
}

/// The end of white space that begins at `at` and that no other word takes along.
size_t space_end(std::string_view text, size_t at) {
  const size_t end = run_end(text, at, CharClass::space);
  if (end == text.size()) return end;
  // The last white space goes with what follows, unless it is the only one.
  const size_t last = previous_char(text, end);
  return last > at ? last : end;
}

/// Behind the last line feed or carriage return in [at, end); `at` where there is none.
size_t after_line_ends(std::string_view text, size_t at, size_t end) {
  while (end > at && !ends_line(text[end - 1])) --end;
  return end;
}

size_t llama_word_end(std::string_view text, size_t at, int most_numbers) {
  if (text[at] == '\'') {
    if (const size_t bytes = contraction_of_any_case(text, at); bytes > 0) return at + bytes;
  }
  const Char first = char_at(text, at);
  size_t next = at + first.bytes;
  if (first.kind == CharClass::number) {
    for (int i = 1; i < most_numbers && next < text.size(); ++i) {
      const Char more = char_at(text, next);
      if (more.kind != CharClass::number) break;
      next += more.bytes;
    }
    return next;
  }
  // One character of any other kind, but no end of a line, goes with the letters behind it.
  const bool letters = first.kind == CharClass::letter || (!ends_line(text[at]) && next < text.size() &&
                                                           char_at(text, next).kind == CharClass::letter);
  if (letters) return run_end(text, next, CharClass::letter);
  const size_t marks = text[at] == ' ' ? next : at;
  if (size_t end = run_end(text, marks, CharClass::other); end > marks) {
    while (end < text.size() && ends_line(text[end])) ++end;
    return end;
  }
  const size_t lines = after_line_ends(text, at, run_end(text, at, CharClass::space));
  return lines > at ? lines : space_end(text, at);
}

/// Before the last white space, which is a line feed or comes after one.
size_t gpt2_safe_cut(std::string_view text, size_t at) {
  const auto last_space = [&](size_t place) {
    if (place >= text.size()) return false;
    const Char character = char_at(text, place);
    const size_t next = place + character.bytes;
    return character.kind == CharClass::space && next < text.size() &&
           char_at(text, next).kind != CharClass::space;
  };
  for (;; ++at) {
    const size_t line_feed = text.find('\n', at - 1);
    if (line_feed == std::string_view::npos) return text.size();
    for (const size_t place : {line_feed, line_feed + 1})
      if (place >= at && last_space(place)) return place;
    at = line_feed + 1;
  }
}

/// After the ends of lines, of which the first found is a line feed.
size_t llama_safe_cut(std::string_view text, size_t at) {
  const size_t line_feed = text.find('\n', at - 1);
  if (line_feed == std::string_view::npos) return text.size();
  return after_line_ends(text, line_feed, run_end(text, line_feed, CharClass::space));
}

}  // namespace

CharClass class_of(char32_t character) { return classify(character); }

size_t word_end(std::string_view text, size_t at, WordRule rule) {
  if (rule == WordRule::bloom) return bloom_word_end(text, at);
  if (rule != WordRule::gpt2) return llama_word_end(text, at, rule == WordRule::llama3 ? 3 : 1);
  if (text[at] == '\'') {
    if (const size_t bytes = contraction(text, at); bytes > 0) return at + bytes;
  }
  const Char first = char_at(text, at);
  if (first.kind != CharClass::space) return run_end(text, at, first.kind);
  if (text[at] == ' ' && at + 1 < text.size()) {
    const Char second = char_at(text, at + 1);
    if (second.kind != CharClass::space) return run_end(text, at + 1, second.kind);
  }
  return space_end(text, at);
}

size_t safe_cut(std::string_view text, size_t at, WordRule rule) {
  at = std::max<size_t>(at, 1);
  switch (rule) {
    case WordRule::gpt2: return gpt2_safe_cut(text, at);
    case WordRule::bloom: break;
    case WordRule::llama3:
    case WordRule::qwen2: return llama_safe_cut(text, at);
  }
  return text.size();
}

size_t leading_space(std::string_view text) { return run_end(text, 0, CharClass::space); }

size_t trailing_space(std::string_view text) {
  size_t start = text.size();
  while (start > 0) {
    const size_t previous = previous_char(text, start);
    if (char_at(text, previous).kind != CharClass::space) break;
    start = previous;
  }
  return text.size() - start;
}

}  // namespace loom::text
