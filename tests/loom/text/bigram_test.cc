// The baseline is a probability distribution, and knows what it has seen.
#include "text/bigram.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support.h"

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
  const Result<double> entropy = model.cross_entropy("aba");
  LOOM_ASSERT_OK(entropy);
  EXPECT_NEAR(*entropy, -(std::log((2 + 2 * b) / 5) + std::log((1 + a) / 2)) / 2, 1e-12);
}

TEST(Bigram, LearnsWhatIsCertain) {
  BigramModel model;
  std::string text;
  for (int i = 0; i < 10'000; ++i) text += "ab";
  model.add(text);
  EXPECT_LT(*model.cross_entropy("abababab"), 0.001);
  EXPECT_GT(*model.cross_entropy("aabb"), 3.0);
}

TEST(Bigram, NeedsTwoBytes) {
  EXPECT_TRUE(fails_with(BigramModel().cross_entropy("a"), Code::invalid_argument, "must be at least 2"));
}

}  // namespace
}  // namespace loom::text
