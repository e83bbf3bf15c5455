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
    LOOM_ASSERT_OK(format::write_json(from_ + "/tokenizer_config.json", tokenizer));
    tuned_ = config_;
    tuned_.model = {};
    tuned_.model.from = from_;
    tuned_.run.out = folder_ / "tuned";
  }
  static void run(const train::Config& config) {
    run_on(1, config, [](train::Trainer& trainer) { LOOM_ASSERT_OK(trainer.save_model()); });
  }
  static void expect_companions(const std::string& folder) {
    EXPECT_EQ(get_file(folder + "/generation_config.json"), "{\"temperature\": 0.6}\n");
    EXPECT_EQ(get_file(folder + "/chat_template.jinja"), "{{ messages }}");
    const Json tokenizer = *format::read_json(folder + "/tokenizer_config.json");
    EXPECT_EQ(tokenizer["chat_template"], "{{ message }}");
    EXPECT_TRUE(tokenizer.contains("tokenizer_class")) << "the rest is the tokenizer's";
  }

  std::string from_;
  train::Config tuned_;
};

/// They used to be lost, and a chat could no longer be put to the model.
TEST_F(Companions, GoWithAModelThatIsTrainedFurther) {
  run(tuned_);
  expect_companions(tuned_.run.out + "/model");
  LOOM_ASSERT_OK(train::export_model(tuned_.run.out + "/checkpoints/step-00000001", folder_ / "exported"));
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
