// Token by token with a cache, and all at once: the same logits.
#include "model/inference.h"

#include <filesystem>

#include "base/process_memory.h"
#include "format/json_file.h"
#include "model/fixtures.h"
#include "ops/arrays.h"

namespace loom::testing {
namespace {

class Cached : public ::testing::TestWithParam<const char*> {};

TEST_P(Cached, EveryTokenHasTheLogitsOfARecomputation) {
  const std::string folder = fixture(GetParam());
  WholeModel<float> whole = load_whole(folder);
  auto opened = model::Inference::open(folder, 2);
  LOOM_ASSERT_OK(opened);
  model::Inference& model = **opened;
  const std::vector<int32_t> tokens = {5, 9, 4, 4, 17, 20, 8, 6, 11, 28};
  whole.step(tokens, std::vector<int32_t>(tokens.size(), 1), 1);
  for (int text = 0; text < 2; ++text, model.restart())
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto logits = model.feed(tokens[i]);
      LOOM_ASSERT_OK(logits);
      EXPECT_LT(error_of(doubles(*logits), doubles(whole.logits(static_cast<int64_t>(i)))), 1e-5) << i;
    }
}

INSTANTIATE_TEST_SUITE_P(Families, Cached,
                         ::testing::Values("gpt2-tied", "families/gptj", "families/gpt_neox",
                                           "families/gpt_neox-serial", "families/gpt_neo", "families/bloom",
                                           "families/llama-llama3", "families/mistral",
                                           "families/qwen2-window", "families/qwen3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '/');
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Inference, ClassifiesAsTheWholeModel) {
  for (const char* name : {"families/bert-classification", "families/roberta-classification",
                           "families/gptj-classification", "families/llama-classification"}) {
    WholeModel<float> whole = load_whole(fixture(name));
    auto opened = model::Inference::open(fixture(name), 1);
    LOOM_ASSERT_OK(opened);
    const std::vector<int32_t> tokens = {5, 9, 4, 17, 20, 6, 8, 3, 3, 3}, targets(10, 1);
    whole.step(tokens, targets, 2);
    const auto logits = (*opened)->classify(tokens, 2, (*opened)->spec().padding);
    LOOM_ASSERT_OK(logits);
    Doubles wanted;
    for (const int64_t row : {0, 5})
      for (const float value : whole.logits(row)) wanted.push_back(value);
    EXPECT_LT(error_of(doubles(*logits), wanted), 1e-6);
  }
}

/// What the files of a model say of padding is not always what a dataset has: often they say nothing.
TEST(Inference, PaddingIsWhatSequencesAreFilledUpWith) {
  auto opened = model::Inference::open(fixture("families/gptj-classification"), 1);
  LOOM_ASSERT_OK(opened);
  const auto plain = (*opened)->classify(std::vector<int32_t>{5, 9, 4}, 1, (*opened)->spec().padding);
  LOOM_ASSERT_OK(plain);
  const auto filled_up = (*opened)->classify(std::vector<int32_t>{5, 9, 4, 27, 27}, 1, 27);
  LOOM_ASSERT_OK(filled_up);
  EXPECT_LT(error_of(doubles(*filled_up), doubles(*plain)), 1e-6);
  auto roberta = model::Inference::open(fixture("families/roberta-classification"), 1);
  LOOM_ASSERT_OK(roberta);
  EXPECT_TRUE(fails_with((*roberta)->classify(std::vector<int32_t>{5, 27}, 1, 27), Code::invalid_argument,
                         "filled up with token 27"));
}

TEST(Inference, SizesThatNoMachineHasAreRefusedBeforeTheyAreAllocated) {
  const TemporaryFolder folder;
  const auto open_with = [&](const char* name, const char* key, int64_t value, int64_t width) {
    std::filesystem::copy(
        fixture(name), folder.path(),
        std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
    format::Json config = *format::read_config(fixture(name));
    config[key] = value;
    config["n_embd"] = width;
    EXPECT_TRUE(format::write_config(folder.path(), config).ok());
    return model::Inference::open(folder.path(), 1);
  };
  EXPECT_TRUE(fails_with(open_with("gpt2-tied", "vocab_size", 900'000'000, 1'000'000), Code::out_of_memory,
                         "the model's parameters take"));
}

/// Keys and values of the longest context that a config.json asked for were taken at once.
TEST(Inference, RoomForKeysAndValuesGrowsWithTheText) {
  const TemporaryFolder folder;
  std::filesystem::copy(fixture("families/llama"), folder.path(), std::filesystem::copy_options::recursive);
  format::Json config = *format::read_config(folder.path());
  config["max_position_embeddings"] = INT32_MAX;
  LOOM_ASSERT_OK(format::write_config(folder.path(), config));
  auto opened = model::Inference::open(folder.path(), 1);
  LOOM_ASSERT_OK(opened);
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 600; ++i) tokens.push_back(i * i % 29);
  WholeModel<float> whole = load_whole(folder.path());
  whole.step(tokens, std::vector<int32_t>(tokens.size(), 1), 1);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto logits = (*opened)->feed(tokens[i]);
    LOOM_ASSERT_OK(logits);
    EXPECT_LT(error_of(doubles(*logits), doubles(whole.logits(static_cast<int64_t>(i)))), 1e-4) << i;
  }
}

TEST(Inference, AClassifierWithoutItsHeadIsRefused) {
  const TemporaryFolder folder;
  std::filesystem::copy(fixture("families/bert-classification/config.json"), folder / "config.json");
  std::filesystem::copy(fixture("families/bert/model.safetensors"), folder / "model.safetensors");
  EXPECT_TRUE(fails_with(model::Inference::open(folder.path(), 1), Code::not_found, "bert.pooler.dense"));
}

TEST(Inference, RefusesWhatDoesNotApply) {
  auto bert = model::Inference::open(fixture("families/bert"), 1);
  LOOM_ASSERT_OK(bert);
  EXPECT_TRUE(
      fails_with((*bert)->feed(5), Code::unsupported, "a bert model of task masked does not continue texts"));
  EXPECT_TRUE(fails_with((*bert)->classify(std::vector<int32_t>{5}, 1, 0), Code::unsupported,
                         "the model is masked, must be a classification"));
  auto gpt = model::Inference::open(fixture("families/gptj"), 1);
  LOOM_ASSERT_OK(gpt);
  EXPECT_TRUE(fails_with((*gpt)->feed(29), Code::invalid_argument, "token 29 is not in"));
  for (int i = 0; i < 12; ++i) LOOM_ASSERT_OK((*gpt)->feed(5));
  EXPECT_TRUE(fails_with((*gpt)->feed(5), Code::invalid_argument, "the context of 12 tokens is full"));
}

}  // namespace
}  // namespace loom::testing
