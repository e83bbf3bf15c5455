// Prompts with completions: how they are read, which tokens they have, and which of these are targets.
#include "text/completions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "format/json_file.h"
#include "support.h"

namespace loom::text {
namespace {

using testing::fails_with;
using testing::fixture;
using testing::get_file;
using testing::put_file;
using testing::TemporaryFolder;

using Tokens = std::vector<Token>;

std::shared_ptr<const Tokenizer> opened(const std::string& path) { return open_tokenizer(path).take(); }

Result<std::vector<Segments>> read_from(const std::string& path, const std::string& format = "") {
  const Result<TextFile> file = TextFile::open(path);
  if (!file.ok()) return file.status();
  return read_completions(*file, format);
}

/// What is learned stands in brackets.
std::string marked(const Segments& segments) {
  std::string text;
  for (const Segment& segment : segments)
    text += segment.learned ? fmt::format("[{}]", segment.text) : segment.text;
  return text;
}

NumberedSequence tokens_of(const std::string& prompt, const std::string& completion,
                           const Tokenizer& tokenizer) {
  return completion_tokens({{prompt, false}, {completion, true}}, tokenizer);
}

TEST(Completions, AreReadFromEveryFormat) {
  const TemporaryFolder folder;
  put_file(folder / "a.jsonl",
           "{\"prompt\": \"2+2=\", \"completion\": \"4\"}\n\n{\"id\": 7, \"completion\": \"\\n\", "
           "\"prompt\": \"x\"}\n");
  put_file(folder / "a.csv", "completion,id,prompt\n4,1,2+2=\n\"\n\",7,x\n");
  put_file(folder / "a.tsv", "prompt\tcompletion\n2+2=\t4\nx\t\"\n\"\n");
  for (const char* name : {"a.jsonl", "a.csv", "a.tsv"}) {
    const auto completions = read_from(folder / name);
    LOOM_ASSERT_OK(completions);
    ASSERT_EQ(completions->size(), 2u) << name;
    EXPECT_EQ(marked((*completions)[0]), "2+2=[4]") << name;
    EXPECT_EQ(marked((*completions)[1]), "x[\n]") << name;
  }
}

TEST(Completions, AreSegmentsOfAChatToo) {
  const TemporaryFolder folder;
  put_file(folder / "a.jsonl",
           "{\"segments\": [{\"text\": \"2+2=\", \"label\": false}, {\"label\": true, \"text\": \"4\"},\n"
           "{\"text\": \"+3=\", \"label\": false}, {\"text\": \"7\", \"label\": true}]}\n");
  EXPECT_TRUE(fails_with(read_from(folder / "a.jsonl"), Code::invalid_data,
                         "line 1: each line must be a JSON object"));
  std::string line = get_file(folder / "a.jsonl");
  std::erase(line, '\n');
  put_file(folder / "a.jsonl", line + "\n{\"prompt\": \"a\", \"completion\": \"b\"}");
  const auto completions = read_from(folder / "a.jsonl");
  LOOM_ASSERT_OK(completions);
  ASSERT_EQ(completions->size(), 2u);
  EXPECT_EQ(marked((*completions)[0]), "2+2=[4]+3=[7]");
  EXPECT_EQ(marked((*completions)[1]), "a[b]");

  const auto refused = [&](const std::string& segments, const char* why) {
    put_file(folder / "a.jsonl", "{\"segments\": " + segments + "}\n");
    EXPECT_TRUE(fails_with(read_from(folder / "a.jsonl"), Code::invalid_data, why)) << segments;
  };
  put_file(folder / "a.jsonl", R"({"segments": [{"text": "a", "label": true}], "prompt": "b"})");
  EXPECT_TRUE(fails_with(read_from(folder / "a.jsonl"), Code::invalid_data,
                         "line 1: it has \"segments\" and \"prompt\", must have one of them"));
  refused("7", "line 1: \"segments\" is number, must be a list");
  refused("[]", "none of the 0 segments has \"label\": true");
  refused("[{\"text\": \"a\", \"label\": false}]", "none of the 1 segments has \"label\": true");
  refused("[{\"text\": \"a\"}]", "line 1: segment 1: \"label\"");
  refused("[{\"text\": \"a\", \"label\": 1}]", "segment 1: \"label\"");
  refused("[\"a\"]", "segment 1: ");
  refused("[{\"text\": \"a\", \"label\": true}, {\"text\": \"\", \"label\": true}]",
          "segment 2: the text is empty");
}

TEST(Completions, BadRecordsAreNamed) {
  const TemporaryFolder folder;
  const auto refused = [&](const char* name, const std::string& content, const char* why) {
    put_file(folder / name, content);
    EXPECT_TRUE(fails_with(read_from(folder / name), Code::invalid_data, why)) << content;
  };
  refused("a.jsonl", "{\"prompt\": \"a\"}\n",
          "line 1: it must have \"prompt\" and \"completion\", or \"segments\": \"completion\" is missing");
  refused("a.jsonl", "{\"prompt\": \"a\", \"completion\": 4}\n", "\"completion\"");
  refused("a.jsonl", "{\"prompt\": \"\", \"completion\": \"b\"}\n", "line 1: the prompt is empty");
  refused("a.jsonl", "{\"prompt\": \"a\", \"completion\": \"\"}\n", "line 1: the completion is empty");
  refused("a.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\\u0000\"}\n",
          "the completion has a NUL as its byte 1");
  refused("a.jsonl", "{\"messages\": [], \"id\": 1}\n",
          "or \"segments\": \"prompt\" is missing, must be a text; the object has \"messages\", \"id\"");
  refused("a.json", "{\"prompt\": \"a\", \"completion\": \"b\"}\n", "--format jsonl reads JSON");
  refused("a.json", "[" + std::string(100'000, ' ') + "]\n", "and is \"[");
  refused("a.tsv", "one\ttwo\n",
          "line 1: it must name the columns, of which \"prompt\" and \"completion\" are read");
  refused("a.csv", "prompt,completion\na\n", "line 2: it must be 2 fields, but has 1");
}

TEST(Completions, BeginAndEndAsTheTokenizerSays) {
  const TemporaryFolder folder;
  std::filesystem::copy(fixture("llama3.json"), folder / "tokenizer.json");
  put_file(folder / "tokenizer_config.json", "{\"eos_token\": \"<|eot_id|>\"}");
  const auto llama = opened(folder.path());
  const Token begin = llama->encode("<|begin_of_text|>")[0];
  const Tokens both = llama->encode("2+2=4");
  const NumberedSequence sequence = tokens_of("2+2=", "4", *llama);
  ASSERT_EQ(sequence.tokens.size(), both.size() + 2);
  EXPECT_EQ(sequence.tokens.front(), begin);
  EXPECT_EQ(sequence.tokens.back(), llama->end_of_text());
  EXPECT_TRUE(std::equal(both.begin(), both.end(), sequence.tokens.begin() + 1));
  const auto prompt = static_cast<Token>(llama->encode("2+2=").size() + 1);
  EXPECT_EQ(sequence.numbers, (Tokens{prompt, static_cast<Token>(sequence.tokens.size())}));

  const NumberedSequence spelled = tokens_of("<|begin_of_text|>2+2=", "4<|eot_id|>", *llama);
  EXPECT_EQ(spelled.tokens, sequence.tokens) << "what is spelled out is not added again";
  EXPECT_EQ(spelled.numbers, sequence.numbers);

  const auto bytes = opened("bytes");
  EXPECT_EQ(tokens_of("ab", "c", *bytes).tokens, (Tokens{'a', 'b', 'c', 256}));
}

TEST(Completions, OfAChatAreAllReplies) {
  const auto bytes = opened("bytes");
  const NumberedSequence chat =
      completion_tokens({{"a", false}, {"b", false}, {"cd", true}, {"e", false}, {"f", true}}, *bytes);
  EXPECT_EQ(chat.tokens, (Tokens{'a', 'b', 'c', 'd', 'e', 'f', 256}));
  EXPECT_EQ(chat.numbers, (Tokens{2, 4, 5, 7})) << "the end of text is the last one's";
  const NumberedSequence question = completion_tokens({{"a", true}, {"b", true}, {"c", false}}, *bytes);
  EXPECT_EQ(question.tokens, (Tokens{'a', 'b', 'c', 256}));
  EXPECT_EQ(question.numbers, (Tokens{0, 2})) << "nobody learns where a question ends";
}

/// Chats are in the tokens of a whole text, whichever words the turns begin and end in.
TEST(Completions, OfSegmentsCoverWhatIsLearned) {
  for (const char* name : {"gpt2.json", "llama2.json", "llama3.json"}) {
    const auto tokenizer = opened(fixture(name));
    const Segments chat = {
        {"Is the we", false}, {"ft ready? Y", true}, {"es it", false}, {" is.", true}, {" So", false}};
    std::string text;
    for (const Segment& segment : chat) text += segment.text;
    const NumberedSequence sequence = completion_tokens(chat, *tokenizer);
    const Tokens whole = tokenizer->encode_document(text);
    EXPECT_TRUE(std::equal(whole.begin(), whole.end(), sequence.tokens.begin())) << name;
    ASSERT_EQ(sequence.numbers.size(), 4u) << name;
    EXPECT_TRUE(std::ranges::is_sorted(sequence.numbers)) << name;
    const auto read = [&](size_t begin, size_t end) {
      return *tokenizer->decode(std::span(sequence.tokens).subspan(begin, end - begin));
    };
    const auto bound = [&](size_t i) { return static_cast<size_t>(sequence.numbers[i]); };
    // A token of two segments belongs to the later one, so that each part begins early and ends early.
    EXPECT_TRUE(read(bound(0), bound(1)).ends_with("ready? Y") ||
                read(bound(0), bound(1)).ends_with("ready?"))
        << name << ": " << read(bound(0), bound(1));
    EXPECT_NE(read(bound(2), bound(3)).find("is."), std::string::npos) << name;
    EXPECT_LT(bound(3), sequence.tokens.size()) << "the end is not learned";
  }
}

/// "the we" ends in the middle of a token of the whole text.
TEST(Completions, ATokenOfBothIsTheCompletions) {
  for (const char* name : {"gpt2.json", "llama2.json", "mistral.json"}) {
    const auto tokenizer = opened(fixture(name));
    const std::string text = "the weft is the weft";
    const Tokens whole = tokenizer->encode_document(text);
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const NumberedSequence sequence = tokens_of(text.substr(0, cut), text.substr(cut), *tokenizer);
      ASSERT_EQ(sequence.tokens.size(), whole.size() + 1);
      EXPECT_TRUE(std::equal(whole.begin(), whole.end(), sequence.tokens.begin())) << name << " at " << cut;
      const auto prompt = static_cast<size_t>(sequence.numbers[0]);
      const std::string read = *tokenizer->decode(
          std::span(whole).subspan(tokenizer->begun(whole)).first(prompt - tokenizer->begun(whole)));
      const size_t space = read.starts_with(' ') ? 1 : 0;  // which SentencePiece puts in front
      EXPECT_TRUE(text.substr(0, cut).starts_with(read.substr(space)))
          << name << ": \"" << read << "\" at " << cut;
      EXPECT_LT(prompt, sequence.tokens.size() - 1) << "something is left to learn";
    }
  }
}

/// 40 sums; their tokens are bytes.
std::vector<Segments> sums() {
  std::vector<Segments> sums;
  for (int i = 0; i < 40; ++i)
    sums.push_back({{fmt::format("{} and {} = ", i, 3 * i), false},
                    {std::string(static_cast<size_t>(1 + i % 7), 'x'), true}});
  return sums;
}

class CompletionBatch : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto made = tokenize_completions(sums(), folder_ / "data", *opened("bytes"), 0.25);
    LOOM_ASSERT_OK(made);
    EXPECT_EQ(made->train, 30u);
    EXPECT_EQ(made->validation, 10u);
    Result<std::shared_ptr<const StoredSequences>> data = open_completions(folder_ / "data", Split::train);
    LOOM_ASSERT_OK(data);
    data_ = data.take();
  }

