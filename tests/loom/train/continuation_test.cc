// Going on in the data: a resumed run trains on the sequences that come next, with whatever batch, and does
// not take others for them.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "text/batches.h"
#include "train/position.h"
#include "train/runs.h"

namespace loom::testing {
namespace {

class Continuations : public SteadyRuns {
 protected:
  void SetUp() override {
    SteadyRuns::SetUp();
    config_.run.steps = 4;
    config_.model.context = 64;
  }

  /// As a run that has steps left to make.
  static Status create(train::Config config, const std::function<void(const train::Trainer&)>& look = {}) {
    config.run.steps = 100;
    const auto trainer = train::Trainer::create(config, nullptr);
    if (trainer.ok() && look) look(**trainer);
    return trainer.status();
  }

  /// A run of 4 steps with 8 sequences each, and a checkpoint at its end.
  void train_first() { run_on(1, config_); }
  std::string checkpoint() const { return folder_ / "out/checkpoints/step-00000004"; }
};

TEST_F(Continuations, AnotherGlobalBatchGoesOnWithTheNextSequence) {
  train_first();
  for (const int64_t batch : {4, 16}) {
    train::Config config = config_;
    config.data.global_batch = batch;
    LOOM_ASSERT_OK(create(config, [&](const train::Trainer& trainer) {
      EXPECT_EQ(trainer.next_step(), 4);
      ASSERT_EQ(trainer.notes().size(), 1u);
      EXPECT_EQ(trainer.notes()[0],
                fmt::format("data.global_batch is {} and was 8 before: goes on after the 32 sequences that "
                            "were trained on",
                            batch));
    }));
  }
}

/// A schedule ends with run.steps: with more of them the rate rises again.
TEST_F(Continuations, MoreStepsSayByHowMuchTheRateChanges) {
  config_.optimizer.schedule = "linear";
  config_.optimizer.learning_rate = 1e-3;
  config_.optimizer.final_rate = 1e-4;
  train_first();
  LOOM_ASSERT_OK(create(config_, [&](const train::Trainer& trainer) {
    ASSERT_EQ(trainer.notes().size(), 1u);
    EXPECT_EQ(
        trainer.notes()[0],
        "the learning rate of step 4 is 0.0009636, and would have been 0.0001: run.steps is 100 and was 4 "
        "before");
  }));
  train::Config other = config_;
  other.optimizer.learning_rate = 2e-3;
  other.optimizer.schedule = "constant";
  LOOM_ASSERT_OK(create(other, [&](const train::Trainer& trainer) {
    ASSERT_EQ(trainer.notes().size(), 1u);
    EXPECT_NE(trainer.notes()[0].find("optimizer.learning_rate is 0.002 and was 0.001 before"),
              std::string::npos)
        << trainer.notes()[0];
    EXPECT_NE(trainer.notes()[0].find("optimizer.schedule is constant and was linear before"),
              std::string::npos)
        << trainer.notes()[0];
  }));
}

TEST_F(Continuations, TheCheckpointCountsSequencesOverChangesOfTheBatch) {
  train_first();
  config_.data.global_batch = 2;
  config_.run.steps = 7;
  run_on(1, config_);
  const Result<format::Json> manifest = format::read_manifest(folder_ / "out/checkpoints/step-00000007");
  LOOM_ASSERT_OK(manifest);
  const Result<train::Position> position = train::position_of(*manifest, 7);
  LOOM_ASSERT_OK(position);
  EXPECT_EQ(position->sequences, 4 * 8 + 3 * 2);
  EXPECT_EQ(position->global_batch, 2);
  LOOM_ASSERT_OK(
      create(config_, [](const train::Trainer& trainer) { EXPECT_TRUE(trainer.notes().empty()); }));
}

/// Of weights that stay as they are a loss tells which sequences it is of.
TEST_F(Continuations, TwoStepsOfHalfTheBatchTrainOnWhatOneOfTheWholeDoes) {
  config_.optimizer.learning_rate = 1e-30;
  config_.optimizer.weight_decay = 0;
  config_.run.steps = 6;
  config_.run.checkpoint_every = 4;
  const Records whole = run_on(1, config_);
  config_.run.resume_from = checkpoint();
  config_.run.out = folder_ / "halves";
  config_.data.global_batch = 4;
  config_.run.steps = 8;
  const Records halves = run_on(1, config_);
  ASSERT_EQ(halves.size(), 4u);
  for (const int64_t step : {4, 5}) {
    const int64_t half = 4 + 2 * (step - 4);
    EXPECT_NEAR((halves.at(half).loss + halves.at(half + 1).loss) / 2, whole.at(step).loss, 1e-6) << step;
  }
  EXPECT_GT(std::abs(whole.at(5).loss - whole.at(4).loss), 1e-4) << "any sequences would do";
}

/// Halving the batch twice as often reads the same text as not halving it.
TEST_F(Continuations, RowsAreThoseThatComeNext) {
  const auto data = text::TokenDataset::open(config_.data.folder, text::Split::train);
  LOOM_ASSERT_OK(data);
  const auto read = [](const text::Batches& batches, uint64_t step, int64_t rows) {
    std::vector<text::Token> inputs(static_cast<size_t>(rows * 16)), targets(inputs.size());
    EXPECT_TRUE(batches.read(step, {0, rows}, inputs, targets).ok());
    return inputs;
  };
  const auto eight = text::Batches::create(*data, {.sequence_length = 16, .global_batch = 8, .seed = 3});
  auto four = text::Batches::create(*data, {.sequence_length = 16, .global_batch = 4, .seed = 3});
  LOOM_ASSERT_OK(eight);
  LOOM_ASSERT_OK(four);
  four->go_on(5, 40);
  for (const uint64_t step : {5, 6, 900}) {
    std::vector<text::Token> halves = read(*four, 5 + 2 * (step - 5), 4);
    const std::vector<text::Token> second = read(*four, 6 + 2 * (step - 5), 4);
    halves.insert(halves.end(), second.begin(), second.end());
    EXPECT_EQ(halves, read(*eight, step, 8)) << step;
  }
}

TEST_F(Continuations, ANegativeSeedGoesOn) {
  config_.run.seed = -1;
  train_first();
  LOOM_ASSERT_OK(create(config_, [](const train::Trainer& trainer) { EXPECT_EQ(trainer.next_step(), 4); }));
}

TEST_F(Continuations, AnotherOrderIsRefusedInTheRunOfTheCheckpoint) {
  train_first();
  train::Config other = config_;
  other.data.sequence_length = 32;
  EXPECT_TRUE(fails_with(create(other), Code::invalid_argument,
                         "the checkpoint has data.sequence_length 16 and run.seed 1, the config 32 and 1"));
  other = config_;
  other.run.seed = 2;
  EXPECT_TRUE(fails_with(create(other), Code::invalid_argument, "as its run.resume_from"));
}

TEST_F(Continuations, AnotherRunMayBeginTheDataAnew) {
  train_first();
  config_.run.out = folder_ / "other";
  config_.run.resume_from = checkpoint();
  config_.data.sequence_length = 32;
  config_.run.steps = 6;
  run_on(1, config_, [](const train::Trainer& trainer) {
    ASSERT_EQ(trainer.notes().size(), 1u);
    EXPECT_NE(trainer.notes()[0].find("the data are taken from the beginning"), std::string::npos);
  });
  const Result<format::Json> manifest = format::read_manifest(folder_ / "other/checkpoints/step-00000006");
  LOOM_ASSERT_OK(manifest);
  EXPECT_EQ(train::position_of(*manifest, 6)->sequences, 2 * 8);
}

TEST_F(Continuations, OtherDataAreRefusedInTheRunOfTheCheckpoint) {
  train_first();
  // The same text elsewhere is the same list; more of it is another, also where the first was.
  std::filesystem::copy(config_.data.folder, folder_ / "copy");
  train::Config other = config_;
  other.data.folder = folder_ / "copy";
  LOOM_ASSERT_OK(create(other, [](const train::Trainer& trainer) { EXPECT_TRUE(trainer.notes().empty()); }));
  make_tokens(config_.data.folder, "bytes", 900);
  EXPECT_TRUE(fails_with(create(config_), Code::invalid_argument,
                         "the checkpoint is of other data than those of " + config_.data.folder));
  LOOM_ASSERT_OK(create(other));
  // Who only begins with it has it said.
  other.run.out = folder_ / "other";
  other.run.resume_from = checkpoint();
  other.data.folder = config_.data.folder;
  other.run.steps = 5;
  run_on(1, other, [](const train::Trainer& trainer) {
    ASSERT_EQ(trainer.notes().size(), 1u);
    EXPECT_NE(trainer.notes()[0].find("the data are taken from the beginning"), std::string::npos);
  });
  const Result<format::Json> manifest = format::read_manifest(folder_ / "other/checkpoints/step-00000005");
  LOOM_ASSERT_OK(manifest);
  EXPECT_EQ(train::position_of(*manifest, 5)->sequences, 8);
}

TEST_F(Continuations, ACheckpointThatDoesNotSayItsDataGoesOnWithAny) {
  train_first();
  const std::string path = checkpoint() + "/manifest.json";
  format::Json manifest = *format::read_json(path);
  ASSERT_EQ(manifest["data"].erase("dataset"), 1u);
  ASSERT_EQ(manifest.erase("hashes"), 1u);
  LOOM_ASSERT_OK(format::write_json(path, manifest));
  make_tokens(config_.data.folder, "bytes", 900);
  LOOM_ASSERT_OK(create(config_));
}

TEST_F(Continuations, KeysOfDataAreOfTheirContent) {
  const auto key = [](const std::string& folder) {
    return (*text::TokenDataset::open(folder, text::Split::train))->key();
  };
  make_tokens(folder_ / "same");
  make_tokens(folder_ / "more", "bytes", 601);
  EXPECT_EQ(key(folder_ / "same"), key(config_.data.folder));
  EXPECT_NE(key(folder_ / "more"), key(config_.data.folder));
  const auto of_texts = [&](const std::string& two) {
    std::string lines;
    for (int i = 0; i < 10; ++i) lines += two;
    put_file(folder_ / "texts.tsv", lines);
    EXPECT_TRUE(text::tokenize_examples({folder_ / "texts.tsv"}, folder_ / "texts",
                                        **text::open_tokenizer("bytes"), 0.5)
                    .ok());
    return (*text::ExampleDataset::open(folder_ / "texts", text::Split::train))->key();
  };
  const uint64_t first = of_texts("a\tx\nb\ty\n");
  EXPECT_EQ(of_texts("a\tx\nb\ty\n"), first);
  EXPECT_NE(of_texts("a\tx\nb\tz\n"), first);
  EXPECT_NE(of_texts("a\tx\nc\ty\n"), first) << "labels have other names";
}

TEST(Positions, OfCheckpointsThatKeepNoneAreTheirConfigs) {
  const format::Json manifest = {
      {"config",
       {{"data", {{"folder", "data"}, {"global_batch", 6}, {"sequence_length", 10}}},
        {"optimizer", {{"learning_rate", 1e-5}, {"final_rate", 6e-5}}},  // as earlier versions had it
        {"run", {{"seed", 9}}}}}};
  const Result<train::Position> position = train::position_of(manifest, 5);
  LOOM_ASSERT_OK(position);
  EXPECT_EQ(position->sequences, 30);
  EXPECT_EQ(position->global_batch, 6);
  EXPECT_EQ(position->sequence_length, 10);
  EXPECT_EQ(position->seed, 9);
}

TEST(Positions, ThatCannotBeAreRefused) {
  const format::Json right = train::Position{32, 8, 16, 1, "0123456789abcdef"}.to_json();
  LOOM_ASSERT_OK(train::position_of({{"data", right}}, 4));
  for (const auto& [key, value] : right.items())
    for (const format::Json& wrong : {format::Json(-1), format::Json("x"), format::Json(nullptr)}) {
      format::Json data = right;
      if (key == "seed" && wrong == -1) continue;  // any number is one
      data[key] = wrong;
      EXPECT_TRUE(fails_with(train::position_of({{"data", data}}, 4), Code::invalid_data, key)) << wrong;
    }
}

}  // namespace
}  // namespace loom::testing
