// Which tokens begin and end a text, as config.json of a saved model says it: null, and `generate()` of
// `transformers` never stops.
#include "train/token_ids.h"

#include "model/hugging_face.h"
#include "train/runs.h"
#include "train/stored_state.h"

namespace loom::testing {
namespace {

using format::Json;

class TokenIds : public SteadyRuns {
 protected:
  TokenIds() { config_.run.steps = config_.run.evaluation_steps = 1; }
  /// config.json of the model that such a run saves.
  Json saved(const train::Config& config) {
    run_on(1, config, [](train::Trainer& trainer) { LOOM_ASSERT_OK(trainer.save_model()); });
    return *format::read_config(config.run.out + "/model");
  }
  static void expect(const Json& config, const Json& begin, const Json& end) {
    EXPECT_EQ(config["bos_token_id"], begin);
    EXPECT_EQ(config["eos_token_id"], end);
  }
};

TEST_F(TokenIds, OfANewModelAreTheTokenizers) {
  expect(saved(config_), 256, 256);
  const std::string checkpoint = config_.run.out + "/checkpoints/step-00000001";
  LOOM_ASSERT_OK(train::export_model(checkpoint, folder_ / "exported"));
  expect(*format::read_config(folder_ / "exported"), 256, 256);
  // A checkpoint of an earlier version has none.
  Json manifest = *format::read_json(checkpoint + "/manifest.json");
  manifest["model"]["bos_token_id"] = manifest["model"]["eos_token_id"] = nullptr;
  LOOM_ASSERT_OK(format::write_json(checkpoint + "/manifest.json", manifest));
  LOOM_ASSERT_OK(train::export_model(checkpoint, folder_ / "again"));
  expect(*format::read_config(folder_ / "again"), 256, 256);
}

/// They used to be lost.
TEST_F(TokenIds, OfAModelThatCameWithSomeStay) {
  Json given = saved(config_);
  given["bos_token_id"] = nullptr;
  given["eos_token_id"] = {7, 9};
  LOOM_ASSERT_OK(format::write_config(config_.run.out + "/model", given));
  train::Config tuned = config_;
  tuned.model = {};
  tuned.model.from = config_.run.out + "/model";
  tuned.run.out = folder_ / "tuned";
  expect(saved(tuned), 256, {7, 9});
  train::Config further = config_;
  further.run.steps = 2;
  further.run.out = folder_ / "further";
  further.run.resume_from = tuned.run.out + "/checkpoints/step-00000001";
  expect(saved(further), 256, {7, 9});
}

/// `transformers` cuts a text to that, where it is asked to cut; without it, a longer text fails in the
/// model.
TEST_F(TokenIds, ASavedTokenizerKnowsHowMuchItsModelReads) {
  const auto longest = [](const std::string& folder) {
    return format::read_json(folder + "/tokenizer_config.json")->value("model_max_length", Json());
  };
  config_.model.context = 3 * config_.data.sequence_length;
  saved(config_);
  EXPECT_EQ(longest(config_.run.out + "/model"), config_.model.context);
  LOOM_ASSERT_OK(train::export_model(config_.run.out + "/checkpoints/step-00000001", folder_ / "exported"));
  EXPECT_EQ(longest(folder_ / "exported"), config_.model.context);
  config_.run.out = folder_ / "unbounded";
  config_.model.family = "bloom";
  saved(config_);
  EXPECT_EQ(longest(config_.run.out + "/model"), Json());
}

/// A classifier finds the end of a text by it.
TEST_F(TokenIds, WhatFillsUpIsWhatTheModelWasTrainedWith) {
  const auto bytes = text::open_tokenizer("bytes");
  Json config = {{"pad_token_id", 256}};
  train::set_token_ids({{"pad_token_id", 0}}, **bytes, config);
  EXPECT_EQ(config["pad_token_id"], 256);
  config["pad_token_id"] = nullptr;
  train::set_token_ids({{"pad_token_id", 0}}, **bytes, config);
  EXPECT_EQ(config["pad_token_id"], 0);
}

TEST_F(TokenIds, WhatNobodyKnowsStaysAsItIs) {
  const auto words = text::open_tokenizer(fixture("bloom.json"));
  LOOM_ASSERT_OK(words);
  Json config;
  train::set_token_ids({}, **words, config);
  expect(config, *(*words)->specials().begin, *(*words)->end_of_text());
  EXPECT_NE(config["bos_token_id"], config["eos_token_id"]);
  train::set_token_ids({{"bos_token_id", nullptr}, {"eos_token_id", 3}}, **words, config);
  expect(config, *(*words)->specials().begin, 3);
}

}  // namespace
}  // namespace loom::testing