  int64_t tokens_of_all() const {
    size_t count = 0;
    for (uint64_t i = 0; i < data_->size(); ++i) count += data_->tokens(i).size();
    return static_cast<int64_t>(count);
  }
  static int64_t count(const Tokens& targets) {
    return std::ranges::count_if(targets, [](Token target) { return target >= 0; });
  }

  const TemporaryFolder folder_;
  std::shared_ptr<const StoredSequences> data_;
};

TEST_F(CompletionBatch, HasTheCompletionsTokensAsTargets) {
  EXPECT_TRUE(holds_completions(folder_ / "data"));
  EXPECT_FALSE(holds_completions(folder_.path()));
  constexpr int64_t kLength = 24, kRows = 5;
  const auto batches = CompletionBatches::create(data_, {kLength, kRows, 1, true});
  LOOM_ASSERT_OK(batches);
  EXPECT_EQ(batches->windows(), 30u);
  EXPECT_EQ(batches->note(), "");
  Tokens inputs(kLength * kRows), targets(inputs.size());
  std::vector<std::string> seen;
  for (uint64_t step = 0; step < 6; ++step) {
    LOOM_ASSERT_OK(batches->read(step, {0, kRows}, inputs, targets));
    EXPECT_EQ(batches->targets(step, kRows), count(targets));
    EXPECT_EQ(batches->targets(step, 2), count(Tokens(targets.begin(), targets.begin() + 2 * kLength)));
    for (int64_t row = 0; row < kRows; ++row) {
      std::string prompt, completion;
      bool ended = false;
      for (int64_t at = row * kLength; at < (row + 1) * kLength; ++at) {
        const Token input = inputs[static_cast<size_t>(at)], target = targets[static_cast<size_t>(at)];
        if (target == 256) ended = true;
        else if (target >= 0) completion += static_cast<char>(target);
        if (completion.empty() && input != 256) prompt += static_cast<char>(input);
        if (target >= 0 && target != 256) {
          EXPECT_EQ(target, inputs[static_cast<size_t>(at) + 1]);
        }
      }
      EXPECT_TRUE(ended) << "the end is learned, too";
      EXPECT_TRUE(completion.find_first_not_of('x') == completion.npos && !completion.empty()) << completion;
      seen.push_back(prompt + completion);
    }
  }
  std::ranges::sort(seen);
  EXPECT_EQ(std::ranges::unique(seen).begin(), seen.end()) << "an epoch has each once";
}

TEST_F(CompletionBatch, AnyPartIsThatOfTheWhole) {
  const auto batches = CompletionBatches::create(data_, {20, 8, 1, true});
  LOOM_ASSERT_OK(batches);
  Tokens inputs(160), targets(160), some(40), wanted(40);
  LOOM_ASSERT_OK(batches->read(3, {0, 8}, inputs, targets));
  for (int64_t row = 0; row < 8; row += 2) {
    LOOM_ASSERT_OK(batches->read(3, {row, 2}, some, wanted));
    EXPECT_TRUE(std::equal(some.begin(), some.end(), inputs.begin() + row * 20));
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), targets.begin() + row * 20));
  }
}

