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

/// The words of a text, one after the other. What is no valid UTF-8 goes.
std::vector<std::string> bert_words(std::string_view text, const BertNormalization& normalization);

}  // namespace loom::text
