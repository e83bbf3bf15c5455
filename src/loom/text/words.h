// Words as a byte-level BPE cuts them: no token of it reaches over the border of two words. A word is what
// the regular expression of a WordRule matches, from left to right, with the categories of Unicode as ICU
// knows them. A byte that is no valid UTF-8 counts as a character that is neither letter, number nor white
// space.
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

/// Whose words, by their expressions:
///   gpt2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
///   bloom    ?[^(\s|[.,!?…。，、।۔،])]+
///   llama3  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
///           \s*[\r\n]+|\s+(?!\S)|\s+
///   qwen2   the same with \p{N} for \p{N}{1,3}
/// What lies between two matches of BLOOM's is a word, too: letters and digits stay together, and marks with
/// white space. In (?i:...) the long s, U+017F, is an s.
enum class WordRule { gpt2, bloom, llama3, qwen2 };

/// Where the word that begins at `at` ends; `at` must be inside the text. The text is that until its end:
/// white space there belongs together, while elsewhere the last of several goes with the next word.
size_t word_end(std::string_view text, size_t at, WordRule rule = WordRule::gpt2);

/// Where a text may be cut so that both parts have the same words as the whole: at the first place at or
/// after `at`, except the beginning, that is safe. Without one: the end. No token without a line feed reaches
/// over it.
/// GPT-2: it stands before the last of some white space in front of other characters. This white-space
/// character is a line feed or comes after one.
/// Llama 3 and Qwen2: it stands after a line feed or carriage return, the last of its white space, which has
/// a line feed.
/// BLOOM: the end, since a piece of marks and white space may begin before a line feed and end behind it.
size_t safe_cut(std::string_view text, size_t at, WordRule rule = WordRule::gpt2);

/// How many bytes of white space a text begins or ends with.
size_t leading_space(std::string_view text);
size_t trailing_space(std::string_view text);

}  // namespace loom::text
