// Training gives the vocabulary that Hugging Face's library trains, and the same one every time.
#include "text/bpe_trainer.h"

#include <gtest/gtest.h>

#include "support.h"

namespace loom::text {
namespace {

using testing::fails_with;
using testing::fixture;
using testing::get_file;

TEST(BpeTrainerTest, TheSameVocabularyAsTheReference) {
  BpeTraining training;
  training.vocabulary_size = 1200;
  Result<BpeTrainer> trainer = BpeTrainer::create(training);
  LOOM_ASSERT_OK(trainer);
  trainer->add(get_file(fixture("corpus.txt")));
  const auto trained = trainer->train();
  LOOM_ASSERT_OK(trained);
  const auto reference = BpeTokenizer::from_tokenizer_json(fixture("gpt2.json"));
  LOOM_ASSERT_OK(reference);
  EXPECT_EQ((*trained)->model().vocabulary, (*reference)->model().vocabulary);
  EXPECT_EQ((*trained)->model().merges, (*reference)->model().merges);
  EXPECT_EQ((*trained)->hash(), (*reference)->hash());
}

TEST(BpeTrainerTest, TextsInPiecesCountAsOne) {
  const std::string corpus = get_file(fixture("corpus.txt"));
  BpeTraining training;
  training.vocabulary_size = 400;
  Result<BpeTrainer> whole = BpeTrainer::create(training), pieces = BpeTrainer::create(training);
  whole->add(corpus);
  const size_t cut = corpus.find("\nthe") + 1;
  pieces->add(corpus.substr(cut));
  pieces->add(corpus.substr(0, cut));
  EXPECT_EQ((*whole->train())->hash(), (*pieces->train())->hash());
}

TEST(BpeTrainerTest, StopsWhenNothingIsFrequent) {
  BpeTraining training;
  training.vocabulary_size = 1000;
  Result<BpeTrainer> trainer = BpeTrainer::create(training);
  trainer->add("abab abab");
  const auto trained = trainer->train();
  LOOM_ASSERT_OK(trained);
  EXPECT_EQ((*trained)->encode("abab").size(), 1u);
  EXPECT_LT((*trained)->vocabulary_size(), 262);
}

// In "aaaaa" the pairs overlap: four are counted, two can be merged. What the reference makes of these texts.
TEST(BpeTrainerTest, OverlappingPairs) {
  using Tokens = std::vector<std::string>;
  const std::pair<std::string, Tokens> cases[] = {
      {"aaaaa", {"aa", "aaa", "aaaaa"}},
      {"aaaaaa aaaa aaa", {"aa", "aaaa", " aa", " aaaa", "aaaaaa"}},
      {"abababab", {"ab", "abab", "abababab"}},
  };
  for (const auto& [text, expected] : cases) {
    BpeTraining training;
    training.vocabulary_size = 262;
    training.least_count = 1;
    Result<BpeTrainer> trainer = BpeTrainer::create(training);
    trainer->add(text);
    const auto trained = trainer->train();
    LOOM_ASSERT_OK(trained);
    const Tokens& vocabulary = (*trained)->model().vocabulary;
    EXPECT_EQ(Tokens(vocabulary.begin() + 257, vocabulary.end()), expected) << text;
  }
}

TEST(BpeTrainerTest, MistakesAreTold) {
  BpeTraining training;
  training.vocabulary_size = 256;
  EXPECT_TRUE(
      fails_with(BpeTrainer::create(training), Code::invalid_argument, "256 tokens, must be in [257,"));
  training = {};
  training.least_count = 0;
  EXPECT_TRUE(fails_with(BpeTrainer::create(training), Code::invalid_argument, "at least 1"));
  training = {};
  training.special_tokens = {"<a>", "<a>"};
  EXPECT_TRUE(fails_with(BpeTrainer::create(training), Code::invalid_argument, "\"<a>\" is there twice"));
  training.special_tokens = {""};
  EXPECT_TRUE(fails_with(BpeTrainer::create(training), Code::invalid_argument, "empty"));
  training.special_tokens = {"a"};
  EXPECT_TRUE(fails_with(BpeTrainer::create(training), Code::invalid_argument, "the spelling of a byte"));
  EXPECT_TRUE(fails_with(BpeTrainer::create({})->train(), Code::invalid_argument, "no text was added"));
}

}  // namespace
}  // namespace loom::text
