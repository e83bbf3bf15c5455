// What lies beside a vocabulary or a tokenizer.json and changes the tokens. The files are what versions 4 and
// 5 of `transformers` write.
#include "text/files_beside.h"

#include <gtest/gtest.h>

#include "support.h"
#include "text/bpe.h"
#include "text/byte_alphabet.h"
#include "text/examples.h"
#include "text/replace_tokenizer.h"
#include "text/same_tokenizer.h"
#include "text/wordpiece.h"

namespace loom::text {
namespace {

using format::Json;
using testing::fails_with;
using testing::fixture;
using testing::put_file;
using testing::TemporaryFolder;
using Tokens = std::vector<Token>;

class FilesBesideTest : public ::testing::Test {
 protected:
  void put(const char* name, const Json& json) { ASSERT_TRUE(format::write_json(folder_ / name, json).ok()); }
  /// The bytes, from 0 on, and then these tokens, as vocab.json and merges.txt.
  void put_bpe(const std::vector<std::string>& tokens, const std::string& merges = "a b\n") {
    Json vocabulary;
    for (int byte = 0; byte < 256; ++byte) vocabulary[spelling_of(static_cast<unsigned char>(byte))] = byte;
    vocabulary["ab"] = 256;
    for (const std::string& token : tokens) vocabulary[token] = vocabulary.size();
    put("vocab.json", vocabulary);
    put_file(folder_ / "merges.txt", "#version: 0.2\n" + merges);
  }
  /// The fixture's tokenizer.json, with changes.
  void put_json(const char* name, const std::vector<std::pair<const char*, Json>>& changes) {
    Json json = *format::read_json(fixture(name));
    for (const auto& [pointer, value] : changes) json[Json::json_pointer(pointer)] = value;
    put("tokenizer.json", json);
  }
  Result<std::shared_ptr<const Tokenizer>> opened() { return open_tokenizer(folder_.path()); }
  std::shared_ptr<const Tokenizer> tokenizer() {
    Result<std::shared_ptr<const Tokenizer>> made = opened();
    if (!made.ok()) throw std::runtime_error(made.status().message());
    return made.take();
  }
  TemporaryFolder folder_;
};

/// They were not seen, and the vocabulary was too small for the model.
TEST_F(FilesBesideTest, AddedTokensBesideAVocabularyCount) {
  put_bpe({"<|endoftext|>"});
  put("added_tokens.json", {{"<|user|>", 258}, {"[PAD]", 259}});
  put("special_tokens_map.json", {{"bos_token", "<|endoftext|>"},
                                  {"eos_token", "<|endoftext|>"},
                                  {"pad_token", "[PAD]"},
                                  {"additional_special_tokens", {"<|user|>"}}});
  put("tokenizer_config.json", {{"tokenizer_class", "GPT2Tokenizer"}, {"add_prefix_space", false}});
  EXPECT_EQ(tokenizer()->vocabulary_size(), 260);
  EXPECT_EQ(tokenizer()->encode("ab<|user|>ab"), (Tokens{256, 258, 256}));
  EXPECT_EQ(tokenizer()->specials().padding, 259);
  EXPECT_EQ(tokenizer()->end_of_text(), 257);
  LOOM_ASSERT_OK(tokenizer()->save(folder_ / "."));
  EXPECT_EQ(tokenizer()->encode("<|user|>"), (Tokens{258})) << "of its own tokenizer.json";
  EXPECT_EQ(tokenizer()->specials().padding, 259);
}

TEST_F(FilesBesideTest, AddedTokensMayHaveSettings) {
  put_bpe({"<|endoftext|>"});
  put("tokenizer_config.json", {{"added_tokens_decoder",
                                 {{"258", {{"content", "<m>"}, {"lstrip", true}, {"special", true}}},
                                  {"259", {{"content", "word"}, {"special", false}}}}},
                                {"tokenizer_class", "GPT2TokenizerFast"}});
  EXPECT_EQ(tokenizer()->encode("ab  <m>words"), (Tokens{256, 258, 259, 's'}));
}

/// Older versions of `tokenizers` do not find a token that is no special one in the vocabulary.
TEST_F(FilesBesideTest, AnAddedTokenThatIsNotSpecialIsSavedBehindTheVocabulary) {
  put_bpe({"<|endoftext|>"});
  put("added_tokens.json", {{"word", 258}, {"<|user|>", 259}});
  put("special_tokens_map.json", {{"additional_special_tokens", {"<|user|>"}}});
  const auto before = tokenizer();
  LOOM_ASSERT_OK(before->save(folder_.path()));
  const Json json = *format::read_json(folder_ / "tokenizer.json");
  EXPECT_EQ(json["model"]["vocab"].size(), 258u);
  EXPECT_EQ(json["added_tokens"].size(), 3u);
  EXPECT_EQ(tokenizer()->hash(), before->hash());
}

/// The list of special_tokens_map.json is the newer one.
TEST_F(FilesBesideTest, MoreSpecialTokensAreThoseOfTheMap) {
  put_json("gpt2.json", {});
  const int64_t size = tokenizer()->vocabulary_size();
  put("tokenizer_config.json", {{"additional_special_tokens", {"<|x|>"}}});
  EXPECT_EQ(tokenizer()->vocabulary_size(), size + 1);
  put("special_tokens_map.json", {{"additional_special_tokens", {"<|y|>"}}});
  EXPECT_EQ(tokenizer()->vocabulary_size(), size + 1);
  EXPECT_EQ(tokenizer()->encode("<|y|>"), (Tokens{static_cast<Token>(size)}));
}

/// The second list, which newer versions write empty, took the tokens of the first away.
TEST_F(FilesBesideTest, BothListsOfMoreSpecialTokensOfAFileCount) {
  put_json("gpt2.json", {});
  const auto size = static_cast<Token>(tokenizer()->vocabulary_size());
  put("tokenizer_config.json",
      {{"additional_special_tokens", {"<|x|>"}}, {"extra_special_tokens", Json::object()}});
  EXPECT_EQ(tokenizer()->encode("<|x|>"), (Tokens{size}));
  put("tokenizer_config.json",
      {{"additional_special_tokens", {"<|x|>"}}, {"extra_special_tokens", {{"y_token", "<|y|>"}}}});
  EXPECT_EQ(tokenizer()->encode("<|x|><|y|>"), (Tokens{size, size + 1}));
}

TEST_F(FilesBesideTest, ATokenWithAnotherNumberThanItHasIsRefused) {
  put_bpe({"<|endoftext|>"});
  put("added_tokens.json", {{"<|user|>", 300}});
  EXPECT_TRUE(fails_with(opened(), Code::invalid_data,
                         "added_tokens.json has \"<|user|>\" as token 300, must be 258"));
  put("added_tokens.json", {{"ab", 258}});
  EXPECT_TRUE(fails_with(opened(), Code::invalid_data, "the number that it has in the vocabulary"));
  put("added_tokens.json", {{"x y", 258}});
  put("tokenizer_config.json", {{"added_tokens_decoder", {{"258", {{"content", "other"}}}}}});
  EXPECT_TRUE(fails_with(opened(), Code::invalid_argument, "must be the same in both"));
}

TEST_F(FilesBesideTest, TwoFilesThatNameOtherTokensForOneRoleAreRefused) {
  put_bpe({"<|endoftext|>", "<pad>"});
  put("tokenizer_config.json", {{"pad_token", "<pad>"}});
  put("special_tokens_map.json", {{"pad_token", {{"content", "<|endoftext|>"}}}});
  EXPECT_TRUE(fails_with(opened(), Code::invalid_argument,
                         "special_tokens_map.json is \"<|endoftext|>\": must be the same token"));
}

TEST_F(FilesBesideTest, ASpaceInFrontAndEndsAreReadBesideAVocabulary) {
  put_bpe({"<|endoftext|>"});
  put("tokenizer_config.json", {{"add_prefix_space", true}, {"add_bos_token", true}});
  EXPECT_EQ(tokenizer()->encode("ab"), (Tokens{' ', 256}));
  EXPECT_EQ(example_tokens("ab", *tokenizer()), (Tokens{257, ' ', 256}));
}

TEST_F(FilesBesideTest, AVocabularyOfAnotherClassIsRefused) {
  put_bpe({});
  put("tokenizer_config.json", {{"tokenizer_class", "CodeGenTokenizer"}});
  EXPECT_TRUE(fails_with(opened(), Code::unsupported, "the tokenizer is a CodeGenTokenizer"));
  put_file(folder_ / "vocab.txt", "[UNK]\na\n");
  std::filesystem::remove(folder_ / "vocab.json");
  put("tokenizer_config.json", {{"tokenizer_class", "BertJapaneseTokenizer"}});
  EXPECT_TRUE(fails_with(opened(), Code::unsupported, "the tokenizer is a BertJapaneseTokenizer"));
}

/// A GPT-2 whose files name a class and a separator, as a classifier's may, got them around its texts.
TEST_F(FilesBesideTest, AGpt2PutsOnlyWhatItIsAskedForAroundATextWhateverItsRoles) {
  put_bpe({"<|endoftext|>", "[CLS]", "[SEP]"});
  put("special_tokens_map.json", {{"cls_token", "[CLS]"}, {"sep_token", "[SEP]"}});
  put("tokenizer_config.json", {{"tokenizer_class", "GPT2Tokenizer"}});
  EXPECT_EQ(example_tokens("ab", *tokenizer()), (Tokens{256}));
  put("tokenizer_config.json", {{"tokenizer_class", "GPT2Tokenizer"}, {"add_bos_token", true}});
  EXPECT_EQ(example_tokens("ab", *tokenizer()), (Tokens{257, 256}));
}

/// It was read as GPT-2's, without composing characters and without padding.
TEST_F(FilesBesideTest, AVocabularyOfAGptNeoXIsNormalizedAndHasItsPadding) {
  put_bpe({"<|endoftext|>", "<|padding|>"});
  put("tokenizer_config.json", {{"tokenizer_class", "GPTNeoXTokenizer"}});
  EXPECT_EQ(tokenizer()->specials().padding, 258);
  EXPECT_EQ(tokenizer()->encode("e\u0301"), tokenizer()->encode("\u00e9"));
  put("tokenizer_config.json", {{"tokenizer_class", "GPT2Tokenizer"}});
  EXPECT_EQ(tokenizer()->specials().padding, std::nullopt);
  EXPECT_NE(tokenizer()->encode("e\u0301"), tokenizer()->encode("\u00e9"));
}

/// Each digit is a word.
TEST_F(FilesBesideTest, AVocabularyOfAQwen2IsCutByItsWords) {
  put_bpe({"<|endoftext|>", "12"}, "1 2\n");
  EXPECT_EQ(tokenizer()->encode("12"), Tokens{258});
  put("config.json", {{"model_type", "qwen2"}});
  EXPECT_EQ(tokenizer()->encode("12"), (Tokens{'1', '2'}));
  EXPECT_EQ(tokenizer()->encode("e\u0301"), tokenizer()->encode("\u00e9"));
  put("config.json", Json::object());
  put("tokenizer_config.json", {{"tokenizer_class", "Qwen2TokenizerFast"}});
  EXPECT_EQ(tokenizer()->encode("12"), (Tokens{'1', '2'}));
  EXPECT_EQ(tokenizer()->end_of_text(), 257);
}

TEST_F(FilesBesideTest, AVocabularyOfALlamaDoesNotSayHowItCutsTexts) {
  put_bpe({"<s>"});
  for (const char* family : {"llama", "mistral"}) {
    put("config.json", {{"model_type", family}});
    EXPECT_TRUE(fails_with(opened(), Code::unsupported, "the tokenizer is a LlamaTokenizer")) << family;
  }
}

TEST_F(FilesBesideTest, ATokenizerJsonOfLlama3HasTheRolesOfTheFileBesideIt) {
  put_json("llama3.json", {});
  for (const char* name : {"PreTrainedTokenizerFast", "TokenizersBackend", "LlamaTokenizerFast"}) {
    put("tokenizer_config.json",
        {{"tokenizer_class", name}, {"bos_token", "<|begin_of_text|>"}, {"eos_token", "<|end_of_text|>"}});
    EXPECT_EQ(tokenizer()->begin_of_text(), tokenizer()->encode("<|begin_of_text|>")[0]);
    EXPECT_EQ(tokenizer()->end_of_text(), tokenizer()->encode("<|end_of_text|>")[0]);
    EXPECT_EQ(tokenizer()->sequence_template().before, Tokens{*tokenizer()->begin_of_text()});
  }
}

/// GPT-2's words would be others than BLOOM's.
TEST_F(FilesBesideTest, AVocabularyOfABloomDoesNotSayHowItCutsTexts) {
  put_bpe({"<s>"});
  put("config.json", {{"model_type", "bloom"}});
  EXPECT_TRUE(fails_with(opened(), Code::unsupported, "the tokenizer is a BloomTokenizer"));
}

/// The beginning of a text was "[unused1]", which BERT's class does not put there.
TEST_F(FilesBesideTest, ABertBeginsATextWithItsClassWhateverBeginsASentence) {
  put_file(folder_ / "vocab.txt", "[UNK]\n[CLS]\n[SEP]\n[unused1]\na\n");
  put("tokenizer_config.json", {{"bos_token", "[unused1]"}, {"tokenizer_class", "BertTokenizer"}});
  EXPECT_EQ(tokenizer()->specials().begin, 1);
  EXPECT_EQ(example_tokens("a", *tokenizer()), (Tokens{1, 4, 2}));
}

/// A text cut at the line feed within it had other tokens, by the size of its parts.
TEST_F(FilesBesideTest, AWordPieceWithATokenOfTwoWordsIsNotCutWithinTexts) {
  put_file(folder_ / "vocab.txt", "[UNK]\n[CLS]\n[SEP]\nnew\nyork\n");
  EXPECT_TRUE(tokenizer()->may_be_cut());
  for (const char* name : {"New York", "New\u3000York"}) {
    put("tokenizer_config.json",
        {{"added_tokens_decoder", {{"5", {{"content", name}, {"normalized", true}, {"special", false}}}}}});
    EXPECT_EQ(tokenizer()->encode("new\nyork"), (Tokens{5}));
    EXPECT_FALSE(tokenizer()->may_be_cut());
  }
}

/// Only "<|endoftext|>" was looked for, and a RoBERTa's own tokens were spelled out as text.
TEST_F(FilesBesideTest, AModelMayHaveATokenizerOfAnotherFamily) {
  put("config.json", {{"model_type", "bert"}});
  put_bpe({"<|endoftext|>"});
  EXPECT_EQ(tokenizer()->end_of_text(), 257);
  put("config.json", {{"model_type", "gpt2"}});
  put_file(folder_ / "vocab.txt", "[UNK]\na\n");
  std::filesystem::remove(folder_ / "vocab.json");
  EXPECT_EQ(tokenizer()->vocabulary_size(), 2);
}

TEST_F(FilesBesideTest, AVocabularyOfARobertaHasItsTokens) {
  put_bpe({"<s>", "<pad>", "</s>", "<unk>", "<mask>"});
  for (const bool model : {false, true}) {
    if (model) put("config.json", {{"model_type", "roberta"}});
    EXPECT_EQ(tokenizer()->specials().mask, 261);
    EXPECT_EQ(tokenizer()->encode("ab <mask>"), (Tokens{256, 261})) << "it takes the space before it";
    EXPECT_EQ(example_tokens("ab", *tokenizer()), (Tokens{257, 256, 259}));
  }
}

/// Older versions leave tokens that a role names out of tokenizer.json, and add them when they load it.
TEST_F(FilesBesideTest, TokensOfRolesCountBesideATokenizerJson) {
  put_json("gpt2.json", {{"/added_tokens", Json::array()}});
  const int64_t size = BpeTokenizer::from_tokenizer_json(fixture("gpt2.json")).take()->vocabulary_size();
  put("tokenizer_config.json",
      {{"eos_token", {{"__type", "AddedToken"}, {"content", "<|endoftext|>"}}}, {"pad_token", "[PAD]"}});
  EXPECT_EQ(tokenizer()->vocabulary_size(), size + 1);
  EXPECT_EQ(tokenizer()->encode("<|endoftext|>"), (Tokens{0}));
  EXPECT_EQ(tokenizer()->encode("[PAD]"), (Tokens{static_cast<Token>(size)}));
  EXPECT_EQ(tokenizer()->specials().padding, size);
}

TEST_F(FilesBesideTest, SettingsThatContradictTokenizerJsonAreRefused) {
  put_json("gpt2.json", {});
  for (const auto& [key, value] :
       {std::pair("add_prefix_space", true), {"add_bos_token", true}, {"split_special_tokens", true}}) {
    put("tokenizer_config.json", {{key, value}});
    EXPECT_TRUE(fails_with(opened(), Code::unsupported,
                           fmt::format("\"{}\" of {}", key, folder_ / "tokenizer_config")));
  }
  put("tokenizer_config.json", {{"add_prefix_space", false}, {"add_bos_token", false}});
  EXPECT_TRUE(opened().ok());
  put_json("bloom.json",
           {{"/post_processor", {{"type", "RobertaProcessing"}, {"sep", {"</s>", 2}}, {"cls", {"<s>", 1}}}}});
  for (const char* key : {"add_bos_token", "add_eos_token"}) {
    put("tokenizer_config.json", {{key, false}});
    EXPECT_TRUE(fails_with(opened(), Code::unsupported, key)) << "its post-processor adds one";
    put("tokenizer_config.json", {{key, true}});
    EXPECT_TRUE(opened().ok());
  }
  put_json("wordpiece.json", {});
  for (const char* key : {"do_lower_case", "strip_accents", "tokenize_chinese_chars"}) {
    put("tokenizer_config.json", {{key, false}});
    EXPECT_TRUE(fails_with(opened(), Code::unsupported, key));
    put("tokenizer_config.json", {{key, nullptr}});
    EXPECT_TRUE(opened().ok());
  }
  put("tokenizer_config.json", {{"never_split", {"x"}}});
  EXPECT_TRUE(fails_with(opened(), Code::unsupported, "never_split"));
}

/// "truncation" and "padding" are how it was last called; they were refused.
TEST_F(FilesBesideTest, HowATokenizerWasLastCalledIsNoPartOfIt) {
  for (const char* name : {"gpt2.json", "wordpiece.json"}) {
    put_json(name, {});
    const uint64_t hash = tokenizer()->hash();
    put_json(
        name,
        {{"/truncation",
          {{"direction", "Right"}, {"max_length", 16}, {"strategy", "LongestFirst"}, {"stride", 0}}},
         {"/padding",
          {{"strategy", "BatchLongest"}, {"direction", "Right"}, {"pad_id", 0}, {"pad_token", "[PAD]"}}}});
    EXPECT_EQ(tokenizer()->hash(), hash);
  }
}

/// They were refused by name.
TEST_F(FilesBesideTest, TokensThatWereAddedToAWordPieceAreTakenIn) {
  put_json("wordpiece.json", {});
  const auto size = static_cast<Token>(tokenizer()->vocabulary_size());
  const uint64_t hash = tokenizer()->hash();
  const Tokens text = tokenizer()->encode("the newword"), s = tokenizer()->encode("s");
  Json added = (*format::read_json(fixture("wordpiece.json")))["added_tokens"];
  added.push_back({{"id", size}, {"content", "NewWord"}, {"normalized", true}, {"special", false}});
  added.push_back({{"id", size + 1}, {"content", "<|User|>"}, {"normalized", false}, {"special", true}});
  put_json("wordpiece.json", {{"/added_tokens", added}});
  const auto check = [&] {
    const auto made = tokenizer();
    EXPECT_EQ(made->vocabulary_size(), size + 2);
    Tokens wanted = {size};
    wanted.insert(wanted.end(), s.begin(), s.end());
    EXPECT_EQ(made->encode("NEWWORDs"), wanted) << "it is looked for in lower case";
    EXPECT_EQ(made->encode("<|User|>"), (Tokens{size + 1}));
    EXPECT_NE(made->encode("<|user|>"), (Tokens{size + 1}));
    EXPECT_NE(made->hash(), hash);
    return made->hash();
  };
  const uint64_t own = check();
  EXPECT_NE(text.size(), 0u);
  LOOM_ASSERT_OK(tokenizer()->save(folder_.path()));
  EXPECT_EQ(check(), own);
  std::filesystem::remove(folder_ / "tokenizer.json");
  EXPECT_EQ(check(), own) << "of vocab.txt and tokenizer_config.json";
}

/// A saved tokenizer had none, and `transformers` left out what stands around a text.
TEST_F(FilesBesideTest, TheTemplateIsReadAndWritten) {
  const Json roberta = {{"type", "RobertaProcessing"},
                        {"sep", {"<pad>", 3}},
                        {"cls", {"<unk>", 0}},
                        {"trim_offsets", true},
                        {"add_prefix_space", false}};
  const Json list = {
      {"type", "TemplateProcessing"},
      {"single",
       {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
      {"pair", Json::array()},
      {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {1}}, {"tokens", {"<s>"}}}}}}};
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}};
  const Json both = {{"type", "Sequence"}, {"processors", {bytes, list}}};
  const Tokens a = BpeTokenizer::from_tokenizer_json(fixture("bloom.json")).take()->encode("a");
  const auto around = [&](Tokens before, const Tokens& after) {
    before.insert(before.end(), a.begin(), a.end());
    before.insert(before.end(), after.begin(), after.end());
    return before;
  };
  for (const auto& [processor, wanted] : {std::pair(roberta, around({0}, {3})),
                                          {list, around({1}, {})},
                                          {both, around({1}, {})},
                                          {bytes, a},
                                          {Json(), a}}) {
    put_json("bloom.json", {{"/post_processor", processor}});
    EXPECT_EQ(example_tokens("a", *tokenizer()), wanted) << processor.dump();
    LOOM_ASSERT_OK(tokenizer()->save(folder_.path()));
    EXPECT_EQ(example_tokens("a", *tokenizer()), wanted) << processor.dump();
  }
  put_json("bloom.json", {{"/post_processor", {{"type", "Other"}}}});
  EXPECT_TRUE(fails_with(opened(), Code::unsupported, "\"post_processor\" is {\"type\":\"Other\"}"));
  put_json("bloom.json",
           {{"/post_processor",
             {{"type", "RobertaProcessing"}, {"sep", {"</s>", 1 << 30}}, {"cls", {"<s>", 1}}}}});
  EXPECT_TRUE(fails_with(opened(), Code::invalid_data, "a text gets token"));
}