/// Whole texts one after the other, and what is learned of each.
TEST_F(CompletionBatch, WithSeveralTextsHasEachOnce) {
  constexpr int64_t kLength = 64;
  const auto alone = CompletionBatches::create(data_, {kLength, 1, 1, false});
  const auto packed =
      CompletionBatches::create(data_, {.sequence_length = kLength, .global_batch = 1, .pack = true});
  LOOM_ASSERT_OK(alone);
  LOOM_ASSERT_OK(packed);
  EXPECT_LE(packed->windows(), 12u);
  EXPECT_NE(alone->dataset_key(), packed->dataset_key());
  EXPECT_EQ(packed->note(), fmt::format("30 texts share {} sequences of 64 tokens, which are {:.0f} % full",
                                        packed->windows(),
                                        100.0 * static_cast<double>(tokens_of_all()) /
                                            static_cast<double>(packed->windows() * kLength)));
  const auto texts_of = [&](const CompletionBatches& batches) {
    std::vector<std::pair<Tokens, Tokens>> texts;
    Tokens inputs(kLength), targets(kLength);
    for (uint64_t step = 0; step < batches.windows(); ++step) {
      EXPECT_TRUE(batches.read(step, {0, 1}, inputs, targets).ok());
      EXPECT_EQ(batches.targets(step, 1), count(targets));
      for (size_t first = 0, at = 0; at < inputs.size(); ++at) {
        if (inputs[at] != 256) continue;  // the end of text, which also fills up
        if (at > first) {
          const auto part = [&](const Tokens& all) {
            return Tokens(all.begin() + static_cast<ptrdiff_t>(first),
                          all.begin() + static_cast<ptrdiff_t>(at));
          };
          texts.push_back({part(inputs), part(targets)});
          const bool divides = &batches == &*packed && at + 1 < inputs.size();
          EXPECT_EQ(targets[at], divides ? kEndsText : kNoTarget) << at;
        }
        first = at + 1;
      }
    }
    std::ranges::sort(texts);
    return texts;
  };
  EXPECT_EQ(texts_of(*packed), texts_of(*alone));
  EXPECT_EQ(texts_of(*packed).size(), 30u);
}

