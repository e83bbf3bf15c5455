// Tokens are those of Hugging Face's library, for texts of every kind; decoding gives the text back.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "format/json_file.h"
#include "support.h"
#include "text/bpe.h"
#include "text/byte_tokenizer.h"

namespace loom::text {
namespace {

using format::Json;
using testing::fails_with;
using testing::fixture;
using testing::get_file;
using testing::put_file;
using testing::TemporaryFolder;

std::shared_ptr<const BpeTokenizer> open_fixture(const char* name) {
  Result<std::shared_ptr<const BpeTokenizer>> tokenizer = BpeTokenizer::from_tokenizer_json(fixture(name));
  if (!tokenizer.ok()) throw std::runtime_error(tokenizer.status().message());
  return tokenizer.take();
}

const Json& cases() {
  static const Json json = format::read_json(fixture("cases.json")).take();
  return json;
}

uint64_t checksum(const std::vector<Token>& tokens) {
  unsigned __int128 total = 0;
  for (const Token token : tokens) {
    total = (total * 1000003 + static_cast<unsigned>(token)) % (uint64_t{1} << 61);
  }
  return static_cast<uint64_t>(total);
}

TEST(Bpe, TheSameTokensAsTheReference) {
  const auto tokenizer = open_fixture("gpt2.json");
  ASSERT_GT(cases().at("cases").size(), 300u);
  for (const Json& item : cases().at("cases")) {
    const std::string text = item[0].get<std::string>();
    const std::vector<Token> tokens = tokenizer->encode(text);
    EXPECT_EQ(tokens, item[1].get<std::vector<Token>>()) << Json(text).dump();
    const Result<std::string> back = tokenizer->decode(tokens);
    LOOM_ASSERT_OK(back);
    EXPECT_EQ(*back, text);
  }
}

TEST(Bpe, TheSameTokensWithNormalizationPrefixAndAddedTokens) {
  const auto tokenizer = open_fixture("options.json");
  for (const Json& item : cases().at("cases")) {
    const std::string text = item[0].get<std::string>();
    EXPECT_EQ(tokenizer->encode(text), item[2].get<std::vector<Token>>()) << Json(text).dump();
  }
  EXPECT_EQ(tokenizer->end_of_text(), 0);  // "<|endoftext|>" before "</s>"
}

TEST(Bpe, TheSameTokensOfALongText) {
  const std::vector<Token> tokens = open_fixture("gpt2.json")->encode(get_file(fixture("corpus.txt")));
  EXPECT_EQ(tokens.size(), cases().at("corpus_tokens"));
  EXPECT_EQ(checksum(tokens), cases().at("corpus_checksum").get<uint64_t>());
}

/// NAME_cases.json is of NAME.json.
void expect_cases(const Tokenizer& tokenizer, const std::string& name) {
  const Json json = format::read_json(fixture(name + "_cases.json")).take();
  ASSERT_GT(json.at("cases").size(), 300u);
  for (const Json& item : json.at("cases")) {
    const std::string text = item[0].get<std::string>();
    EXPECT_EQ(tokenizer.encode(text), item[1].get<std::vector<Token>>()) << Json(text).dump();
  }
  const std::vector<Token> tokens = tokenizer.encode(get_file(fixture("corpus.txt")));
  EXPECT_EQ(tokens.size(), json.at("corpus_tokens"));
  EXPECT_EQ(checksum(tokens), json.at("corpus_checksum").get<uint64_t>());
}

TEST(Bpe, TheSameTokensAsTheReferenceWithBloomsWords) {
  const auto tokenizer = open_fixture("bloom.json");
  expect_cases(*tokenizer, "bloom");
  EXPECT_EQ(tokenizer->end_of_text(), 2);  // "</s>"
  EXPECT_FALSE(tokenizer->may_be_cut()) << "a piece such as \".\\n.\" reaches over lines";
}

TEST(Bpe, TheSameTokensAsTheReferenceOfLlama3sKind) {
  const auto tokenizer = open_fixture("llama3.json");
  expect_cases(*tokenizer, "llama3");
  const Token begin = tokenizer->vocabulary_size() - 103;  // behind the vocabulary are 103 special tokens
  EXPECT_EQ(tokenizer->sequence_template(), (SequenceTemplate{{begin}, {}}));
  EXPECT_EQ(tokenizer->encode("<|begin_of_text|>x<|reserved_special_token_99|>").back(), begin + 102);
}

TEST(Bpe, TheSameTokensAsTheReferenceOfQwen2sKind) {
  const auto tokenizer = open_fixture("qwen2.json");
  expect_cases(*tokenizer, "qwen2");
  EXPECT_EQ(tokenizer->sequence_template(), SequenceTemplate());
  EXPECT_EQ(tokenizer->end_of_text(), tokenizer->encode("<|endoftext|>")[0]);
}

/// Without `ignore_merges` a word is what the merges make of it, and nothing else.
TEST(Bpe, WholeWordsAreTokensWhereTheFileSaysSo) {
  const TemporaryFolder folder;
  Json json = format::read_json(fixture("llama3.json")).take();
  json["model"]["ignore_merges"] = false;
  put_file(folder / "tokenizer.json", json.dump());
  const auto merged = BpeTokenizer::from_tokenizer_json(folder / "tokenizer.json");
  LOOM_ASSERT_OK(merged);
  const auto whole = open_fixture("llama3.json");
  const std::string corpus = get_file(fixture("corpus.txt"));
  EXPECT_LT(whole->encode(corpus).size(), (*merged)->encode(corpus).size());
  EXPECT_NE(whole->hash(), (*merged)->hash());
}

/// Words of every rule, lines of every kind, and added tokens.
TEST(Bpe, ATextThatIsCutSafelyHasTheTokensOfTheWhole) {
  const std::vector<std::string> pieces = {"\n",
                                           "\n",
                                           "\r",
                                           "\r\n",
                                           " ",
                                           "  ",
                                           "\t",
                                           "\u00a0",
                                           "\u2028",
                                           "weft",
                                           "the",
                                           "!",
                                           ".",
                                           "(",
                                           "'s",
                                           "12345",
                                           "\u0301",
                                           "e\u0301",
                                           "\u7e54",
                                           "<|begin_of_text|>",
                                           "<|endoftext|>",
                                           "<tool_call>"};
  std::mt19937 random(7);
  for (const char* name : {"gpt2.json", "llama3.json", "qwen2.json"}) {
    const auto tokenizer = open_fixture(name);
    ASSERT_TRUE(tokenizer->may_be_cut());
    size_t cuts = 0;
    for (int i = 0; i < 3000; ++i) {
      std::string text;
      for (size_t left = 1 + random() % 30; left > 0; --left) text += pieces[random() % pieces.size()];
      std::vector<Token> tokens;
      for (size_t at = 0; at < text.size();) {
        const size_t end = tokenizer->safe_cut(text, at + 1 + random() % 5);
        ASSERT_GT(end, at);
        const std::string_view part = std::string_view(text).substr(at, end - at);
        if (at == 0) tokenizer->encode(part, tokens);
        else tokenizer->encode_rest(part, tokens);
        cuts += at > 0;
        at = end;
      }
      ASSERT_EQ(tokens, tokenizer->encode(text)) << name << ": " << Json(text).dump();
    }
    EXPECT_GT(cuts, 1000u) << name;
  }
}

/// Both line feeds are one token: the added token ends the text that is cut into words.
TEST(Bpe, WhiteSpaceInFrontOfAnAddedTokenIsNotCut) {
  const auto tokenizer = open_fixture("gpt2.json");
  EXPECT_EQ(tokenizer->safe_cut("a.\n\nb", 0), 3u);
  EXPECT_EQ(tokenizer->safe_cut("a.\n\n<|endoftext|>\nb", 0), 17u);
}

TEST(Bpe, AnyBytesComeBack) {
  std::mt19937 random(11);
  for (const char* name : {"gpt2.json", "bloom.json", "llama3.json"}) {
    const auto tokenizer = open_fixture(name);
    for (int i = 0; i < 500; ++i) {
      std::string bytes(random() % 200, '\0');
      for (char& byte : bytes) byte = static_cast<char>(random());
      const Result<std::string> back = tokenizer->decode(tokenizer->encode(bytes));
      LOOM_ASSERT_OK(back);
      ASSERT_EQ(*back, bytes);
    }
  }
}

TEST(Bpe, ALongWordTakesNoTimeSquared) {
  const auto tokenizer = open_fixture("gpt2.json");
  const std::string word(3'000'000, 'a');
  const Result<std::string> back = tokenizer->decode(tokenizer->encode(word));
  LOOM_ASSERT_OK(back);
  EXPECT_EQ(*back, word);
}

TEST(Bpe, EncodesFromManyThreads) {
  const auto tokenizer = open_fixture("gpt2.json");
  const std::string corpus = get_file(fixture("corpus.txt"));
  const std::vector<Token> expected = tokenizer->encode(corpus);
  std::vector<std::vector<Token>> found(4);
  std::vector<std::thread> threads;
  for (std::vector<Token>& tokens : found) threads.emplace_back([&] { tokens = tokenizer->encode(corpus); });
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<Token>& tokens : found) EXPECT_EQ(tokens, expected);
}

TEST(Bpe, SavedFilesAreTheSameTokenizer) {
  for (const char* name : {"gpt2.json", "options.json", "bloom.json", "llama3.json", "qwen2.json"}) {
    const auto tokenizer = open_fixture(name);
    const TemporaryFolder folder;
    LOOM_ASSERT_OK(tokenizer->save(folder.path()));
    const auto again = open_tokenizer(folder.path());
    LOOM_ASSERT_OK(again);
    EXPECT_EQ((*again)->hash(), tokenizer->hash());
    for (const Json& item : cases().at("cases")) {
      EXPECT_EQ((*again)->encode(item[0].get<std::string>()), tokenizer->encode(item[0].get<std::string>()));
    }
  }
}

TEST(Bpe, VocabularyAndMergesAloneAreEnough) {
  const auto tokenizer = open_fixture("gpt2.json");
  const TemporaryFolder folder;
  LOOM_ASSERT_OK(tokenizer->save(folder.path()));
  std::filesystem::remove(folder / "tokenizer.json");
  const auto again = open_tokenizer(folder.path());
  LOOM_ASSERT_OK(again);
  EXPECT_EQ((*again)->hash(), tokenizer->hash());
  EXPECT_EQ((*again)->end_of_text(), tokenizer->end_of_text());
  for (const Json& item : cases().at("cases")) {
    EXPECT_EQ((*again)->encode(item[0].get<std::string>()), item[1].get<std::vector<Token>>());
  }
}

TEST(Bpe, TokensOutsideTheVocabularyAreTold) {
  const auto tokenizer = open_fixture("gpt2.json");
  const std::vector<Token> tokens = {5, 1200};
  EXPECT_TRUE(fails_with(tokenizer->decode(tokens), Code::invalid_argument, "token 1 is 1200"));
  const std::vector<Token> negative = {-1};
  EXPECT_TRUE(fails_with(tokenizer->decode(negative), Code::invalid_argument, "token 0 is -1"));
}

/// gpt2.json with one part replaced.
Result<std::shared_ptr<const BpeTokenizer>> changed(const std::string& pointer, const Json& value) {
  const TemporaryFolder folder;
  Json json = format::read_json(fixture("gpt2.json")).take();
  json[Json::json_pointer(pointer)] = value;
  put_file(folder / "tokenizer.json", json.dump());
  return BpeTokenizer::from_tokenizer_json(folder / "tokenizer.json");
}

TEST(BpeFiles, SettingsThatLoomDoesNotHaveAreRefused) {
  EXPECT_TRUE(fails_with(changed("/model/type", "Unigram"), Code::unsupported,
                         "the model is \"Unigram\", must be BPE or WordPiece"));
  EXPECT_TRUE(
      fails_with(changed("/model/byte_fallback", true), Code::unsupported, "\"byte_fallback\": true"));
  EXPECT_TRUE(fails_with(changed("/model/dropout", 0.1), Code::unsupported, "\"dropout\": 0.1"));
  LOOM_ASSERT_OK(changed("/model/dropout", 0.0));
  EXPECT_TRUE(
      fails_with(changed("/model/end_of_word_suffix", "</w>"), Code::unsupported, "\"end_of_word_suffix\""));
  EXPECT_TRUE(fails_with(changed("/normalizer", {{"type", "NFKC"}}), Code::unsupported,
                         "\"normalizer\" is {\"type\":\"NFKC\"}"));
  EXPECT_TRUE(fails_with(changed("/pre_tokenizer", nullptr), Code::unsupported, "\"pre_tokenizer\" is null"));
  EXPECT_TRUE(
      fails_with(changed("/pre_tokenizer/use_regex", false), Code::unsupported, "must be GPT-2's ByteLevel"));
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const auto split = [&](const char* regex, const char* behavior) {
    const Json step = {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", behavior}};
    return changed("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", Json::array({step, bytes})}});
  };
  const char* const gpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
  const auto same = split(gpt2, "Isolated");
  LOOM_ASSERT_OK(same);
  EXPECT_EQ((*same)->hash(), open_fixture("gpt2.json")->hash());
  EXPECT_TRUE(
      fails_with(split(gpt2, "Removed"), Code::unsupported, "\"pre_tokenizer\" is {\"pretokenizers\""));
  EXPECT_TRUE(
      fails_with(split("\\s+", "Isolated"), Code::unsupported, "a Split by the expression of GPT-2, BLOOM"));
  EXPECT_TRUE(fails_with(changed("/added_tokens/0/single_word", true), Code::unsupported, "single_word"));
}

