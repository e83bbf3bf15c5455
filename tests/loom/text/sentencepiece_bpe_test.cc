// Tokens of a SentencePiece BPE are those of Hugging Face's library, and decode to the same texts.
#include "text/sentencepiece_bpe.h"

#include <gtest/gtest.h>

#include <random>

#include "format/json_file.h"
#include "support.h"

namespace loom::text {
namespace {

using format::Json;
using testing::fails_with;
using testing::fixture;
using testing::get_file;
using testing::put_file;
using testing::TemporaryFolder;

constexpr const char* kPieceFiles[] = {"llama2.json", "mistral.json"};  // in the order of the cases

std::shared_ptr<const Tokenizer> open_pieces(const char* name) {
  Result<std::shared_ptr<const Tokenizer>> tokenizer = open_tokenizer(fixture(name));
  if (!tokenizer.ok()) throw std::runtime_error(tokenizer.status().message());
  return tokenizer.take();
}

const Json& piece_cases() {
  static const Json json = format::read_json(fixture("sentencepiece_cases.json")).take().at("cases");
  return json;
}

/// A fixture with one part replaced.
Result<std::shared_ptr<const Tokenizer>> with_change(const std::string& pointer, const Json& value,
                                                     const char* name = "mistral.json") {
  const TemporaryFolder folder;
  Json json = format::read_json(fixture(name)).take();
  json[Json::json_pointer(pointer)] = value;
  put_file(folder / "tokenizer.json", json.dump());
  return open_tokenizer(folder.path());
}

TEST(SentencePiece, TheSameTokensAsTheReferenceAndBack) {
  ASSERT_GT(piece_cases().size(), 140u);
  for (size_t kind = 0; kind < 2; ++kind) {
    const auto tokenizer = open_pieces(kPieceFiles[kind]);
    for (const Json& item : piece_cases()) {
      const std::vector<Token> tokens = tokenizer->encode(item[0].get<std::string>());
      EXPECT_EQ(tokens, item[1 + kind].get<std::vector<Token>>())
          << kPieceFiles[kind] << ": " << item[0].dump();
      const Result<std::string> text = tokenizer->decode(tokens);
      LOOM_ASSERT_OK(text);
      EXPECT_EQ(*text, item[3 + kind].get<std::string>()) << kPieceFiles[kind] << ": " << item[0].dump();
    }
    EXPECT_EQ(tokenizer->sequence_template(), (SequenceTemplate{{1}, {}}));
    EXPECT_EQ(tokenizer->end_of_text(), 2);
    EXPECT_EQ(tokenizer->begin_of_text(), 1);
  }
}

TEST(SentencePiece, SpacesInFrontAreWhereTheSchemeSays) {
  const auto with = [&](const char* scheme) { return *with_change("/pre_tokenizer/prepend_scheme", scheme); };
  const auto never = with("never"), first = with("first"), always = with("always");
  const std::string text = "x</s>x";
  const std::vector<Token> bare = never->encode("x"), marked = never->encode(" x");
  const auto joined = [](std::vector<Token> left, const std::vector<Token>& right) {
    left.push_back(2);
    left.insert(left.end(), right.begin(), right.end());
    return left;
  };
  EXPECT_EQ(never->encode(text), joined(bare, bare));
  EXPECT_EQ(first->encode(text), joined(marked, bare));
  EXPECT_EQ(always->encode(text), joined(marked, marked));
  EXPECT_EQ(always->encode(" x"), marked);
  std::vector<Token> rest;
  always->encode_rest("x</s>x", rest);
  EXPECT_EQ(rest, joined(bare, marked));
}

TEST(SentencePiece, ATextThatIsCutSafelyHasTheTokensOfTheWhole) {
  const std::vector<std::string> pieces = {"\n",   "\n",   "\n\n", " \n",    "\n ", "\r\n", " ",
                                           "  ",   "    ", "\t",   "e the",  "the", ".",    "織",
                                           "🧵", "s",    "</s>", "[INST]", "loom"};
  std::mt19937 random(7);
  for (const char* scheme : {"never", "first", "always", "normalized"}) {
    const bool normalized = scheme == std::string_view("normalized");
    Json json = format::read_json(fixture(kPieceFiles[normalized ? 0 : 1])).take();
    if (normalized) json["added_tokens"].erase(4);  // <r> takes white space
    else json["pre_tokenizer"]["prepend_scheme"] = scheme;
    const auto opened = with_change("", json);
    LOOM_ASSERT_OK(opened);
    const Tokenizer& tokenizer = **opened;
    ASSERT_TRUE(tokenizer.may_be_cut()) << scheme;
    size_t cuts = 0;
    for (int i = 0; i < 3000; ++i) {
      std::string text;
      for (size_t left = 1 + random() % 30; left > 0; --left) text += pieces[random() % pieces.size()];
      std::vector<Token> tokens;
      for (size_t at = 0; at < text.size();) {
        const size_t end = tokenizer.safe_cut(text, at + 1 + random() % 5);
        ASSERT_GT(end, at);
        const std::string_view part = std::string_view(text).substr(at, end - at);
        if (at == 0) tokenizer.encode(part, tokens);
        else tokenizer.encode_rest(part, tokens);
        cuts += at > 0;
        at = end;
      }
      ASSERT_EQ(tokens, tokenizer.encode(text)) << scheme << ": " << Json(text).dump();
    }
    EXPECT_GT(cuts, 1000u) << scheme;
  }
}

TEST(SentencePiece, TextsAreNotCutWhereTokensReachOverLines) {
  EXPECT_FALSE(open_pieces("llama2.json")->may_be_cut()) << "<r> takes white space";
  EXPECT_FALSE((*with_change("/model/ignore_merges", true))->may_be_cut()) << "a whole text may be one token";
  const auto tokenizer = open_pieces("mistral.json");
  EXPECT_EQ(tokenizer->safe_cut("a\n\nb", 0), 3u);
  EXPECT_EQ(tokenizer->safe_cut("a\n b\nc", 0), 5u) << "a merge is of a line feed and a space";
  EXPECT_EQ(tokenizer->safe_cut("a\n b", 0), 4u);
  EXPECT_EQ(tokenizer->safe_cut("", 0), 0u);
}

/// The whole text between added tokens, with its marks.
TEST(SentencePiece, AWholeTextIsATokenWhereTheFileSaysSo) {
  Json json = format::read_json(fixture("mistral.json")).take();
  const size_t next = json["model"]["vocab"].size() + 2;
  json["model"]["vocab"]["▁xyz!"] = next;
  json["model"]["ignore_merges"] = true;
  const auto tokenizer = with_change("", json);
  LOOM_ASSERT_OK(tokenizer);
  EXPECT_EQ((*tokenizer)->encode("xyz!"), (std::vector<Token>{static_cast<Token>(next)}));
  EXPECT_GT((*tokenizer)->encode("xyz!!").size(), 2u);
}

TEST(SentencePiece, AnyBytesComeBack) {
  const auto tokenizer = *with_change("/pre_tokenizer/prepend_scheme", "never");
  std::mt19937 random(11);
  for (int i = 0; i < 500; ++i) {
    std::string bytes(random() % 200, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    if (bytes.find("\u2581") != std::string::npos) continue;  // a mark comes back as a space
    const Result<std::string> back = tokenizer->decode(tokenizer->encode(bytes));
    LOOM_ASSERT_OK(back);
    ASSERT_EQ(*back, bytes);
  }
}

TEST(SentencePiece, ALongTextWithoutWordsTakesNoTimeSquared) {
  const auto tokenizer = open_pieces("mistral.json");
  for (const char* piece : {" ", "ea", "\n", "🧵"}) {
    std::string text;
    while (text.size() < 1'000'000) text += piece;
    const Result<std::string> back = tokenizer->decode(tokenizer->encode(text));
    LOOM_ASSERT_OK(back);
    EXPECT_TRUE(back->ends_with(text));
  }
}

TEST(SentencePiece, SavedFilesAreTheSameTokenizer) {
  for (size_t kind = 0; kind < 2; ++kind) {
    const auto tokenizer = open_pieces(kPieceFiles[kind]);
    const TemporaryFolder folder;
    LOOM_ASSERT_OK(tokenizer->save(folder.path()));
    const auto again = open_tokenizer(folder.path());
    LOOM_ASSERT_OK(again);
    EXPECT_EQ((*again)->hash(), tokenizer->hash());
    EXPECT_EQ((*again)->sequence_template(), tokenizer->sequence_template());
    EXPECT_EQ((*again)->end_of_text(), tokenizer->end_of_text());
    for (const Json& item : piece_cases()) {
      const std::vector<Token> tokens = (*again)->encode(item[0].get<std::string>());
      EXPECT_EQ(tokens, item[1 + kind].get<std::vector<Token>>());
      EXPECT_EQ(*(*again)->decode(tokens), item[3 + kind].get<std::string>());
    }
    const Json config = format::read_json(folder / "tokenizer_config.json").take();
    EXPECT_EQ(config["bos_token"], "<s>");
    EXPECT_EQ(config["eos_token"], "</s>");
    EXPECT_EQ(config["unk_token"], "<unk>");
  }
  EXPECT_NE(open_pieces("mistral.json")->hash(),
            (*with_change("/pre_tokenizer/prepend_scheme", "never"))->hash());
}

TEST(SentencePiece, SettingsThatLoomDoesNotHaveAreRefused) {
  EXPECT_TRUE(fails_with(with_change("/pre_tokenizer/split", true), Code::unsupported, "\"split\" false"));
  EXPECT_TRUE(
      fails_with(with_change("/pre_tokenizer/replacement", "_"), Code::unsupported, "\"replacement\" \"▁\""));
  EXPECT_TRUE(fails_with(with_change("/pre_tokenizer/prepend_scheme", "last"), Code::unsupported,
                         "\"first\", \"always\" or \"never\""));
  EXPECT_TRUE(
      fails_with(with_change("/pre_tokenizer", nullptr), Code::unsupported, "\"pre_tokenizer\" is null"));
  EXPECT_TRUE(fails_with(with_change("/normalizer", {{"type", "NFC"}}), Code::unsupported,
                         "\"normalizer\" is {\"type\":\"NFC\"}, must be, with \"byte_fallback\", none or"));
  EXPECT_TRUE(fails_with(with_change("/pre_tokenizer", {{"type", "ByteLevel"}}, "llama2.json"),
                         Code::unsupported, "must be none where the normalizer replaces spaces"));
  EXPECT_TRUE(fails_with(with_change("/decoder", {{"type", "ByteLevel"}}), Code::unsupported,
                         "\"decoder\" is {\"type\":\"ByteLevel\"}, must be"));
  EXPECT_TRUE(fails_with(with_change("/model/dropout", 0.1), Code::unsupported, "\"dropout\": 0.1"));
  EXPECT_TRUE(fails_with(with_change("/model/merges/0", {"<0x41>", "a"}), Code::unsupported,
                         "a merge has the token of a byte, \"<0x41>\""));
  EXPECT_TRUE(
      fails_with(with_change("/model/merges/0", {"e f", "a"}), Code::invalid_data, "\"e f\" is no token"));
  Json json = format::read_json(fixture("mistral.json")).take();
  json["model"]["vocab"].erase("<0x41>");
  EXPECT_TRUE(
      fails_with(with_change("", json), Code::invalid_data, "no token for byte 65, spelled \"<0x41>\""));
  EXPECT_TRUE(fails_with(SentencePieceBpe::from_tokenizer_json(fixture("gpt2.json")), Code::unsupported,
                         "\"byte_fallback\" of the model is not set, must be true"));
}

TEST(SentencePiece, SettingsBesideItMustAgree) {
  const TemporaryFolder folder;
  put_file(folder / "tokenizer.json", get_file(fixture("llama2.json")));
  const auto with = [&](const Json& config) {
    put_file(folder / "tokenizer_config.json", config.dump());
    return open_tokenizer(folder.path());
  };
  const auto opened = with({{"tokenizer_class", "LlamaTokenizerFast"},
                            {"add_bos_token", true},
                            {"add_eos_token", false},
                            {"add_prefix_space", true},
                            {"legacy", true},
                            {"pad_token", "<pad>"}});
  LOOM_ASSERT_OK(opened);
  EXPECT_EQ((*opened)->specials().padding, (*opened)->vocabulary_size() - 1);
  EXPECT_TRUE(fails_with(with({{"add_bos_token", false}}), Code::unsupported, "\"add_bos_token\""));
  EXPECT_TRUE(fails_with(with({{"add_prefix_space", false}}), Code::unsupported, "\"add_prefix_space\""));
}

}  // namespace
}  // namespace loom::text
