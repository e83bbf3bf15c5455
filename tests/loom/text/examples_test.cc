// Batches of hidden tokens, and of texts with labels.
#include "text/examples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "format/json_file.h"
#include "support.h"
#include "text/masked_batches.h"
#include "text/tokenize_files.h"
#include "text/wordpiece.h"

namespace loom::text {
namespace {

using testing::fails_with;
using testing::fixture;
using testing::get_file;
using testing::put_file;
using testing::TemporaryFolder;

std::shared_ptr<const Tokenizer> pieces() {
  return WordPieceTokenizer::from_tokenizer_json(fixture("wordpiece.json")).take();
}

/// A dataset of the corpus in word pieces.
std::shared_ptr<const TokenDataset> corpus_in(const TemporaryFolder& folder) {
  EXPECT_TRUE(tokenize_files({fixture("corpus.txt")}, folder / "tokens", *pieces(), {}).ok());
  return TokenDataset::open(folder / "tokens", Split::train).take();
}

constexpr int64_t kLength = 42, kBatch = 8;

MaskedBatches masked(std::shared_ptr<const TokenDataset> data) {
  return MaskedBatches::create(std::move(data), pieces()->specials(), {kLength, kBatch, 3, true}).take();
}

TEST(MaskedBatches, HideFifteenPercentInThreeWays) {
  const TemporaryFolder folder;
  const auto data = corpus_in(folder);
  const MaskedBatches batches = masked(data);
  const SpecialTokens specials = pieces()->specials();
  EXPECT_EQ(masked_targets(kLength), 6);  // of 40
  std::vector<Token> inputs(kBatch * kLength), targets(inputs.size());
  int64_t chosen = 0, hidden = 0, stayed = 0;
  std::set<size_t> places;
  for (uint64_t step = 0; step < 200; ++step) {
    LOOM_ASSERT_OK(batches.read(step, {0, kBatch}, inputs, targets));
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (i % kLength == 0) {
        EXPECT_EQ(inputs[i], specials.begin);
      }
      if (i % kLength == kLength - 1) {
        EXPECT_EQ(inputs[i], specials.end);
      }
      if (targets[i] < 0) continue;
      ++chosen;
      places.insert(i % kLength);
      hidden += inputs[i] == specials.mask;
      stayed += inputs[i] == targets[i];
    }
    EXPECT_EQ(chosen, static_cast<int64_t>(step + 1) * kBatch * 6);
  }
  EXPECT_EQ(places.size(), 40u);
  const double all = static_cast<double>(chosen);
  EXPECT_NEAR(static_cast<double>(hidden) / all, 0.8, 0.02);
  EXPECT_NEAR(static_cast<double>(stayed) / all, 0.1, 0.02);
  EXPECT_NEAR(static_cast<double>(chosen - hidden - stayed) / all, 0.1, 0.02);
}

TEST(MaskedBatches, AnySplitAndAnyTimeSeeTheSame) {
  const TemporaryFolder folder;
  const MaskedBatches batches = masked(corpus_in(folder));
  std::vector<Token> inputs(kBatch * kLength), targets(inputs.size()), some(2 * kLength), wanted(some.size());
  LOOM_ASSERT_OK(batches.read(17, {0, kBatch}, inputs, targets));
  for (int64_t row = 0; row < kBatch; row += 2) {
    LOOM_ASSERT_OK(batches.read(17, {row, 2}, some, wanted));
    EXPECT_TRUE(std::equal(some.begin(), some.end(), inputs.begin() + row * kLength));
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), targets.begin() + row * kLength));
  }
  std::vector<Token> other(inputs.size());
  LOOM_ASSERT_OK(batches.read(18, {0, kBatch}, other, targets));
  EXPECT_NE(other, inputs);
}

