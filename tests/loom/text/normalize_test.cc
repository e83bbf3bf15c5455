// Normalization: what Unicode says, and the same however a text is cut.
#include "text/normalize.h"

#include <gtest/gtest.h>

namespace loom::text {
namespace {

TEST(Normalize, FormCComposes) {
  EXPECT_EQ(normalize_nfc("cafe\u0301 \u1112\u1161\u11ab"), "caf\u00e9 \ud55c");
  EXPECT_EQ(normalize_nfc("plain"), "plain");
}

TEST(Normalize, FormDDecomposes) {
  EXPECT_EQ(normalize_nfd("caf\u00e9 \ud55c"), "cafe\u0301 \u1112\u1161\u11ab");
  EXPECT_EQ(normalize_nfd("plain"), "plain");
}

/// Accents are sorted, and those of one character stay together.
TEST(Normalize, LongTextsAreCutWhereNothingReachesOver) {
  const std::string text =
      "e\u0301\u0323\u00e9a\u0300\u1112\u1161\u11ab\u7ec7"
      "\U0001d15f\xff\u0301o\u0308";
  const std::string composed = normalize_nfc(text), decomposed = normalize_nfd(text);
  EXPECT_NE(composed, text);
  EXPECT_NE(decomposed, text);
  for (size_t at_once = 1; at_once <= text.size(); ++at_once) {
    EXPECT_EQ(normalize_nfc(text, at_once), composed) << at_once;
    EXPECT_EQ(normalize_nfd(text, at_once), decomposed) << at_once;
  }
}

}  // namespace
}  // namespace loom::text
