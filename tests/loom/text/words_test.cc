// Words are cut where GPT-2's regular expression cuts them, and characters are what Hugging Face's library
// takes them for.
#include "text/words.h"

#include <gtest/gtest.h>
#include <unicode/uchar.h>

#include <random>
#include <sstream>
#include <vector>

#include "support.h"
#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace loom::text {
namespace {

std::vector<std::string> words_of(std::string_view text, WordRule rule = WordRule::gpt2) {
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    const size_t end = word_end(text, at, rule);
    words.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

using Words = std::vector<std::string>;

TEST(Words, AreCutAsGpt2Does) {
  EXPECT_EQ(words_of("Hello world"), (Words{"Hello", " world"}));
  EXPECT_EQ(words_of("it's we'll I'd"), (Words{"it", "'s", " we", "'ll", " I", "'d"}));
  EXPECT_EQ(words_of("IT'S"), (Words{"IT", "'", "S"}));
  EXPECT_EQ(words_of(" 's"), (Words{" '", "s"}));
  EXPECT_EQ(words_of("a  b"), (Words{"a", " ", " b"}));
  EXPECT_EQ(words_of("a \n b"), (Words{"a", " \n", " b"}));
  EXPECT_EQ(words_of("a\nb"), (Words{"a", "\n", "b"}));
  EXPECT_EQ(words_of("a  "), (Words{"a", "  "}));
  EXPECT_EQ(words_of("x1y22"), (Words{"x", "1", "y", "22"}));
  EXPECT_EQ(words_of("a, b!!"), (Words{"a", ",", " b", "!!"}));
  EXPECT_EQ(words_of("é \u00e9"), (Words{"é", " \u00e9"}));
  EXPECT_EQ(words_of("\u3000\u3000x"), (Words{"\u3000", "\u3000", "x"}));
  EXPECT_EQ(words_of("'"), (Words{"'"}));
  EXPECT_EQ(words_of("\xff\xfe"
                     "a"),
            (Words{"\xff\xfe", "a"}));
}

TEST(Words, AreCutAsLlama3Does) {
  const auto words = [](std::string_view text) { return words_of(text, WordRule::llama3); };
  EXPECT_EQ(words("Hello world"), (Words{"Hello", " world"}));
  EXPECT_EQ(words("it's WE'LL I'd"), (Words{"it", "'s", " WE", "'LL", " I", "'d"}));
  EXPECT_EQ(words("it'\u017f 'reX 'x"), (Words{"it", "'\u017f", " '", "reX", " '", "x"}));
  EXPECT_EQ(words("'rex'x"), (Words{"'re", "x", "'x"}));
  EXPECT_EQ(words("1234567 12"), (Words{"123", "456", "7", " ", "12"}));
  EXPECT_EQ(words("(a) $b\tc"), (Words{"(a", ")", " $", "b", "\tc"}));
  EXPECT_EQ(words("a!\r\n\n  b"), (Words{"a", "!\r\n\n", " ", " b"}));
  EXPECT_EQ(words("a \n\t\n  b"), (Words{"a", " \n\t\n", " ", " b"}));
  EXPECT_EQ(words("a\nb"), (Words{"a", "\n", "b"}));
  EXPECT_EQ(words("a  "), (Words{"a", "  "}));
  EXPECT_EQ(words(" "), (Words{" "}));
  EXPECT_EQ(words_of("1234 a", WordRule::qwen2), (Words{"1", "2", "3", "4", " a"}));
}

TEST(Words, EveryCharacterHasItsClass) {
  std::vector<CharClass> expected(0x110000, CharClass::other);
  std::istringstream ranges(testing::get_file(testing::fixture("classes.txt")));
  size_t lines = 0;
  uint32_t first = 0, last = 0;
  for (std::string kind; ranges >> std::hex >> first >> last >> kind; ++lines) {
    ASSERT_LT(last, expected.size());
    for (uint32_t c = first; c <= last; ++c) {
      expected[c] = kind == "letter"   ? CharClass::letter
                    : kind == "number" ? CharClass::number
                                       : CharClass::space;
    }
  }
  ASSERT_GT(lines, 800u);
  size_t different = 0;
  for (char32_t c = 0; c < expected.size(); ++c) {
    // The library that made the list and the ICU of this machine may know different versions of Unicode.
    UVersionInfo age;
    u_charAge(static_cast<UChar32>(c), age);
    const bool known_to_both = age[0] > 0 && age[0] <= 15;
    if (!known_to_both || class_of(c) == expected[c]) continue;
    if (++different < 20) ADD_FAILURE() << std::hex << static_cast<uint32_t>(c);
  }
  EXPECT_EQ(different, 0u);
}

TEST(Words, AnyBytesAreCutWithoutLoss) {
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes(random() % 40, '\0');
    for (char& byte : bytes)
      byte = random() % 3 == 0 ? " '\n\xc2\xa0sl\xe3\x80"[random() % 9] : static_cast<char>(random());
    std::string together;
    for (const std::string& word : words_of(bytes)) {
      ASSERT_FALSE(word.empty());
      together += word;
    }
    ASSERT_EQ(together, bytes);
    ASSERT_LE(leading_space(bytes), bytes.size());
    ASSERT_LE(trailing_space(bytes), bytes.size());
  }
}

std::string with_lines(const std::string& text, const std::string& between) {
  std::string all;
  for (const char letter : text) all += letter == '\n' ? between : std::string(1, letter);
  return all;
}

/// As texts come: lines, those of DOS, a blank line between paragraphs, spaces at the ends of lines
/// (WikiText).
TEST(Words, ATextCutSafelyHasTheSameWords) {
  for (const WordRule rule : {WordRule::gpt2, WordRule::llama3, WordRule::qwen2})
    for (const char* between : {"\n", "\r\n", "\n\n", " \n "}) {
      const std::string corpus = with_lines(testing::get_file(testing::fixture("corpus.txt")), between);
      const Words whole = words_of(corpus, rule);
      for (const size_t part_bytes : {1, 10, 1000, 7777}) {
        Words parts;
        size_t count = 0;
        for (size_t at = 0; at < corpus.size(); ++count) {
          const size_t end = safe_cut(corpus, at + part_bytes, rule);
          ASSERT_GT(end, at);
          const Words part = words_of(std::string_view(corpus).substr(at, end - at), rule);
          parts.insert(parts.end(), part.begin(), part.end());
          at = end;
        }
        EXPECT_EQ(parts, whole);
        EXPECT_GT(count, 4u);
      }
    }
}

TEST(Words, SafeCutsAreBesideLineFeeds) {
  EXPECT_EQ(safe_cut("ab\ncd", 0), 2u);
  EXPECT_EQ(safe_cut("ab\ncd", 2), 2u);
  EXPECT_EQ(safe_cut("ab\ncd", 3), 5u);
  EXPECT_EQ(safe_cut("ab\n\ncd", 0), 3u);
  EXPECT_EQ(safe_cut("ab\n cd", 0), 3u);
  EXPECT_EQ(safe_cut("ab\n  cd", 0), 7u);
  EXPECT_EQ(safe_cut("ab\u3000\ncd\nx", 0), 5u);
  EXPECT_EQ(safe_cut("ab\n\u3000cd", 0), 3u);
  EXPECT_EQ(safe_cut("\nab", 0), 3u);
  EXPECT_EQ(safe_cut("ab\n", 0), 3u);
  EXPECT_EQ(safe_cut("", 0), 0u);
  EXPECT_EQ(safe_cut("ab", 100), 2u);
}

TEST(Words, SafeCutsOfLlama3AreAfterLines) {
  const auto cut = [](std::string_view text, size_t at) { return safe_cut(text, at, WordRule::llama3); };
  EXPECT_EQ(cut("ab\ncd", 0), 3u);
  EXPECT_EQ(cut("ab\ncd", 3), 3u);
  EXPECT_EQ(cut("ab\ncd", 4), 5u);
  EXPECT_EQ(cut("ab!\n \r\n\t cd", 0), 7u);
  EXPECT_EQ(cut("ab\rcd", 0), 5u);
  EXPECT_EQ(cut("\n", 0), 1u);
  EXPECT_EQ(cut("", 0), 0u);
  EXPECT_EQ(safe_cut("ab.\n.", 0, WordRule::bloom), 5u);
}

TEST(Words, SpaceAtTheEnds) {
  EXPECT_EQ(leading_space(" \u3000\nx "), 5u);
  EXPECT_EQ(trailing_space(" x \u00a0\u2028"), 6u);
  EXPECT_EQ(trailing_space("x\x80\x80"), 0u);
  EXPECT_EQ(trailing_space("  "), 2u);
}

TEST(Utf8, OnlyWhatIsValid) {
  EXPECT_EQ(utf8_at("é", 0).value, U'é');
  EXPECT_EQ(utf8_at("🧵", 0).bytes, 4u);
  EXPECT_EQ(utf8_at("\xf4\x8f\xbf\xbf", 0).value, 0x10ffffu);
  for (const std::string_view bad :
       {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80", "\xff", "\xc3", "\xe3\x81", "\xc3x"}) {
    EXPECT_FALSE(utf8_at(bad, 0).valid);
    EXPECT_EQ(utf8_at(bad, 0).bytes, 1u);
  }
}

TEST(ByteAlphabet, SpellsEveryByte) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(unspell(spell(all)), all);
  EXPECT_EQ(spell(" a\n"), "Ġa\u010a");
  EXPECT_FALSE(unspell("a b"));
  EXPECT_FALSE(unspell("織"));
}

}  // namespace
}  // namespace loom::text
