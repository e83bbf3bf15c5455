// What `transformers` keeps beside a model goes with it.
#include "train/companions.h"

#include "format/json_file.h"
#include "train/runs.h"
#include "train/stored_state.h"

namespace loom::testing {
namespace {

using format::Json;

class Companions : public SteadyRuns {
 protected:
  void SetUp() override {
    SteadyRuns::SetUp();
    config_.run.steps = config_.run.evaluation_steps = 1;
    run(config_);
    from_ = config_.run.out + "/model";
    put_file(from_ + "/generation_config.json", "{\"temperature\": 0.6}\n");
    put_file(from_ + "/chat_template.jinja", "{{ messages }}");
    Json tokenizer = *format::read_json(from_ + "/tokenizer_config.json");
    tokenizer["chat_template"] = "{{ message }}";
    tokenizer["bos_token"] = nullptr;
    tokenizer["extra_special_tokens"] = {{"image_token", "e"}};
    LOOM_ASSERT_OK(format::write_json(from_ + "/tokenizer_config.json", tokenizer));
    Json config = *format::read_json(from_ + "/config.json");
    config["pad_token_id"] = 7;
    LOOM_ASSERT_OK(format::write_json(from_ + "/config.json", config));
    tuned_ = config_;
    tuned_.model = {};
    tuned_.model.from = from_;
    tuned_.run.out = folder_ / "tuned";
  }
  static void run(const train::Config& config) {
    run_on(1, config, [](train::Trainer& trainer) { LOOM_ASSERT_OK(trainer.save_model()); });
  }
  void expect_companions(const std::string& folder) const {
    EXPECT_EQ(get_file(folder + "/generation_config.json"), "{\"temperature\": 0.6}\n");
    EXPECT_EQ(get_file(folder + "/chat_template.jinja"), "{{ messages }}");
    for (const char* name : {"tokenizer_config.json", "loom-tokenizer.json"})
      EXPECT_EQ(get_file(folder + "/" + name), get_file(from_ + "/" + name)) << name;
    EXPECT_EQ((*format::read_json(folder + "/config.json"))["pad_token_id"], 7);
  }

  std::string from_;
  train::Config tuned_;
};

/// They used to be lost: a chat could no longer be put to the model, and texts of a Qwen began with the token
/// that ends them.
TEST_F(Companions, GoWithAModelThatIsTrainedFurther) {
  run(tuned_);
  expect_companions(tuned_.run.out + "/model");
  LOOM_ASSERT_OK(train::export_model(tuned_.run.out + "/checkpoints/step-00000001", folder_ / "exported"));
  expect_companions(folder_ / "exported");
}

/// It was replaced without a word.
TEST_F(Companions, AModelIsNotExportedOntoTheOneThatTheRunBeganWith) {
  run(tuned_);
  EXPECT_TRUE(fails_with(train::export_model(tuned_.run.out + "/checkpoints/step-00000001", from_),
                         Code::invalid_argument,
                         "is the model that the run began with: name another folder"));
}

TEST_F(Companions, AreTakenFromTheRunWhereItsOriginIsGone) {
  run(tuned_);
  std::filesystem::rename(from_, folder_ / "moved");
  LOOM_ASSERT_OK(train::export_model(tuned_.run.out + "/checkpoints/step-00000001", folder_ / "exported"));
  from_ = folder_ / "moved";
  expect_companions(folder_ / "exported");
}

TEST_F(Companions, AreNotNeeded) {
  for (const char* name : {"generation_config.json", "chat_template.jinja"})
    std::filesystem::remove(from_ + "/" + name);
  run(tuned_);
  EXPECT_FALSE(std::filesystem::exists(tuned_.run.out + "/model/generation_config.json"));
  std::filesystem::remove_all(from_);
  const std::string checkpoint = tuned_.run.out + "/checkpoints/step-00000001";
  EXPECT_EQ(train::export_model(checkpoint, folder_ / "exported")->lost, "");
  std::filesystem::remove_all(tuned_.run.out + "/model");
  EXPECT_EQ(train::export_model(checkpoint, folder_ / "exported")->lost, from_);
}

/// A model without tokenizer.json has no tokenizer that can be copied, but may have a chat template.
TEST_F(Companions, HaveTheChatTemplateOfAModelWithoutTokenizerJson) {
  for (const char* name : {"tokenizer.json", "loom-tokenizer.json"})
    std::filesystem::remove(from_ + "/" + name);
  run(tuned_);
  const Json saved = *format::read_json(tuned_.run.out + "/model/tokenizer_config.json");
  EXPECT_EQ(saved["chat_template"], "{{ message }}");
  EXPECT_FALSE(saved.contains("extra_special_tokens")) << "the rest is the dataset's tokenizer's";
  EXPECT_TRUE(saved.contains("model_max_length"));
}

/// The tokens are the same, but data of an instruct model end otherwise than its base model does.
TEST_F(Companions, AreNotThoseOfATokenizerWithAnotherEnd) {
  const auto made = [&](const std::string& name, const std::string& end) {
    const std::string folder = folder_ / name;
    std::filesystem::create_directory(folder);
    std::filesystem::copy(fixture("llama3.json"), folder + "/tokenizer.json");
    put_file(folder + "/tokenizer.model", name);
    put_file(folder + "/tokenizer_config.json", "{\"eos_token\": \"" + end + "\", \"x\": 1}");
    return folder;
  };
  const std::string base = made("base", "<|end_of_text|>"), instruct = made("instruct", "<|eot_id|>");
  const auto tokenizer = text::open_tokenizer(instruct);
  LOOM_ASSERT_OK(tokenizer);
  const model::ModelSpec spec;
  const auto put = [&](std::initializer_list<std::string> models, const std::string& folder) {
    std::filesystem::create_directories(folder);
    if (folder != instruct) put_file(folder + "/tokenizer.model", "of another");
    LOOM_ASSERT_OK(train::put_tokenizer(**tokenizer, models, spec, folder));
    const auto found = text::open_tokenizer(folder);
    LOOM_ASSERT_OK(found);
    EXPECT_EQ((*found)->end_of_text(), (*tokenizer)->end_of_text()) << folder;
  };
  put({base}, folder_ / "saved");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "saved/tokenizer.model"));
  put({base, instruct}, folder_ / "copied");
  EXPECT_EQ(get_file(folder_ / "copied/tokenizer.model"), "instruct");
  put({"", folder_ / "none"}, folder_ / "alone");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "alone/tokenizer.model"));
  put({instruct}, instruct);
  EXPECT_EQ(get_file(instruct + "/tokenizer.model"), "instruct");
  EXPECT_EQ((*format::read_json(instruct + "/tokenizer_config.json"))["x"], 1) << "nothing is lost";
}

TEST_F(Companions, OfAClassifierAreLeftOut) {
  model::ModelSpec spec;
  spec.task = model::Task::classification;
  std::filesystem::create_directory(folder_ / "classifier");
  LOOM_ASSERT_OK(train::copy_companions(from_, spec, folder_ / "classifier"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "classifier"));
}

}  // namespace
}  // namespace loom::testing
