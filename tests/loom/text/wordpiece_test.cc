// WordPiece: tokens are those of Hugging Face's library, for texts of every kind.
#include "text/wordpiece.h"

#include <gtest/gtest.h>

#include "format/json_file.h"
#include "support.h"

namespace loom::text {
namespace {

using format::Json;
using testing::fails_with;
using testing::fixture;
using testing::put_file;
using testing::TemporaryFolder;

std::shared_ptr<const WordPieceTokenizer> open_fixture() {
  auto opened = WordPieceTokenizer::from_tokenizer_json(fixture("wordpiece.json"));
  if (!opened.ok()) throw std::runtime_error(opened.status().message());
  return opened.take();
}

TEST(WordPiece, TheSameTokensAsTheReference) {
  const Json cases = format::read_json(fixture("wordpiece_cases.json")).take(),
             texts = format::read_json(fixture("cases.json")).take();
  const auto uncased = open_fixture();
  WordPieceModel model = uncased->model();
  model.lower_case = model.strip_accents = false;
  const auto cased = WordPieceTokenizer::make(model).take();
  const Json& tokens = cases.at("tokens");
  ASSERT_GT(tokens.size(), 50u);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string text = i + 1 == tokens.size() ? cases.at("last").get<std::string>()
                                                    : texts.at("cases")[i][0].get<std::string>();
    EXPECT_EQ(uncased->encode(text), tokens[i][0].get<std::vector<Token>>()) << Json(text).dump();
    EXPECT_EQ(cased->encode(text), tokens[i][1].get<std::vector<Token>>()) << Json(text).dump();
  }
}

TEST(WordPiece, IsSavedAndOpenedAgainFromEitherFile) {
  const auto tokenizer = open_fixture();
  EXPECT_TRUE(tokenizer->specials().mask.has_value());
  EXPECT_EQ(tokenizer->end_of_text(), tokenizer->specials().end);
  const TemporaryFolder folder;
  LOOM_ASSERT_OK(tokenizer->save(folder.path()));
  const auto again = open_tokenizer(folder.path());
  LOOM_ASSERT_OK(again);
  EXPECT_EQ((*again)->hash(), tokenizer->hash());
  std::filesystem::remove(folder / "tokenizer.json");
  const auto plain = open_tokenizer(folder.path());
  LOOM_ASSERT_OK(plain);
  EXPECT_EQ((*plain)->hash(), tokenizer->hash());
  EXPECT_EQ((*plain)->description(), tokenizer->description());
}

TEST(WordPiece, DecodesPiecesToWords) {
  const auto made =
      WordPieceTokenizer::make({{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "we", "##av", "##er", "a"}});
  LOOM_ASSERT_OK(made);
  std::vector<Token> tokens = {2};
  (*made)->encode("A Weaver zzz", tokens);
  tokens.push_back(3);
  EXPECT_EQ(tokens, (std::vector<Token>{2, 7, 4, 5, 6, 1, 3}));
  EXPECT_EQ(*(*made)->decode(tokens), "a weaver [UNK]");
  EXPECT_TRUE(fails_with((*made)->decode(std::vector<Token>{8}), Code::invalid_argument, "token 0 is 8"));
}

TEST(WordPiece, AWordThatIsTooLongTakesNoTimeSquared) {
  const auto tokenizer = WordPieceTokenizer::from_tokenizer_json(fixture("wordpiece.json"));
  LOOM_ASSERT_OK(tokenizer);
  const std::vector<Token> unknown = (*tokenizer)->encode(std::string(4 << 20, 'q'));
  EXPECT_EQ(unknown, (*tokenizer)->encode("[UNK]"));
}

TEST(WordPiece, BadFilesAreRefusedWithTheReason) {
  const TemporaryFolder folder;
  const auto written = [&](const char* text) {
    put_file(folder / "tokenizer.json", text);
    return WordPieceTokenizer::from_tokenizer_json(folder / "tokenizer.json");
  };
  EXPECT_TRUE(
      fails_with(written(R"({"model": {"type": "WordPiece"}})"), Code::unsupported, "BertNormalizer"));
  constexpr const char* kHead =
      R"({"normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": "BertPreTokenizer"}, )";
  EXPECT_TRUE(fails_with(
      written((std::string(kHead) + R"("model": {"type": "WordPiece", "vocab": {"a": 5}}})").c_str()),
      Code::invalid_data, "must have a number in [0, 1)"));
  EXPECT_TRUE(fails_with(
      written((std::string(kHead) + R"("model": {"type": "WordPiece", "vocab": {"a": 0}}})").c_str()),
      Code::invalid_data, "lacks its token for unknown words, [UNK]"));
  EXPECT_TRUE(
      fails_with(written((std::string(kHead) + R"("added_tokens": [{"id": 1, "content": "[UNK]"}], )" +
                          R"("model": {"type": "WordPiece", "vocab": {"a": 0}}})")
                             .c_str()),
                 Code::invalid_data, "lacks its token for unknown words, [UNK]"));
  EXPECT_TRUE(fails_with(
      written((std::string(kHead) + R"("model": {"type": "WordPiece", "vocab": {"a": 0}, "unk_token": 3}})")
                  .c_str()),
      Code::invalid_data, "wrong type"));
  put_file(folder / "vocab.txt", "[UNK]\na\na\n");
  EXPECT_TRUE(fails_with(WordPieceTokenizer::from_vocabulary(folder / "vocab.txt"), Code::invalid_data,
                         "\"a\" is in the vocabulary twice"));
}

TEST(WordPiece, OnlyWhatIsListedAsAddedIsFoundInsideOfWords) {
  const TemporaryFolder folder;
  const auto opened = [&](const char* added) {
    put_file(folder / "tokenizer.json",
             std::string(R"({"normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": )") +
                 R"("BertPreTokenizer"}, "added_tokens": [)" + added +
                 R"(], "model": {"type": "WordPiece", "vocab": {"[UNK]": 0, "[MASK]": 1, "a": 2}}})");
    return WordPieceTokenizer::from_tokenizer_json(folder / "tokenizer.json");
  };
  const auto listed = opened(R"({"content": "[MASK]"})"), none = opened("");
  LOOM_ASSERT_OK(listed);
  LOOM_ASSERT_OK(none);
  EXPECT_EQ((*listed)->encode("a[MASK]"), (std::vector<Token>{2, 1}));
  EXPECT_EQ((*none)->encode("a[MASK]"), (std::vector<Token>{2, 0, 0, 0}));
  EXPECT_NE((*listed)->hash(), (*none)->hash());
  EXPECT_TRUE(fails_with(opened(R"({"content": "[MASK]", "single_word": true})"), Code::unsupported,
                         "\"single_word\" of the added token \"[MASK]\" is true"));
  EXPECT_EQ((*opened(R"({"content": "[MASK]", "normalized": true})"))->encode("a[mask]"),
            (std::vector<Token>{2, 1}))
      << "it is looked for in lower case";
}

/// They were dropped, and the vocabulary was too small by them.
TEST(WordPiece, AddedTokensBehindTheVocabularyAreTakenIn) {
  const TemporaryFolder folder;
  const auto opened = [&](const char* added) {
    put_file(folder / "tokenizer.json",
             std::string(R"({"normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": )") +
                 R"("BertPreTokenizer"}, "added_tokens": [)" + added +
                 R"(], "model": {"type": "WordPiece", "vocab": {"[UNK]": 0, "a": 1}}})");
    return WordPieceTokenizer::from_tokenizer_json(folder / "tokenizer.json");
  };
  const auto tokenizer = opened(
      R"({"id": 0, "content": "[UNK]"}, {"id": 2, "content": "[MASK]"}, {"id": 3, "content": "[PAD]"})");
  LOOM_ASSERT_OK(tokenizer);
  EXPECT_EQ((*tokenizer)->vocabulary_size(), 4);
  EXPECT_EQ((*tokenizer)->encode("a[PAD] [MASK]"), (std::vector<Token>{1, 3, 2}));
  EXPECT_EQ((*tokenizer)->specials().mask, 2);
  EXPECT_EQ((*tokenizer)->specials().padding, 3);
  LOOM_ASSERT_OK((*tokenizer)->save(folder.path()));
  EXPECT_EQ((*WordPieceTokenizer::from_tokenizer_json(folder / "tokenizer.json"))->hash(),
            (*tokenizer)->hash());
  EXPECT_TRUE(
      fails_with(opened(R"({"id": 3, "content": "[MASK]"})"), Code::unsupported,
                 "\"[MASK]\" is not in the vocabulary and has the number 3, must be in it or have the "
                 "next one, 2"));
  EXPECT_TRUE(fails_with(opened(R"({"content": "[MASK]"})"), Code::unsupported, "has the number null"));
}

/// The hash knew BERT's own names only, and the other tokenizer's data was taken.
TEST(WordPiece, TheHashSaysWhetherAnUnknownTokenOfAnotherNameIsFoundInsideOfWords) {
  const TemporaryFolder folder;
  const auto opened = [&](const char* added) {
    put_file(folder / "tokenizer.json",
             std::string(R"({"normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": )") +
                 R"("BertPreTokenizer"}, "added_tokens": [)" + added +
                 R"(], "model": {"type": "WordPiece", "unk_token": "<unk>", "vocab": {"<unk>": 0, "a": 1, )" +
                 R"("unk": 2}}})");
    return WordPieceTokenizer::from_tokenizer_json(folder / "tokenizer.json");
  };
  const auto listed = opened(R"({"id": 0, "content": "<unk>"})"), none = opened("");
  LOOM_ASSERT_OK(listed);
  LOOM_ASSERT_OK(none);
  EXPECT_EQ((*listed)->encode("a<unk>"), (std::vector<Token>{1, 0}));
  EXPECT_EQ((*none)->encode("a<unk>"), (std::vector<Token>{1, 0, 2, 0}));
  EXPECT_NE((*listed)->hash(), (*none)->hash());
}

/// Such a vocabulary cannot be written into a tokenizer.json, which was noticed when the old dataset was
/// gone.
TEST(WordPiece, AVocabularyMustBeUtf8) {
  const TemporaryFolder folder;
  put_file(folder / "vocab.txt", "[UNK]\nna\xefve\n");
  EXPECT_TRUE(fails_with(WordPieceTokenizer::from_vocabulary(folder / "vocab.txt"), Code::invalid_data,
                         "vocab.txt: line 2 is not UTF-8"));
}

/// Beside a vocab.txt this file says how texts are cut.
TEST(WordPiece, SettingsBesideAVocabularyAreRead) {
  const TemporaryFolder folder;
  put_file(folder / "vocab.txt", "[PAD]\n<none>\n[UNK]\n\u7ec7\n\u7ec7\u7ec7\n##\u7ec7\n");
  const auto opened = [&](const char* settings) {
    put_file(folder / "tokenizer_config.json", settings);
    return WordPieceTokenizer::from_vocabulary(folder / "vocab.txt");
  };
  const auto tokens = [&](const char* settings) {
    const auto tokenizer = opened(settings);
    return tokenizer.ok() ? (*tokenizer)->encode("\u7ec7\u7ec7 x") : std::vector<Token>();
  };
  EXPECT_EQ(tokens("{}"), (std::vector<Token>{3, 3, 2}));
  EXPECT_EQ(tokens(R"({"tokenize_chinese_chars": false})"), (std::vector<Token>{4, 2}));
  EXPECT_EQ(tokens(R"({"unk_token": "<none>"})"), (std::vector<Token>{3, 3, 1}));
  EXPECT_EQ(tokens(R"({"unk_token": {"content": "<none>", "lstrip": false}})"),
            (std::vector<Token>{3, 3, 1}));
  EXPECT_TRUE(fails_with(opened(R"({"do_basic_tokenize": false})"), Code::unsupported, "do_basic_tokenize"));
  EXPECT_TRUE(fails_with(opened(R"({"unk_token": 3})"), Code::invalid_data, "unk_token"));

  WordPieceModel model = open_fixture()->model();
  model.chinese_characters = false;
  const auto made = WordPieceTokenizer::make(model).take();
  LOOM_ASSERT_OK(made->save(folder.path()));
  EXPECT_EQ((*WordPieceTokenizer::from_vocabulary(folder / "vocab.txt"))->hash(), made->hash());
}

/// The only character whose lower case is two.
TEST(WordPiece, ACapitalIWithADotKeepsItsDotWhereAccentsStay) {
  WordPieceModel model{{"[UNK]", "i", "i\u0307"}};
  EXPECT_EQ((*WordPieceTokenizer::make(model))->encode("\u0130"), std::vector<Token>{1});
  model.strip_accents = false;
  EXPECT_EQ((*WordPieceTokenizer::make(model))->encode("\u0130"), std::vector<Token>{2});
}

}  // namespace
}  // namespace loom::text
