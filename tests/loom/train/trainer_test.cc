// Whole runs: interrupted and resumed ones have the losses of those that were not.
#include "train/trainer.h"

#include <filesystem>
#include <mutex>

#include "engine/ranks.h"
#include "text/tokenize_files.h"
#include "train/report.h"

namespace loom::testing {
namespace {

/// A dataset of bytes, and a config for a small model on it.
class Trained : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 600; ++i)
      text += fmt::format("{} times {} is {}.\n", i % 13, i % 7, i % 13 * (i % 7));
    put_file(folder_ / "text.txt", text);
    const auto tokenizer = text::open_tokenizer("bytes");
    LOOM_ASSERT_OK(tokenizer);
    LOOM_ASSERT_OK(text::tokenize_files({folder_ / "text.txt"}, folder_ / "data", **tokenizer));
    config_.data.folder = folder_ / "data";
    config_.data.sequence_length = 16;
    config_.data.global_batch = 8;
    config_.data.microbatch = 1;
    config_.model.width = 32;
    config_.model.layers = 2;
    config_.parallel.threads = 1;
    config_.parallel.strict = true;
    config_.optimizer.learning_rate = 1e-2;
    config_.run.steps = 10;
    config_.run.evaluation_steps = 2;
    config_.run.out = folder_ / "out";
  }

  /// Losses of the steps that a run of `ranks` makes; `until` ends it there.
  std::map<int64_t, double> run(train::Config config, int ranks, int degree, int64_t until = 1000) {
    config.parallel.sharded_data_parallel_degree = degree;
    const bool whole = until >= config.run.steps;
    if (!whole) config.run.steps = until;
    std::map<int64_t, double> losses;
    std::mutex mutex;
    on_ranks(ranks, 1, [&](weftComm_t world) {
      Result<std::unique_ptr<train::Trainer>> trainer = train::Trainer::create(config, world);
      LOOM_ASSERT_OK(trainer);
      LOOM_ASSERT_OK((*trainer)->run([&](const train::StepRecord& record) {
        const std::lock_guard lock(mutex);
        losses[record.step] = record.loss;
        if (record.validation_loss) validation_ = *record.validation_loss;
      }));
      if (whole) LOOM_ASSERT_OK((*trainer)->save_model());
    });
    return losses;
  }

  TemporaryFolder folder_;
  train::Config config_;
  double validation_ = 0;
};

TEST_F(Trained, LearnsSavesAndValidates) {
  config_.run.steps = 60;
  config_.parallel.strict = false;
  config_.data.microbatch = 0;
  const auto losses = run(config_, 1, 1);
  EXPECT_LT(losses.at(59), 0.6 * losses.at(0));
  EXPECT_LT(validation_, 0.6 * losses.at(0));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "out/model/model.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "out/checkpoints/step-00000060/manifest.json"));
}

TEST_F(Trained, ResumedRunsHaveTheSameLossesOnAnyLayout) {
  config_.optimizer.schedule = "constant";  // the cosine depends on where a run ends
  const auto wanted = run(config_, 1, 1);
  for (const auto& [ranks, degree] : {std::pair{1, 1}, {2, 2}, {4, 2}}) {
    config_.run.out = folder_ / fmt::format("out-{}-{}", ranks, degree);
    config_.run.checkpoint_every = 2;
    const auto first = run(config_, 2, 2, 6);
    EXPECT_EQ(first.size(), 6u);
    const auto rest = run(config_, ranks, degree);
    EXPECT_EQ(rest.size(), 4u);
    for (const auto& [step, loss] : first) EXPECT_EQ(loss, wanted.at(step)) << step;
    for (const auto& [step, loss] : rest) EXPECT_EQ(loss, wanted.at(step)) << step << " on " << ranks;
  }
}