TEST(BpeFiles, DamageIsTold) {
  EXPECT_TRUE(fails_with(changed("/model", 3), Code::invalid_data, "no object \"model\""));
  EXPECT_TRUE(fails_with(changed("/model/vocab", 3), Code::invalid_data, "the vocabulary is 3"));
  EXPECT_TRUE(fails_with(changed("/model/vocab/a", 1'000'000'000), Code::invalid_data, "must be in [0, 24"));
  EXPECT_TRUE(fails_with(changed("/model/vocab/a", -1), Code::invalid_data, "token \"a\" has the number -1"));
  EXPECT_TRUE(fails_with(changed("/model/vocab/a", 66), Code::invalid_data, "have the number 66"));
  EXPECT_TRUE(
      fails_with(changed("/model/vocab/x y", 1300), Code::invalid_data, "\"x y\" is no spelling of bytes"));
  EXPECT_TRUE(fails_with(changed("/model/merges", nullptr), Code::invalid_data, "\"merges\" is null"));
  EXPECT_TRUE(fails_with(changed("/model/merges/5", "a"), Code::invalid_data,
                         "merge 5 is \"a\", must be two tokens"));
  EXPECT_TRUE(fails_with(changed("/model/merges/5", "a qqq"), Code::invalid_data, "\"qqq\" is no token"));
  EXPECT_TRUE(
      fails_with(changed("/model/merges/5", "q q"), Code::invalid_data, "makes \"qq\", which is no token"));
  EXPECT_TRUE(fails_with(changed("/model/merges/5", 7), Code::invalid_data, "merge 5 is 7"));
  EXPECT_TRUE(fails_with(changed("/added_tokens", "x"), Code::invalid_data, "\"added_tokens\" is \"x\""));
  EXPECT_TRUE(fails_with(changed("/added_tokens/0", {{"id", 0}}), Code::invalid_data,
                         "must have an id and a content"));
  EXPECT_TRUE(fails_with(changed("/added_tokens/0/id", 40), Code::invalid_data, "number 40"));
}

TEST(BpeFiles, ATypeThatIsNoTextIsNone) {
  EXPECT_TRUE(fails_with(changed("/normalizer", {{"type", 1}}), Code::unsupported, "\"normalizer\" is"));
  EXPECT_TRUE(fails_with(changed("/pre_tokenizer", {{"type", nullptr}}), Code::unsupported, "pre_tokenizer"));
  EXPECT_TRUE(fails_with(
      changed("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {{{"type", 2}}, {{"type", 3}}}}}),
      Code::unsupported, "pre_tokenizer"));
}

TEST(BpeFiles, AByteWithoutATokenIsTold) {
  const TemporaryFolder folder;
  Json json = format::read_json(fixture("gpt2.json")).take();
  json["model"]["vocab"].erase("a");
  json["model"]["merges"] = Json::array();
  put_file(folder / "tokenizer.json", json.dump());
  EXPECT_TRUE(fails_with(BpeTokenizer::from_tokenizer_json(folder / "tokenizer.json"), Code::invalid_data,
                         "no token for byte 97, spelled \"a\""));
}

// Whatever is done to a file, it is refused or gives a tokenizer that works.
TEST(BpeFiles, RandomDamageIsRefusedOrHarmless) {
  const TemporaryFolder folder;
  const std::string valid = get_file(fixture("gpt2.json"));
  std::mt19937 random(5);
  size_t refused = 0;
  for (int i = 0; i < 200; ++i) {
    std::string damaged = valid;
    const size_t at = random() % damaged.size();
    switch (random() % 3) {
      case 0: damaged[at] = static_cast<char>(random()); break;
      case 1: damaged.erase(at, 1 + random() % 100); break;
      default: damaged.insert(at, damaged.substr(random() % damaged.size(), random() % 100));
    }
    put_file(folder / "tokenizer.json", damaged);
    const auto tokenizer = BpeTokenizer::from_tokenizer_json(folder / "tokenizer.json");
    if (!tokenizer.ok()) {
      ++refused;
      continue;
    }
    const std::vector<Token> tokens = (*tokenizer)->encode("The weft and the warp, 123.");
    LOOM_ASSERT_OK((*tokenizer)->decode(tokens));
  }
  EXPECT_GT(refused, 100u);
}

TEST(Tokenizers, AreOpenedByWhatIsThere) {
  const TemporaryFolder folder;
  EXPECT_TRUE(fails_with(open_tokenizer(folder.path()), Code::not_found, "neither tokenizer.json, nor"));
  EXPECT_TRUE(fails_with(open_tokenizer(folder / "x.json"), Code::not_found, "x.json"));
  put_file(folder / "tokenizer.model", "");
  EXPECT_TRUE(fails_with(open_tokenizer(folder.path()), Code::not_found, "must have tokenizer.json"));
  LOOM_ASSERT_OK(ByteTokenizer().save(folder.path()));
  const auto bytes = open_tokenizer(folder.path());
  LOOM_ASSERT_OK(bytes);
  EXPECT_EQ((*bytes)->hash(), (*open_tokenizer("bytes"))->hash());
  put_file(folder / "loom-tokenizer.json", R"({"type": "words"})");
  EXPECT_TRUE(fails_with(open_tokenizer(folder.path()), Code::invalid_data, "\"words\", must be \"bytes\""));
}

/// Earlier versions wrote nothing else.
TEST(Tokenizers, AFolderWithLoomsOwnFileAloneIsBytes) {
  const TemporaryFolder folder;
  put_file(folder / "loom-tokenizer.json", R"({"type": "bytes"})");
  const auto opened = open_tokenizer(folder.path());
  LOOM_ASSERT_OK(opened);
  EXPECT_EQ((*opened)->hash(), ByteTokenizer().hash());
}

/// For programs that know nothing of Loom: a byte-level BPE whose numbers are the bytes.
TEST(Tokenizers, BytesAreSavedAsABpeWithoutMerges) {
  const TemporaryFolder folder;
  LOOM_ASSERT_OK(ByteTokenizer().save(folder.path()));
  const auto bpe = BpeTokenizer::from_tokenizer_json(folder / "tokenizer.json");
  LOOM_ASSERT_OK(bpe);
  EXPECT_EQ((*bpe)->vocabulary_size(), ByteTokenizer().vocabulary_size());
  std::string all = "a <|endoftext|> b\n";
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ((*bpe)->encode(all), ByteTokenizer().encode(all));
}

/// Before version 5 `transformers` passes types of tokens to a model unless this list leaves them out, and
/// GPT-2, GPT-J and GPT-Neo add the embedding of token 0 for them.
TEST(Tokenizers, SavedOnesAskForNoTypesOfTokens) {
  const Json wanted = {"input_ids", "attention_mask"};
  const auto bpe = open_fixture("gpt2.json");
  const ByteTokenizer bytes;
  for (const Tokenizer* tokenizer :
       {static_cast<const Tokenizer*>(bpe.get()), static_cast<const Tokenizer*>(&bytes)}) {
    const TemporaryFolder folder;
    LOOM_ASSERT_OK(tokenizer->save(folder.path()));
    const Result<Json> saved = format::read_json(folder / "tokenizer_config.json");
    LOOM_ASSERT_OK(saved);
    EXPECT_EQ(saved->value("model_input_names", Json()), wanted) << tokenizer->description();
  }
}

/// `save_pretrained` of `transformers` leaves no more than that, with the end of text as an added token.
TEST(Tokenizers, ABpeOfTheBytesWithoutMergesIsBytes) {
  const TemporaryFolder folder;
  LOOM_ASSERT_OK(ByteTokenizer().save(folder.path()));
  const Json saved = *format::read_json(folder / "tokenizer.json");
  std::filesystem::remove(folder / "loom-tokenizer.json");
  const auto opened_with = [&](const char* path, const Json& value) {
    Json changed = saved;
    if (*path != '\0') changed[Json::json_pointer(path)] = value;
    EXPECT_TRUE(format::write_json(folder / "tokenizer.json", changed).ok());
    const auto opened = open_tokenizer(folder.path());
    return opened.ok() && (*opened)->hash() == ByteTokenizer().hash();
  };
  EXPECT_TRUE(opened_with("", {}));
  EXPECT_TRUE(opened_with("/added_tokens", {{{"id", 256}, {"content", "<|endoftext|>"}, {"special", true}}}));
  // With anything else tokens are others.
  EXPECT_FALSE(opened_with("/normalizer", {{"type", "NFC"}}));
  EXPECT_FALSE(opened_with("/pre_tokenizer/add_prefix_space", true));
  EXPECT_FALSE(opened_with("/model/merges", {"a b"}));
  EXPECT_FALSE(opened_with("/model/vocab/x y", 257));
  Json swapped = saved["model"]["vocab"];
  swapped["a"] = 'b';
  swapped["b"] = 'a';
  EXPECT_FALSE(opened_with("/model/vocab", swapped));
}

/// What `transformers` is told beside tokenizer.json: to take it as it is, and which tokens are what.
TEST(Tokenizers, TellTransformersWhatTheirTokensAreFor) {
  const TemporaryFolder folder;
  const auto config_of = [&](const Tokenizer& tokenizer) {
    EXPECT_TRUE(tokenizer.save(folder.path()).ok());
    return *format::read_json(folder / "tokenizer_config.json");
  };
  Json config = config_of(ByteTokenizer());
  EXPECT_EQ(config["tokenizer_class"], "PreTrainedTokenizerFast");
  EXPECT_EQ(config["eos_token"], "<|endoftext|>");
  EXPECT_EQ(config["split_special_tokens"], true);
  config = config_of(**BpeTokenizer::from_tokenizer_json(fixture("options.json")));
  EXPECT_EQ(config["tokenizer_class"], "PreTrainedTokenizerFast");
  EXPECT_EQ(config["bos_token"], "<|endoftext|>");
  EXPECT_EQ(config["eos_token"], "<|endoftext|>");
  EXPECT_EQ(config["mask_token"], "<mask>");
  config = config_of(**BpeTokenizer::from_tokenizer_json(fixture("bloom.json")));
  EXPECT_EQ(config["bos_token"], "<s>");
  EXPECT_EQ(config["eos_token"], "</s>");
  EXPECT_EQ(config["pad_token"], "<pad>");
}

TEST(Tokenizers, BytesAreThemselves) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(tokenizer.encode("a\xff"), (std::vector<Token>{97, 255}));
  const std::vector<Token> tokens = {104, 105, ByteTokenizer::kEndOfText, 33};
  EXPECT_EQ(*tokenizer.decode(tokens), "hi!");
  const std::vector<Token> bad = {1, 257};
  EXPECT_TRUE(
      fails_with(tokenizer.decode(bad), Code::invalid_argument, "token 1 is 257, must be in [0, 257)"));
}

}  // namespace
}  // namespace loom::text
