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
  LOOM_ASSERT_OK(train::export_model(tuned_.run.out + "/checkpoints/step-00000001", folder_ / "exported"));
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
