// Text files become a dataset: every byte once, held-out text apart, the same for any number of threads.
#include "text/tokenize_files.h"

#include <gtest/gtest.h>

#include "support.h"
#include "text/bpe.h"
#include "text/byte_tokenizer.h"
#include "text/dataset.h"

namespace loom::text {
namespace {

using testing::fails_with;
using testing::fixture;
using testing::get_file;
using testing::put_file;
using testing::TemporaryFolder;

std::vector<Token> all_tokens(const TokenDataset& dataset) {
  std::vector<Token> tokens(dataset.tokens());
  const Status read = dataset.read(0, tokens);
  EXPECT_TRUE(read.ok()) << read.message();
  return tokens;
}

class TokenizeFiles : public ::testing::Test {
 protected:
  std::string text_file(const std::string& name, std::string_view content) {
    put_file(texts_ / name, content);
    return texts_ / name;
  }
  std::string text_of(Split split, const Tokenizer& tokenizer) {
    const auto dataset = TokenDataset::open(tokens_, split);
    EXPECT_TRUE(dataset.ok()) << dataset.status().message();
    return *tokenizer.decode(all_tokens(**dataset));
  }
  const TemporaryFolder texts_, work_;
  const std::string tokens_ = work_ / "tokens";
  const ByteTokenizer bytes_;
};

TEST_F(TokenizeFiles, EveryByteIsInOneOfTheSplits) {
  const std::string first = text_file("a", "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\n");
  const std::string second = text_file("b", "eins\nzwei\ndrei\nvier");
  TokenizeOptions options;
  options.validation_fraction = 0.3;
  const Result<TokenizeSummary> summary = tokenize_files({first, second}, tokens_, bytes_, options);
  LOOM_ASSERT_OK(summary);
  EXPECT_EQ(text_of(Split::train, bytes_), "one\ntwo\nthree\nfour\nfive\nsix\neins\nzwei\ndrei\n");
  EXPECT_EQ(text_of(Split::validation, bytes_), "seven\neight\nvier");
  EXPECT_EQ(summary->train_bytes, 43u);
  EXPECT_EQ(summary->train_tokens, 45u);  // an end of text for each document
  EXPECT_EQ(summary->validation_tokens, summary->validation_bytes + 2);
  const auto dataset = TokenDataset::open(tokens_, Split::train);
  EXPECT_EQ((*dataset)->text_bytes(), 43u);
  EXPECT_EQ((*dataset)->tokenizer_hash(), bytes_.hash());
  LOOM_ASSERT_OK((*dataset)->verify());
  EXPECT_EQ((*open_tokenizer(tokens_))->hash(), bytes_.hash());  // it is saved beside them
}

/// As texts come: lines of DOS, a blank line between paragraphs, WikiText, indented.
TEST_F(TokenizeFiles, TextsOfAnyKindOfLinesHaveAValidationSplit) {
  for (const char* line : {"word word\r\n", "word word\n\n", " word word \n", "\n    word word"}) {
    std::string text;
    for (int i = 0; i < 200; ++i) text += line;
    const Result<TokenizeSummary> summary = tokenize_files({text_file("a", text)}, tokens_, bytes_);
    LOOM_ASSERT_OK(summary);
    EXPECT_GT(summary->validation_bytes, text.size() / 20) << line;
    EXPECT_EQ(summary->train_bytes + summary->validation_bytes, text.size());
  }
}

TEST_F(TokenizeFiles, TheSameForAnyThreadsAndParts) {
  const auto tokenizer = BpeTokenizer::from_tokenizer_json(fixture("gpt2.json"));
  LOOM_ASSERT_OK(tokenizer);
  const std::string corpus = get_file(fixture("corpus.txt"));
  const std::vector<std::string> files = {text_file("a", corpus),
                                          text_file("b", corpus.substr(0, 5001) + "\n\n")};
  std::vector<Token> expected;
  for (const auto& [threads, part_bytes] : {std::pair(1, 1u << 20), {3, 1u << 20}, {4, 1000u}, {2, 17u}}) {
    TokenizeOptions options;
    options.threads = threads;
    options.part_bytes = part_bytes;
    options.tokens_a_file = 3000;
    uint64_t last = 0, most = 0;
    options.progress = [&](uint64_t done, uint64_t all) { last = done, most = all; };
    LOOM_ASSERT_OK(tokenize_files(files, tokens_, **tokenizer, options));
    EXPECT_EQ(last, corpus.size() + 5003);
    EXPECT_EQ(most, last);
    const auto dataset = TokenDataset::open(tokens_, Split::train);
    LOOM_ASSERT_OK(dataset);
    const std::vector<Token> tokens = all_tokens(**dataset);
    EXPECT_TRUE(std::filesystem::exists(tokens_ + "/train-00001.tokens"));
    if (expected.empty()) expected = tokens;
    EXPECT_EQ(tokens, expected);
  }
  const std::string train = *(*tokenizer)->decode(expected);
  EXPECT_EQ(train.substr(0, 30'000), corpus.substr(0, 30'000));
  EXPECT_EQ((*tokenizer)->encode(train), expected);
}

/// Neither do parts get a space in front, nor are words cut that reach over lines.
TEST_F(TokenizeFiles, PartsHaveTheTokensOfTheWholeForLlamasKinds) {
  const std::string corpus = get_file(fixture("corpus.txt"));
  for (const char* name : {"llama3.json", "qwen2.json", "mistral.json"}) {
    const auto tokenizer = open_tokenizer(fixture(name));
    LOOM_ASSERT_OK(tokenizer);
    ASSERT_TRUE((*tokenizer)->may_be_cut()) << name;
    TokenizeOptions options;
    options.validation_fraction = 0;
    options.part_bytes = 100;
    LOOM_ASSERT_OK(tokenize_files({text_file("a", corpus)}, tokens_, **tokenizer, options));
    std::vector<Token> expected = (*tokenizer)->encode_document(corpus);
    if ((*tokenizer)->end_of_text()) expected.push_back(*(*tokenizer)->end_of_text());
    EXPECT_EQ(all_tokens(**TokenDataset::open(tokens_, Split::train)), expected) << name;
  }
}

/// A dataset of a Llama used to have no token in front of its documents.
TEST_F(TokenizeFiles, DocumentsBeginAsTheTemplateSays) {
  const auto tokenizer = open_tokenizer(fixture("llama2.json"));
  LOOM_ASSERT_OK(tokenizer);
  TokenizeOptions options;
  options.validation_fraction = 0.5;
  LOOM_ASSERT_OK(tokenize_files({text_file("a", "one\ntwo\n"), text_file("b", "<s>one\ntwo\n")}, tokens_,
                                **tokenizer, options));
  std::vector<Token> document = (*tokenizer)->encode("one\n");
  document.insert(document.begin(), 1);
  document.push_back(2);
  std::vector<Token> both = document;
  both.insert(both.end(), document.begin(), document.end());
  EXPECT_EQ(all_tokens(**TokenDataset::open(tokens_, Split::train)), both)
      << "what is spelled out is not added";
  EXPECT_EQ(all_tokens(**TokenDataset::open(tokens_, Split::validation)).front(),
            (*tokenizer)->encode("two")[0])
      << "a validation split begins inside a document";

  const auto pieces = open_tokenizer(fixture("wordpiece.json"));
  LOOM_ASSERT_OK(pieces);
  EXPECT_EQ((*pieces)->encode_document("weft"), (*pieces)->encode("weft"))
      << "a template with both ends is BERT's";
}

// With a space in front of every text, or tokens that take white space, a text cannot be cut; it is then one
// part.
TEST_F(TokenizeFiles, TokenizersThatLookOverLinesGetWholeTexts) {
  const auto tokenizer = BpeTokenizer::from_tokenizer_json(fixture("options.json"));
  LOOM_ASSERT_OK(tokenizer);
  EXPECT_FALSE((*tokenizer)->may_be_cut());
  const std::string corpus = get_file(fixture("corpus.txt"));
  TokenizeOptions options;
  options.validation_fraction = 0;
  options.part_bytes = 100;
  LOOM_ASSERT_OK(tokenize_files({text_file("a", corpus)}, tokens_, **tokenizer, options));
  std::vector<Token> expected = (*tokenizer)->encode(corpus);
  expected.push_back(*(*tokenizer)->end_of_text());
  EXPECT_EQ(all_tokens(**TokenDataset::open(tokens_, Split::train)), expected);
}

/// As if the split had never been: nobody would miss its evaluation.
TEST_F(TokenizeFiles, AFileThatIsListedAndGoneIsNoMissingSplit) {
  LOOM_ASSERT_OK(tokenize_files({text_file("a", get_file(fixture("corpus.txt")))}, tokens_, ByteTokenizer()));
  LOOM_ASSERT_OK(TokenDataset::open(tokens_, Split::validation));
  std::filesystem::remove(tokens_ + "/validation-00000.tokens");
  EXPECT_TRUE(fails_with(TokenDataset::open(tokens_, Split::validation), Code::invalid_data,
                         "validation-00000.tokens"));
  EXPECT_TRUE(fails_with(TokenDataset::open(tokens_ + "/none", Split::train), Code::not_found, "none"));
}

TEST_F(TokenizeFiles, WhatIsRefusedLeavesTheDatasetThatIsThere) {
  const std::string good = text_file("good", "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n");
  LOOM_ASSERT_OK(tokenize_files({good}, tokens_, ByteTokenizer()));
  TokenizeOptions options;
  options.validation_fraction = 0.01;
  EXPECT_TRUE(fails_with(tokenize_files({good}, tokens_, ByteTokenizer(), options), Code::invalid_argument,
                         "nothing is left for validation; choose another fraction (--validation"));
  LOOM_ASSERT_OK(TokenDataset::open(tokens_, Split::train));
  LOOM_ASSERT_OK(TokenDataset::open(tokens_, Split::validation));
}

TEST_F(TokenizeFiles, WhatIsNoTextIsRefused) {
  const std::string good = text_file("good", "one\ntwo\nthree\nfour\n");
  const std::string empty = text_file("empty", "");
  EXPECT_TRUE(
      fails_with(tokenize_files({good, empty}, tokens_, bytes_), Code::invalid_data, "empty: it is empty"));
  const std::string binary = text_file("binary", std::string("abc\0def", 7));
  EXPECT_TRUE(
      fails_with(tokenize_files({binary}, tokens_, bytes_), Code::invalid_data, "binary: byte 3 is 0x00"));
  const std::string latin = text_file("latin",
                                      "Gr\xf6\xdf"
                                      "e");
  EXPECT_TRUE(fails_with(tokenize_files({latin}, tokens_, bytes_), Code::invalid_data,
                         "byte 2 is 0xf6, which is no UTF-8"));
  EXPECT_TRUE(fails_with(tokenize_files({texts_ / "gone"}, tokens_, bytes_), Code::not_found, "gone"));
  EXPECT_TRUE(
      fails_with(tokenize_files({texts_.path()}, tokens_, bytes_), Code::invalid_argument, "is a folder"));
  EXPECT_FALSE(std::filesystem::exists(tokens_));
}

TEST_F(TokenizeFiles, WhatAKilledOneHasLeftGoes) {
  std::filesystem::create_directories(tokens_);
  put_file(tokens_ + "/train-00000.tokens.4711-1.tmp", "x");
  put_file(tokens_ + "/train.notes.tmp", "of somebody else");
  TokenizeOptions options;
  options.validation_fraction = 0;
  LOOM_ASSERT_OK(tokenize_files({text_file("good", "one\ntwo\n")}, tokens_, bytes_, options));
  EXPECT_FALSE(is_file(tokens_ + "/train-00000.tokens.4711-1.tmp"));
  EXPECT_TRUE(is_file(tokens_ + "/train.notes.tmp"));
}

TEST_F(TokenizeFiles, MistakesAreTold) {
  const std::string good = text_file("good", "one\ntwo\nthree\nfour\n");
  TokenizeOptions options;
  EXPECT_TRUE(
      fails_with(tokenize_files({}, tokens_, bytes_, options), Code::invalid_argument, "no text files"));
  options.validation_fraction = 1;
  EXPECT_TRUE(fails_with(tokenize_files({good}, tokens_, bytes_, options), Code::invalid_argument,
                         "must be in [0, 1)"));
  options.validation_fraction = 0.5;
  options.threads = -1;
  EXPECT_TRUE(
      fails_with(tokenize_files({good}, tokens_, bytes_, options), Code::invalid_argument, "-1 threads"));
  options.threads = 0;
  const std::string line = text_file("line", "a single line");
  EXPECT_TRUE(fails_with(tokenize_files({line}, tokens_, bytes_, options), Code::invalid_argument,
                         "no line begins in the last 50 %"));
  const std::string ended = text_file("ended", "a single line\n");  // whose end is there
  EXPECT_TRUE(fails_with(tokenize_files({ended}, tokens_, bytes_, options), Code::invalid_argument,
                         "no line begins in the last 50 %"));
  put_file(work_ / "file", "x");
  EXPECT_TRUE(fails_with(tokenize_files({good}, work_ / "file", bytes_, options), Code::invalid_argument,
                         "must be a folder"));
}

TEST_F(TokenizeFiles, ASecondRunReplacesTheFirstWhole) {
  TokenizeOptions options;
  options.tokens_a_file = 4;
  options.validation_fraction = 0;
  LOOM_ASSERT_OK(tokenize_files({text_file("a", "one\ntwo\nthree\n")}, tokens_, bytes_, options));
  LOOM_ASSERT_OK(tokenize_files({text_file("b", "uno\n")}, tokens_, bytes_, options));
  EXPECT_EQ(text_of(Split::train, bytes_), "uno\n");
  EXPECT_FALSE(std::filesystem::exists(tokens_ + "/train-00002.tokens"));
  EXPECT_TRUE(fails_with(TokenDataset::open(tokens_, Split::validation), Code::not_found,
                         "no tokens for validation"));
}

TEST_F(TokenizeFiles, AFullDiskLeavesNoDataset) {
  std::string line(200'000, 'x');
  line += "\nx\n";
  const std::string large = text_file("a", line);
  TokenizeOptions options;
  options.validation_fraction = 0;
  EXPECT_TRUE(testing::with_file_limit(100'000, [&] {
    return tokenize_files({large}, tokens_, bytes_, options).status().code() == Code::disk_full;
  }));
  EXPECT_TRUE(std::filesystem::is_empty(tokens_));
}

TEST_F(TokenizeFiles, DatasetsAreChecked) {
  TokenizeOptions options;
  options.validation_fraction = 0;
  options.tokens_a_file = 8;
  LOOM_ASSERT_OK(tokenize_files({text_file("a", "one\ntwo\nthree\n")}, tokens_, bytes_, options));
  const auto dataset = TokenDataset::open(tokens_, Split::train);
  LOOM_ASSERT_OK(dataset);
  std::vector<Token> tokens(4);
  EXPECT_TRUE(fails_with((*dataset)->read(12, tokens), Code::invalid_argument, "tokens [12, 16) of"));
  LOOM_ASSERT_OK((*dataset)->read(6, tokens));
  EXPECT_EQ(*bytes_.decode(tokens), "o\nth");

  const std::string json = get_file(tokens_ + "/dataset.json");
  put_file(tokens_ + "/dataset.json",
           R"({"train": {"files": ["train-00000.tokens"], "tokens": 9, "text_bytes": 1}})");
  EXPECT_TRUE(fails_with(TokenDataset::open(tokens_, Split::train), Code::invalid_data,
                         "have 8 tokens for train, must have 9"));
  put_file(tokens_ + "/dataset.json", "{}");
  EXPECT_TRUE(fails_with(TokenDataset::open(tokens_, Split::train), Code::invalid_data, "\"train\" of"));
  put_file(tokens_ + "/dataset.json", json);
  Result<TokenFileWriter> other = TokenFileWriter::create(tokens_ + "/train-00001.tokens", 300, 5);
  LOOM_ASSERT_OK(other->finish());
  EXPECT_TRUE(
      fails_with(TokenDataset::open(tokens_, Split::train), Code::invalid_data, "different tokenizers"));
  EXPECT_TRUE(fails_with(TokenDataset::open(texts_.path(), Split::train), Code::not_found, "dataset.json"));
}

}  // namespace
}  // namespace loom::text
