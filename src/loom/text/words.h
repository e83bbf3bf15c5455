// Words as GPT-2's byte-level BPE cuts them: no token of it reaches over the border of two words. What its
// regular expression
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// matches from left to right, with the categories of Unicode as ICU knows them. A byte that is no valid UTF-8
// counts as a character that is neither letter, number nor white space.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace loom::text {

enum class CharClass { letter, number, space, other };

/// L*, N*, White_Space, or none of them.
CharClass class_of(char32_t character);

/// Who cuts: GPT-2, as above, or BLOOM, whose words are what
///    ?[^(\s|[.,!?…。，、।۔،])]+
/// matches, and what lies between two matches: letters and digits stay together, and marks with white space.
enum class WordRule { gpt2, bloom };

/// Where the word that begins at `at` ends; `at` must be inside the text. The text is that until its end:
/// white space there belongs together, while elsewhere the last of several goes with the next word.
size_t word_end(std::string_view text, size_t at, WordRule rule = WordRule::gpt2);

/// Where a text may be cut so that both parts have the same words, as GPT-2 cuts them, as the whole. It is
/// the first place at or after `at`, except the beginning, that stands before the last of some white space
/// in front of other characters. This white-space character is a line feed or comes after one. Without such
/// a place: the end. No token without a line feed reaches over it.
size_t safe_cut(std::string_view text, size_t at);

/// How many bytes of white space a text begins or ends with.
size_t leading_space(std::string_view text);
size_t trailing_space(std::string_view text);

}  // namespace loom::text