TEST_F(Trained, CheckpointsOfAnyTensorDegreeResumeOnAnyOther) {
  config_.optimizer.schedule = "constant";
  config_.parallel.strict = false;
  config_.data.microbatch = 0;
  config_.run.steps = 6;
  const auto wanted = run(config_, 1, 1);
  struct Division {
    int ranks, tensor, shard;
    const char* optimize;
    bool prescaled;
  };
  const Division one{1, 1, 1, "speed", true}, two{2, 2, 1, "memory", false}, four{4, 4, 1, "speed", true},
      both{4, 2, 2, "memory", false};
  int number = 0;
  for (const auto& [before, after] : {std::pair{one, two}, {two, one}, {four, both}, {both, four}}) {
    config_.run.out = folder_ / fmt::format("out-{}", ++number);
    const auto part = [&](const Division& division, int64_t until) {
      train::Config config = config_;
      config.parallel.tensor_degree = division.tensor;
      config.parallel.optimize = division.optimize;
      config.parallel.prescaled_batch = division.prescaled;
      return run(config, division.ranks, division.shard, until);
    };
    auto losses = part(before, 3);
    losses.merge(part(after, 1000));
    ASSERT_EQ(losses.size(), 6u);
    for (const auto& [step, loss] : losses) EXPECT_NEAR(loss, wanted.at(step), 1e-5 * loss) << step;
    // The model that was saved is the one that one rank made.
    train::Config tuned = config_;
    tuned.model = {};
    tuned.model.from = config_.run.out + "/model";
    tuned.run.out = folder_ / fmt::format("tuned-{}", number);
    tuned.run.steps = 1;
    train::Config same = tuned;
    same.model.from = folder_ / "out/model";
    same.run.out = folder_ / fmt::format("same-{}", number);
    const double loss = run(same, 1, 1).at(0);
    EXPECT_NEAR(run(tuned, 1, 1).at(0), loss, 1e-4 * loss);
  }
}

TEST_F(Trained, ADamagedCheckpointIsPassedOver) {
  config_.optimizer.schedule = "constant";
  config_.run.checkpoint_every = 3;
  run(config_, 1, 1, 6);
  std::filesystem::remove(folder_ / "out/checkpoints/step-00000006/manifest.json");
  const auto rest = run(config_, 1, 1);
  EXPECT_EQ(rest.begin()->first, 3);
}

TEST_F(Trained, AnotherModelsCheckpointIsRefused) {
  run(config_, 1, 1, 3);
  config_.model.width = 64;
  EXPECT_TRUE(fails_with(train::Trainer::create(config_, nullptr), Code::invalid_data, "another model"));
  config_.data.folder = folder_ / "nowhere";
  EXPECT_TRUE(fails_with(train::Trainer::create(config_, nullptr), Code::not_found, "nowhere"));
}

TEST_F(Trained, FineTuningBeginsWithTheModel) {
  config_.run.steps = 30;
  const auto losses = run(config_, 1, 1);
  train::Config tuned = config_;
  tuned.model = {};
  tuned.model.from = folder_ / "out/model";
  tuned.run.out = folder_ / "tuned";
  tuned.run.steps = 1;
  EXPECT_LT(run(tuned, 2, 2).at(0), losses.at(5));
}

TEST_F(Trained, ReportsHaveChartsAndLines) {
  train::Config config = config_;
  config.run.steps = 3;
  Result<std::unique_ptr<train::Trainer>> trainer = train::Trainer::create(config, nullptr);
  LOOM_ASSERT_OK(trainer);
  std::vector<train::StepRecord> records;
  LOOM_ASSERT_OK((*trainer)->run([&](const train::StepRecord& record) { records.push_back(record); }));
  const std::string page = train::html_report(records, **trainer);
  EXPECT_NE(page.find("<polyline"), std::string::npos);
  EXPECT_NE(page.find("backward unit 1"), std::string::npos);
  const std::string line = train::log_line(records[1], **trainer, 1e9);
  EXPECT_EQ(line.find("step 2/3  loss "), 0u);
  const format::Json json = *format::parse_json(train::json_line(records[2], 5));
  EXPECT_EQ(json["step"], 3);
  EXPECT_EQ(json["memory_bytes"], 5);
  EXPECT_TRUE(json.contains("validation_loss"));
}

}  // namespace
}  // namespace loom::testing