/// A RoBERTa gives no position to padding, so that the tokens behind it had other positions.
TEST(MaskedBatches, PaddingIsNeverDrawn) {
  const TemporaryFolder folder;
  const WordPieceModel few{{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##a", "##b"}};
  const auto tokenizer = WordPieceTokenizer::make(few).take();
  put_file(folder / "text", [] {
    std::string text;
    for (int i = 0; i < 4000; ++i) text += "a ab aab\n";
    return text;
  }());
  LOOM_ASSERT_OK(tokenize_files({folder / "text"}, folder / "tokens", *tokenizer));
  const auto batches = MaskedBatches::create(TokenDataset::open(folder / "tokens", Split::train).take(),
                                             tokenizer->specials(), {kLength, kBatch, 3, true});
  LOOM_ASSERT_OK(batches);
  std::vector<Token> inputs(kBatch * kLength), targets(inputs.size());
  int64_t drawn = 0;
  for (uint64_t step = 0; step < 300; ++step) {
    LOOM_ASSERT_OK(batches->read(step, {0, kBatch}, inputs, targets));
    EXPECT_EQ(std::count(inputs.begin(), inputs.end(), 0), 0) << "step " << step;
    drawn += std::count(inputs.begin(), inputs.end(), 1);
  }
  EXPECT_GT(drawn, 50) << "others are";
}

TEST(MaskedBatches, NeedSpecialTokens) {
  const TemporaryFolder folder;
  const auto data = corpus_in(folder);
  EXPECT_TRUE(fails_with(MaskedBatches::create(data, {}, {kLength, kBatch}), Code::invalid_argument,
                         "has no tokens for beginning, end and mask"));
  EXPECT_TRUE(fails_with(MaskedBatches::create(data, pieces()->specials(), {2, kBatch}),
                         Code::invalid_argument, "must be at least 3"));
}

/// 40 texts of two kinds.
std::string labelled_lines() {
  std::string lines;
  for (int i = 0; i < 20; ++i) lines += fmt::format("weave\tthe weft number {}\nnumber\t{}\n", i, 1000 + i);
  return lines;
}

TEST(Examples, AreReadPaddedAndCut) {
  const TemporaryFolder folder;
  put_file(folder / "texts.tsv", labelled_lines());
  const auto tokenizer = pieces();
  const auto made = tokenize_examples({folder / "texts.tsv"}, folder / "data", *tokenizer, 0.25);
  LOOM_ASSERT_OK(made);
  EXPECT_EQ(made->sizes.train, 30u);
  EXPECT_EQ(made->sizes.validation, 10u);
  EXPECT_EQ(made->labels, (std::vector<std::string>{"number", "weave"}));
  EXPECT_TRUE(holds_examples(folder / "data"));
  EXPECT_FALSE(holds_examples(folder.path()));

  const auto data = ExampleDataset::open(folder / "data", Split::train);
  LOOM_ASSERT_OK(data);
  const SpecialTokens specials = tokenizer->specials();
  EXPECT_EQ((*data)->texts().padding(), specials.padding);
  EXPECT_EQ((*data)->texts().tokens(0).front(), specials.begin);
  EXPECT_EQ((*data)->texts().tokens(0).back(), specials.end);
  const auto batches = ExampleBatches::create(*data, {6, 5, 1, true});
  LOOM_ASSERT_OK(batches);
  std::map<int32_t, int> seen;
  std::vector<Token> inputs(30), targets(30);
  for (uint64_t step = 0; step < 6; ++step) {
    LOOM_ASSERT_OK(batches->read(step, {0, 5}, inputs, targets));
    for (size_t row = 0; row < 5; ++row) {
      ++seen[targets[row * 6]];
      for (size_t i = 1; i < 6; ++i) EXPECT_EQ(targets[row * 6 + i], -1);
      size_t length = 6;
      while (inputs[row * 6 + length - 1] == *specials.padding) --length;
      EXPECT_EQ(inputs[row * 6 + length - 1], *specials.end);
    }
  }
  EXPECT_EQ(seen[0] + seen[1], 30);           // an epoch: each once
  EXPECT_GT(std::min(seen[0], seen[1]), 10);  // and both kinds
}

TEST(Examples, PaddingOutsideTheVocabularyIsRefused) {
  const TemporaryFolder folder;
  put_file(folder / "texts.tsv", labelled_lines());
  LOOM_ASSERT_OK(tokenize_examples({folder / "texts.tsv"}, folder / "data", *pieces(), 0.25));
  format::Json json = *format::read_json(folder / "data/dataset.json");
  for (const int64_t padding : {int64_t{-5}, pieces()->vocabulary_size()}) {
    json["padding"] = padding;
    LOOM_ASSERT_OK(format::write_json(folder / "data/dataset.json", json));
    EXPECT_TRUE(fails_with(ExampleDataset::open(folder / "data", Split::train), Code::invalid_data,
                           fmt::format("is {}, must be in the vocabulary", padding)));
  }
}

TEST(Examples, JsonLinesAreTheSame) {
  const TemporaryFolder folder;
  put_file(folder / "a.jsonl",
           "{\"text\": \"the weft\", \"label\": \"weave\"}\n\n{\"text\": \"7\", \"label\": 1}\n");
  const auto examples = read_examples(folder / "a.jsonl");
  LOOM_ASSERT_OK(examples);
  ASSERT_EQ(examples->size(), 2u);
  EXPECT_EQ((*examples)[0].text, "the weft");
  EXPECT_EQ((*examples)[1].label, "1");
}

TEST(Examples, LabelsThatASignedNumberCannotHoldAreTheirOwn) {
  const TemporaryFolder folder;
  put_file(folder / "a.jsonl",
           "{\"text\": \"a\", \"label\": 18446744073709551615}\n{\"text\": \"b\", \"label\": -1}\n");
  const auto examples = read_examples(folder / "a.jsonl");
  LOOM_ASSERT_OK(examples);
  EXPECT_EQ((*examples)[0].label, "18446744073709551615");
  EXPECT_EQ((*examples)[1].label, "-1");
}

TEST(Examples, BadInputIsNamed) {
  const TemporaryFolder folder;
  const auto tokenizer = pieces();
  const auto made = [&](const char* name, const std::string& text, double validation = 0.5) {
    put_file(folder / name, text);
    return tokenize_examples({folder / name}, folder / "data", *tokenizer, validation);
  };
  EXPECT_TRUE(fails_with(made("a.tsv", "a\tb\nno tab\n"), Code::invalid_data, "line 2: it must be a label"));
  EXPECT_TRUE(fails_with(made("a.jsonl", "{\"text\": \"b\"}\n"), Code::invalid_data, "line 1"));
  EXPECT_TRUE(fails_with(made("a.tsv", "a\tb\na\tc\n"), Code::invalid_argument, "at least two"));
  LOOM_ASSERT_OK(made("a.tsv", labelled_lines(), 0));
  EXPECT_TRUE(fails_with(ExampleDataset::open(folder / "data", Split::validation), Code::not_found,
                         "no validation split"));
  LOOM_ASSERT_OK(made("a.tsv", labelled_lines()));
  const std::string path = folder / "data/train.examples";
  std::string bytes = get_file(path), damaged = bytes;
  damaged[damaged.size() - 4] ^= 1;  // another label
  put_file(path, damaged);
  EXPECT_TRUE(fails_with(ExampleDataset::open(folder / "data", Split::train), Code::invalid_data,
                         "train.examples is damaged"));
  put_file(path, bytes.substr(0, bytes.size() - 8));
  EXPECT_FALSE(ExampleDataset::open(folder / "data", Split::train).ok());
  std::filesystem::remove(path);
  EXPECT_TRUE(fails_with(ExampleDataset::open(folder / "data", Split::train), Code::invalid_data,
                         "a file of this dataset is gone"));
  EXPECT_TRUE(fails_with(ExampleDataset::open(folder.path(), Split::train), Code::not_found, "dataset.json"));
}

TEST(Examples, WhatIsRefusedLeavesTheDatasetThatIsThere) {
  const TemporaryFolder folder;
  put_file(folder / "texts.tsv", labelled_lines());
  const auto made = [&](double validation) {
    return tokenize_examples({folder / "texts.tsv"}, folder / "data", *pieces(), validation);
  };
  LOOM_ASSERT_OK(made(0.25));
  EXPECT_TRUE(fails_with(made(0.001), Code::invalid_argument, "must be at least one each"));
  for (const double validation : {-0.5, 1.0, 1e30, std::nan("")})
    EXPECT_TRUE(fails_with(made(validation), Code::invalid_argument, "must be in [0, 1)"));
  LOOM_ASSERT_OK(ExampleDataset::open(folder / "data", Split::train));
  LOOM_ASSERT_OK(ExampleDataset::open(folder / "data", Split::validation));
}

}  // namespace
}  // namespace loom::text
