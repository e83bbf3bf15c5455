// A folder that was taken for another is named, with the one that would be right.
#include "train/folders.h"

#include <filesystem>

#include "train/runs.h"
#include "train/stored_state.h"

namespace loom::testing {
namespace {

using train::Wanted;

class Folders : public Runs {
 protected:
  Folders() {
    make_tokens(config_.data.folder);
    config_.run.steps = 2;
    config_.run.evaluation_steps = 1;
    run_on(1, config_, [](train::Trainer& trainer) { LOOM_ASSERT_OK(trainer.save_model()); });
  }

  /// The path is refused as what is wanted, and the sentence has these words.
  static ::testing::AssertionResult refused(const std::string& path, Wanted wanted,
                                            const std::string& words) {
    return fails_with(train::expect(path, wanted), Code::not_found, words);
  }

  const std::string run_ = folder_ / "out", model_ = run_ + "/model", checkpoints_ = run_ + "/checkpoints",
                    checkpoint_ = checkpoints_ + "/step-00000002";
};

TEST_F(Folders, TheRightOnesPass) {
  LOOM_ASSERT_OK(train::expect(model_, Wanted::model));
  LOOM_ASSERT_OK(train::expect(checkpoint_, Wanted::checkpoint));
  for (const std::string& path : {model_, checkpoint_, config_.data.folder, model_ + "/model.safetensors"})
    LOOM_ASSERT_OK(train::expect(path, Wanted::stored));
  LOOM_ASSERT_OK(train::expect(config_.data.folder, Wanted::dataset));
  LOOM_ASSERT_OK(train::expect(folder_.path(), Wanted::model));  // what nobody knows, its reader refuses
}

TEST_F(Folders, ARunsFolderIsNotWhatLiesInIt) {
  EXPECT_TRUE(refused(run_, Wanted::model, "is the folder of a run: its model is " + model_));
  EXPECT_TRUE(refused(run_, Wanted::checkpoint, "its newest checkpoint is " + checkpoint_));
  EXPECT_TRUE(refused(run_, Wanted::stored, model_ + ", its newest checkpoint " + checkpoint_));
  EXPECT_TRUE(refused(run_, Wanted::dataset, "`loom tokenize FILES --out FOLDER`"));
  EXPECT_TRUE(refused(checkpoints_, Wanted::checkpoint, "its newest checkpoint is " + checkpoint_));
  EXPECT_TRUE(refused(checkpoints_, Wanted::model, "`loom export " + checkpoint_ + " --out FOLDER`"));
  std::filesystem::remove_all(model_);
  EXPECT_TRUE(refused(run_, Wanted::model, "`loom export " + checkpoint_ + " --out FOLDER` makes a model"));
  std::filesystem::remove(checkpoint_ + "/manifest.json");
  EXPECT_TRUE(refused(run_, Wanted::checkpoint, "no complete checkpoint"));
}

TEST_F(Folders, NothingReplacesWhatIsSomethingElse) {
  using train::Made;
  const auto refused = [](Made made, const std::string& path, const std::string& words) {
    return fails_with(train::expect_place_for(made, path), Code::invalid_argument, words);
  };
  LOOM_ASSERT_OK(train::expect_place_for(Made::run, run_));
  LOOM_ASSERT_OK(train::expect_place_for(Made::model, model_));
  LOOM_ASSERT_OK(train::expect_place_for(Made::dataset, config_.data.folder));
  for (const Made made : {Made::run, Made::model, Made::dataset})
    LOOM_ASSERT_OK(train::expect_place_for(made, folder_ / "new"));
  EXPECT_TRUE(refused(Made::run, model_, "is a model, whose config.json a run would replace"));
  EXPECT_TRUE(refused(Made::dataset, model_, "is a model, whose tokenizer that of a dataset would replace"));
  EXPECT_TRUE(refused(Made::model, run_, "is the folder of a run"));
  EXPECT_TRUE(refused(Made::model, checkpoint_, "is a checkpoint"));
  EXPECT_TRUE(refused(Made::model, config_.data.folder, "is a dataset"));
  const std::string own = folder_ / "own";
  std::filesystem::create_directory(own);
  put_file(own + "/config.json", "{\"run\": {\"steps\": 3}}");
  EXPECT_TRUE(refused(Made::run, own, "has a config.json of no run, which a run would replace"));
  EXPECT_TRUE(refused(Made::model, own, "has a config.json of no model"));
  put_file(own + "/log.jsonl", "");  // as a run begins
  LOOM_ASSERT_OK(train::expect_place_for(Made::run, own));

  config_.run.out = model_;
  EXPECT_TRUE(fails_with(train::Trainer::create(config_, nullptr), Code::invalid_argument, "run.out: "));
  EXPECT_TRUE(
      fails_with(train::export_model(checkpoint_, run_), Code::invalid_argument, "name another folder"));
}

/// The config's data.folder may be relative, and another folder from there.
TEST_F(Folders, AnExportWithoutTheDatasetHasTheTokenizerOfTheRunsModel) {
  std::filesystem::rename(config_.data.folder, folder_ / "elsewhere");
  const Result<train::Exported> exported = train::export_model(checkpoint_, folder_ / "exported");
  LOOM_ASSERT_OK(exported);
  EXPECT_TRUE(exported->tokenizer);
  LOOM_ASSERT_OK(text::open_tokenizer(folder_ / "exported"));
  std::filesystem::remove_all(model_);
  const Result<train::Exported> bare = train::export_model(checkpoint_ + "/", folder_ / "bare");
  LOOM_ASSERT_OK(bare);
  EXPECT_FALSE(bare->tokenizer);
  EXPECT_EQ(bare->dataset, config_.data.folder);
}

TEST_F(Folders, ARunGoesOnInTheFolderOfItsDataset) {
  config_.run.out = config_.data.folder;
  config_.run.steps = 1;
  run_on(1, config_, [](train::Trainer&) {});
  put_file(config_.run.out + "/log.jsonl", "");
  put_file(config_.run.out + "/config.json", R"({"run": {"steps": 1}})");
  config_.run.steps = 2;
  run_on(1, config_, [](train::Trainer& trainer) { EXPECT_EQ(trainer.next_step(), 2); });
  put_file(config_.run.out + "/config.json", "{}");
  std::filesystem::remove_all(config_.run.out + "/checkpoints");
  EXPECT_TRUE(fails_with(train::expect_place_for(train::Made::run, config_.run.out), Code::invalid_argument,
                         "has a config.json of no run"));
}

TEST_F(Folders, ModelsCheckpointsAndDatasetsAreToldApart) {
  EXPECT_TRUE(refused(checkpoint_, Wanted::model, "is a checkpoint: `loom export " + checkpoint_));
  EXPECT_TRUE(refused(model_, Wanted::checkpoint, "is a model, no checkpoint"));
  EXPECT_TRUE(refused(config_.data.folder, Wanted::model, "is a dataset: a model is a folder"));
  EXPECT_TRUE(refused(model_, Wanted::dataset, "is a model: `loom tokenize"));
}

TEST_F(Folders, FilesAndMissingOnesNameWhatLiesBesideThem) {
  EXPECT_TRUE(refused(model_ + "/model.safetensors", Wanted::model,
                      "is a file: " + model_ + ", its folder, would be right"));
  EXPECT_TRUE(refused(checkpoint_ + "/manifest.json", Wanted::checkpoint,
                      checkpoint_ + ", its folder, would be right"));
  EXPECT_TRUE(refused(run_ + "/modle", Wanted::model, "its model is " + model_));
  EXPECT_TRUE(refused(checkpoints_ + "/step-00000099", Wanted::checkpoint,
                      "its newest checkpoint is " + checkpoint_));
  put_file(folder_ / "config.json", R"({"run": {"steps": 2}})");  // a user's own, which makes no run
  EXPECT_TRUE(refused(folder_ / "nowhere", Wanted::model, "nowhere\": a model is a folder with"));
  EXPECT_TRUE(refused(folder_ / "nowhere", Wanted::dataset, "nowhere\": `loom tokenize FILES"));
}

}  // namespace
}  // namespace loom::testing