TEST_F(FilesBesideTest, TextsWithOtherTokensAroundThemThanTheModelsAreRefused) {
  const Json roberta = {{"type", "RobertaProcessing"}, {"sep", {"</s>", 2}}, {"cls", {"<s>", 1}}};
  put_json("bloom.json", {{"/post_processor", roberta}});
  put_file(folder_ / "t.tsv", "a\tx\nb\ty\n");
  LOOM_ASSERT_OK(tokenize_examples({folder_ / "t.tsv"}, folder_ / "d", *tokenizer(), 0.5));
  LOOM_ASSERT_OK(check_tokenizer_of_model(folder_.path(), folder_ / "d", *tokenizer()));
  put_json("bloom.json", {});
  EXPECT_TRUE(
      fails_with(check_tokenizer_of_model(folder_.path(), folder_ / "d", **open_tokenizer(folder_ / "d")),
                 Code::invalid_argument, "have other special tokens around them"));
}

/// They would be read beside the next tokenizer.
TEST_F(FilesBesideTest, TheFilesOfTheTokenizerThatWasThereGo) {
  put_bpe({"<|endoftext|>"});
  put("added_tokens.json", {{"<|user|>", 258}});
  put("special_tokens_map.json", {{"pad_token", "<|user|>"}});
  const auto other = WordPieceTokenizer::from_tokenizer_json(fixture("wordpiece.json")).take();
  LOOM_ASSERT_OK(replace_tokenizer(*other, folder_.path()));
  EXPECT_EQ(tokenizer()->hash(), other->hash());
}

