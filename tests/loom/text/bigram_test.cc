// The baseline is a probability distribution, and knows what it has seen.
#include "text/bigram.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support.h"
#include "text/bpe.h"
#include "text/byte_tokenizer.h"
#include "text/tokenize_files.h"

namespace loom::text {
namespace {

using testing::fails_with;

double sum_after(const BigramModel& model, int previous) {
  double sum = 0;
  for (int next = 0; next < 256; ++next) {
    sum += model.probability(static_cast<unsigned char>(previous), static_cast<unsigned char>(next));
  }
  return sum;
}

TEST(Bigram, ProbabilitiesSumToOne) {
  BigramModel model;
  for (const int previous : {0, 97, 255}) EXPECT_NEAR(sum_after(model, previous), 1, 1e-12);
  EXPECT_DOUBLE_EQ(model.probability(1, 2), 1.0 / 256);
  model.add("the weft and the warp");
  for (int previous = 0; previous < 256; ++previous) EXPECT_NEAR(sum_after(model, previous), 1, 1e-12);
}

TEST(Bigram, IsTheFormulaByHand) {
  BigramModel model;
  model.add("abab");
  model.add("ac");  // "ba" of the border is not counted
  // After "a": "b" twice, "c" once, 2 different; alone: "a" 3 times, "b" 2, "c" 1 of 6.
  const double b = 3.0 / 262, c = 2.0 / 262, a = 4.0 / 262;
  EXPECT_NEAR(model.probability('a', 'b'), (2 + 2 * b) / 5, 1e-15);
  EXPECT_NEAR(model.probability('a', 'c'), (1 + 2 * c) / 5, 1e-15);
  EXPECT_NEAR(model.probability('b', 'a'), (1 + a) / 2, 1e-15);
  EXPECT_NEAR(model.probability('c', 'a'), a, 1e-15);  // nothing was seen after "c"
  EXPECT_NEAR(model.surprise("aba"), -(std::log((2 + 2 * b) / 5) + std::log((1 + a) / 2)), 1e-12);
}

TEST(Bigram, LearnsWhatIsCertain) {
  BigramModel model;
  std::string text;
  for (int i = 0; i < 10'000; ++i) text += "ab";
  model.add(text);
  EXPECT_LT(model.surprise("abababab"), 7 * 0.001);
  EXPECT_GT(model.surprise("aabb"), 3 * 3.0);
}

TEST(Bigram, OneByteSurprisesNobody) { EXPECT_EQ(BigramModel().surprise("a"), 0); }

TEST(Bigram, TheBaselineOfADatasetIsThatOfItsTexts) {
  const testing::TemporaryFolder folder;
  const std::string corpus = testing::get_file(testing::fixture("corpus.txt"));
  testing::put_file(folder / "a", corpus);
  testing::put_file(folder / "b", "one\ntwo\nthree\nfour\nfive\n");
  const auto bpe = BpeTokenizer::from_tokenizer_json(testing::fixture("gpt2.json"));
  LOOM_ASSERT_OK(bpe);
  double by_bytes = 0;
  for (const Tokenizer* tokenizer :
       {static_cast<const Tokenizer*>(bpe->get()), static_cast<const Tokenizer*>(nullptr)}) {
    const ByteTokenizer bytes;
    TokenizeOptions options;
    options.validation_fraction = 0.25;
    const auto summary = tokenize_files({folder / "a", folder / "b"}, folder / "tokens",
                                        tokenizer ? *tokenizer : bytes, options);
    LOOM_ASSERT_OK(summary);
    const Result<double> baseline = bigram_baseline(folder / "tokens");
    LOOM_ASSERT_OK(baseline);
    if (by_bytes != 0) {
      EXPECT_DOUBLE_EQ(*baseline, by_bytes);
    }
    by_bytes = *baseline;
  }
  // The same by hand.
  const size_t cut = corpus.find('\n', (corpus.size() * 3 + 3) / 4 - 1) + 1;
  BigramModel model;
  model.add(corpus.substr(0, cut));
  model.add("one\ntwo\nthree\nfour\n");
  const double nats = model.surprise(corpus.substr(cut)) + model.surprise("five\n");
  EXPECT_NEAR(by_bytes, nats / static_cast<double>(corpus.size() - cut - 1 + 4), 1e-9);
  EXPECT_LT(by_bytes, std::log(256.0));
}

TEST(Bigram, TheBaselineOfAPartIsOfThatPart) {
  const testing::TemporaryFolder folder;
  std::string easy, hard;
  for (int i = 0; i < 500; ++i) easy += "ab\n", hard += fmt::format("{}\n", i * i * 37 % 89);
  const std::string text = easy + easy + easy + hard;
  testing::put_file(folder / "a", text);
  TokenizeOptions options;
  options.validation_fraction = 0.5;
  LOOM_ASSERT_OK(tokenize_files({folder / "a"}, folder / "tokens", ByteTokenizer(), options));
  const size_t cut = text.find('\n', (text.size() + 1) / 2 - 1) + 1;
  BigramModel model;
  model.add(text.substr(0, cut));
  const Result<double> part = bigram_baseline(folder / "tokens", 300),
                       all = bigram_baseline(folder / "tokens"),
                       more = bigram_baseline(folder / "tokens", 1'000'000);
  LOOM_ASSERT_OK(part);
  LOOM_ASSERT_OK(all);
  LOOM_ASSERT_OK(more);
  EXPECT_LT(*part, 0.1 * *all);
  EXPECT_EQ(*more, *all);
  EXPECT_NEAR(*part, model.surprise(text.substr(cut, 300)) / 299, 1e-9);
}

TEST(Bigram, TheBaselineNeedsTheRightTokenizer) {
  const testing::TemporaryFolder folder;
  testing::put_file(folder / "a", "one\ntwo\nthree\nfour\n");
  TokenizeOptions options;
  options.validation_fraction = 0.5;
  LOOM_ASSERT_OK(tokenize_files({folder / "a"}, folder / "tokens", ByteTokenizer(), options));
  const auto bpe = BpeTokenizer::from_tokenizer_json(testing::fixture("gpt2.json"));
  LOOM_ASSERT_OK((*bpe)->save(folder / "tokens"));
  std::filesystem::remove(folder / "tokens/loom-tokenizer.json");
  EXPECT_TRUE(
      fails_with(bigram_baseline(folder / "tokens"), Code::invalid_data, "not made by the tokenizer beside"));
}

}  // namespace
}  // namespace loom::text