TEST_F(CompletionBatch, LeavesOutPromptsWithoutRoomAndCutsTheRest) {
  // Prompts have from 10 bytes on ("0 and 0 = "), so that some completions have room in 11 tokens.
  const auto batches = CompletionBatches::create(data_, {11, 4, 1, true});
  LOOM_ASSERT_OK(batches);
  EXPECT_LT(batches->windows(), 30u);
  EXPECT_GT(batches->windows(), 0u);
  EXPECT_NE(batches->note().find(fmt::format("leave out {}, of which", 30 - batches->windows())),
            std::string::npos)
      << batches->note();
  EXPECT_NE(batches->note().find("of 30 texts, sequences of 11 tokens cut"), std::string::npos);
  Tokens inputs(44), targets(44);
  for (uint64_t step = 0; step < 20; ++step) {
    LOOM_ASSERT_OK(batches->read(step, {0, 4}, inputs, targets));
    for (int64_t row = 0; row < 4; ++row)
      EXPECT_GT(count(Tokens(targets.begin() + row * 11, targets.begin() + (row + 1) * 11)), 0);
    EXPECT_EQ(batches->targets(step, 4), count(targets));
  }
  EXPECT_TRUE(
      fails_with(CompletionBatches::create(data_, {4, 4}), Code::invalid_argument,
                 "sequences of 4 tokens have no room for any of the 30 completions behind their prompts; the "
                 "shortest needs 10"));
}

