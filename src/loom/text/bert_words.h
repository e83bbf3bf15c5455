// Words as BERT cuts them: at white space, and around every punctuation mark and, if asked, every Chinese
// character; cleaned, in lower case and without accents, if asked. Categories are Unicode's, as ICU has them.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace loom::text {

struct BertNormalization {
  bool clean_text = true;  // control characters go, all white space is a space
  bool chinese_characters = true;
  bool strip_accents = true;
  bool lower_case = true;
};

/// A text as it is cut afterwards. What is no valid UTF-8 goes.
std::string bert_normalized(std::string_view text, const BertNormalization& normalization);
/// The words of a normalized text, one after the other.
std::vector<std::string> bert_words(std::string_view normalized);
/// Both at once.
std::vector<std::string> bert_words(std::string_view text, const BertNormalization& normalization);

}  // namespace loom::text