TEST_F(FilesBesideTest, WhatIsCutOffATextIsNotItsTemplate) {
  const Tokens text = {7, 1, 2, 3, 8, 9};
  const auto cut = [&](size_t kept, size_t length) {
    Tokens into(length);
    into.resize(copy_example(text, kept, into));
    return into;
  };
  EXPECT_EQ(cut(0, 3), (Tokens{7, 1, 2}));
  EXPECT_EQ(cut(1, 3), (Tokens{7, 1, 9}));
  EXPECT_EQ(cut(2, 4), (Tokens{7, 1, 8, 9}));
  EXPECT_EQ(cut(2, 1), (Tokens{9}));
  EXPECT_EQ(cut(2, 10), text);
}

TEST_F(FilesBesideTest, AByteOrderMarkIsNoToken) {
  put_file(folder_ / "vocab.txt", "\xef\xbb\xbf[UNK]\na\n");
  EXPECT_EQ(tokenizer()->encode("a b"), (Tokens{1, 0}));
  put_bpe({"<|endoftext|>"}, "");
  put_file(folder_ / "merges.txt", "\xef\xbb\xbf#version: 0.2\na b\n");
  EXPECT_EQ(tokenizer()->encode("ab"), (Tokens{256}));
}

}  // namespace
}  // namespace loom::text