/// The second reply counts as far as T reaches; the question between them does not.
TEST_F(CompletionBatch, OfAChatHasTheTokensOfEveryReply) {
  const std::vector<Segments> chats(2, {{"ab", false}, {"cd", true}, {"ef", false}, {"gh", true}});
  const auto made = tokenize_completions(chats, folder_ / "chats", *opened("bytes"), 0);
  LOOM_ASSERT_OK(made);
  EXPECT_EQ(made->train, 2u);
  EXPECT_EQ(made->longest, 9u);
  const auto data = open_completions(folder_ / "chats", Split::train);
  LOOM_ASSERT_OK(data);
  EXPECT_TRUE(fails_with(open_completions(folder_ / "chats", Split::validation), Code::not_found,
                         "no validation split"));
  const auto targets_of = [&](int64_t length) {
    const auto batches = CompletionBatches::create(*data, {length, 1});
    EXPECT_TRUE(batches.ok());
    Tokens inputs(static_cast<size_t>(length)), targets(inputs.size());
    EXPECT_TRUE(batches->read(0, {0, 1}, inputs, targets).ok());
    EXPECT_EQ(batches->targets(0, 1), count(targets));
    return targets;
  };
  EXPECT_EQ(targets_of(9), (Tokens{-1, 'c', 'd', -1, -1, 'g', 'h', 256, -1}));
  EXPECT_EQ(targets_of(6), (Tokens{-1, 'c', 'd', -1, -1, 'g'}));
  EXPECT_EQ(targets_of(4), (Tokens{-1, 'c', 'd', -1}));
}

TEST_F(CompletionBatch, BoundsThatAreNoneAreRefused) {
  const auto bytes = opened("bytes");
  for (const Tokens& bounds : {Tokens{1}, Tokens{2, 1}, Tokens{0, 5}}) {
    const std::vector<NumberedSequence> sequences(2, {{'a', 'b', 256}, bounds});
    LOOM_ASSERT_OK(write_sequences(sequences, folder_ / "bad", *bytes, 0.5, "prompts",
                                   {{"format", "loom completions"}}));
    EXPECT_TRUE(fails_with(open_completions(folder_ / "bad", Split::train), Code::invalid_data,
                           "sequence 0 of the train split of"));
  }
}

TEST_F(CompletionBatch, FoldersOfOtherDataAreRefused) {
  const std::string path = folder_ / "data/dataset.json";
  format::Json json = *format::read_json(path);
  json["format"] = "loom tokens";
  LOOM_ASSERT_OK(format::write_json(path, json));
  EXPECT_TRUE(fails_with(open_completions(folder_ / "data", Split::train), Code::invalid_data,
                         "`loom tokenize --completions` makes prompts"));
  EXPECT_TRUE(fails_with(open_completions(folder_.path(), Split::train), Code::not_found, "dataset.json"));
}

}  // namespace
}  // namespace loom::text
