// Runs on prompts with completions.
#include "text/completions.h"

#include "loom/dataset.h"
#include "loom/model.h"
#include "train/data.h"
#include "train/runs.h"

namespace loom::testing {
namespace {

class CompletionRuns : public Runs {
 protected:
  CompletionRuns() {
    std::string lines;
    // Completions of one to seven letters, so that ranks have different numbers of targets.
    for (int i = 0; i < 120; ++i)
      lines += fmt::format("{{\"prompt\": \"{} letters: \", \"completion\": \"{}\"}}\n", i % 7 + 1,
                           std::string(static_cast<size_t>(i % 7 + 1), static_cast<char>('a' + i % 7)));
    put_file(folder_ / "letters.jsonl", lines);
    DatasetOptions options;
    options.completions = true;
    EXPECT_TRUE(make_dataset({folder_ / "letters.jsonl"}, config_.data.folder, options).ok());
    config_.data.sequence_length = 24;
    config_.optimizer.learning_rate = 5e-3;
    config_.optimizer.schedule = "constant";
    config_.run.evaluation_steps = 100;
    config_.run.steps = 4;
  }

  Records run(const char* name, int ranks, int degree, int stages, int tensor) {
    train::Config config = config_;
    config.data.microbatch = 2;
    config.parallel.sharded_data_parallel_degree = degree;
    config.parallel.pipeline_degree = stages;
    config.parallel.tensor_degree = tensor;
    config.run.out = folder_ / name;
    return run_on(ranks, config, [](train::Trainer& trainer) { LOOM_ASSERT_OK(trainer.save_model()); });
  }
};

/// Each rank used to be able to count its own targets only: the mean is over those of all.
TEST_F(CompletionRuns, EveryLayoutHasTheMeanOverAllTargets) {
  const Records one = run("one", 1, 1, 1, 1);
  ASSERT_EQ(one.size(), 4u);
  EXPECT_NEAR(one.at(0).loss, std::log(257.0), 0.3) << "a mean over targets, not over all tokens";
  struct Layout {
    int ranks, degree, stages, tensor;
  };
  for (const auto& [ranks, degree, stages, tensor] :
       {Layout{2, 1, 1, 1}, {4, 2, 1, 1}, {2, 1, 2, 1}, {2, 1, 1, 2}, {4, 1, 2, 2}}) {
    SCOPED_TRACE(
        fmt::format("{} ranks, {} shards, {} stages, {} tensor ranks", ranks, degree, stages, tensor));
    const Records other =
        run(fmt::format("{}-{}-{}-{}", ranks, degree, stages, tensor).c_str(), ranks, degree, stages, tensor);
    ASSERT_EQ(other.size(), 4u);
    for (const auto& [step, record] : one) {
      EXPECT_NEAR(other.at(step).loss, record.loss, 1e-4) << step;
      EXPECT_NEAR(other.at(step).gradient_norm, record.gradient_norm, 1e-3 * record.gradient_norm) << step;
    }
    EXPECT_NEAR(*other.at(3).validation_loss, *one.at(3).validation_loss, 1e-3);
  }
}

TEST_F(CompletionRuns, AModelLearnsToAnswer) {
  config_.run.steps = 150;
  const Records records = run("learns", 2, 2, 1, 1);
  EXPECT_LT(records.at(149).loss, 0.1);
  Result<Model> model = Model::open(folder_ / "learns/model", 1);
  LOOM_ASSERT_OK(model);
  const Result<Evaluation> evaluation = model->evaluate(config_.data.folder, {24, 5, 0});
  LOOM_ASSERT_OK(evaluation);
  EXPECT_TRUE(evaluation->completions);
  EXPECT_EQ(evaluation->note, "") << "a sequence has room for one text";
  const Result<Evaluation> by_itself = model->evaluate(config_.data.folder);
  LOOM_ASSERT_OK(by_itself);
  EXPECT_EQ(by_itself->tokens, 24) << "the model's context";
  EXPECT_NEAR(by_itself->loss, evaluation->loss, 1e-5);
  const Result<Evaluation> cut = model->evaluate(config_.data.folder, {15, 5, 0});
  LOOM_ASSERT_OK(cut);
  EXPECT_NE(cut->note.find("sequences of 15 tokens cut 5; 18 tokens are enough for all"), std::string::npos)
      << cut->note;
  EXPECT_EQ(evaluation->sequences, 12);
  EXPECT_NEAR(evaluation->loss, *records.at(149).validation_loss, 1e-4);
  const Result<std::string> answer = model->sample("3 letters: ", {20, 0, 0, 1});
  LOOM_ASSERT_OK(answer);
  EXPECT_TRUE(answer->starts_with("3 letters: ccc")) << *answer;
  EXPECT_LT(answer->size(), 30u) << "the end of text is learned";
}

/// All texts in each step, so that both runs have the same ones. Losses are means over the same targets.
TEST_F(CompletionRuns, TextsThatShareSequencesHaveTheLossesOfTextsApart) {
  constexpr int64_t kShared = 14;
  config_.data.sequence_length = 128;
  const auto run_with = [&](bool packing, int64_t sequences, int ranks) {
    train::Config config = config_;
    config.data.packing = packing;
    config.data.global_batch = sequences;
    config.parallel.sharded_data_parallel_degree = ranks;
    config.run.out = folder_ / (packing ? "packed" : "apart") + std::to_string(ranks);
    return run_on(ranks, config, [](train::Trainer& trainer) { LOOM_ASSERT_OK(trainer.save_model()); });
  };
  config_.data.packing = true;
  const auto data = train::open_data(config_);
  LOOM_ASSERT_OK(data);
  const auto sequences = static_cast<int64_t>(data->train->windows());
  EXPECT_EQ(data->train->note().substr(0, 10), "108 texts ");
  ASSERT_EQ(sequences, kShared) << "an even number, so that two ranks have the same step";
  const Records apart = run_with(false, 108, 1);
  for (const int ranks : {1, 2}) {
    const Records packed = run_with(true, sequences, ranks);
    ASSERT_EQ(packed.size(), 4u);
    for (const auto& [step, record] : apart) {
      EXPECT_NEAR(packed.at(step).loss, record.loss, 1e-5 * record.loss) << step;
      EXPECT_NEAR(packed.at(step).gradient_norm, record.gradient_norm, 1e-4 * record.gradient_norm) << step;
    }
    EXPECT_NEAR(*packed.at(3).validation_loss, *apart.at(3).validation_loss, 1e-5);
  }
  Result<Model> model = Model::open(folder_ / "packed1/model", 1);
  LOOM_ASSERT_OK(model);
  const Result<Evaluation> shared = model->evaluate(config_.data.folder),
                           alone = model->evaluate(config_.data.folder, {20, 5, 0});
  LOOM_ASSERT_OK(shared);
  LOOM_ASSERT_OK(alone);
  EXPECT_LT(shared->sequences, 4);
  EXPECT_EQ(shared->note.substr(0, 15), "12 texts share ");
  EXPECT_GT(alone->sequences, 6);
  EXPECT_NEAR(shared->loss, alone->loss, 1e-5);
}

TEST_F(CompletionRuns, PackingIsOfOneRunAndOfCompletions) {
  config_.data.packing = true;
  run("once", 1, 1, 1, 1);
  config_.data.packing = false;
  config_.run.steps = 6;
  config_.run.out = folder_ / "once";
  EXPECT_TRUE(fails_with(train::Trainer::create(config_, nullptr), Code::invalid_argument, "packing"));
  // As a checkpoint that did not keep which data it is of.
  const std::string manifest = folder_ / "once/checkpoints/step-00000004/manifest.json";
  LOOM_ASSERT_OK(format::read_json(manifest));
  format::Json without = *format::read_json(manifest);
  without["data"].erase("dataset");
  without.erase("hashes");
  LOOM_ASSERT_OK(format::write_json(manifest, without));
  config_.data.packing = true;
  EXPECT_TRUE(fails_with(train::Trainer::create(config_, nullptr), Code::invalid_argument,
                         "or of another data.packing than true"));
  config_.data.folder = folder_ / "tokens";
  make_tokens(config_.data.folder);
  config_.run.out = folder_ / "other";
  EXPECT_TRUE(fails_with(train::Trainer::create(config_, nullptr), Code::invalid_argument,
                         "data.packing is true, which is for texts with completions, and"));
}

TEST_F(CompletionRuns, ARunGoesOnWhereItWas) {
  for (const bool packing : {false, true}) {
    SCOPED_TRACE(packing);
    config_.data.packing = packing;
    config_.data.sequence_length = packing ? 64 : 24;
    const std::string name = packing ? "packed" : "apart";
    config_.run.steps = 6;
    const Records whole = run((name + "whole").c_str(), 1, 1, 1, 1);
    config_.run.steps = 3;
    run((name + "parts").c_str(), 1, 1, 1, 1);
    config_.run.steps = 6;
    const Records rest = run((name + "parts").c_str(), 2, 1, 1, 1);
    for (int64_t step = 3; step < 6; ++step)
      EXPECT_NEAR(rest.at(step).loss, whole.at(step).loss, 1e-4) << step;
  }
}

TEST_F(CompletionRuns, OtherTasksAreRefused) {
  const auto refused = [&](const char* family, const char* task, const char* why) {
    config_.model.family = family;
    config_.model.task = task;
    EXPECT_TRUE(fails_with(train::Trainer::create(config_, nullptr), Code::invalid_argument, why));
  };
  refused("bert", "masked", "only a causal model trains on");
  config_.model.family = "bert";
  config_.model.task = "";
  EXPECT_TRUE(fails_with(train::Trainer::create(config_, nullptr), Code::unsupported,
                         "holds prompts with completions"));
}

}  // namespace
}  // namespace loom::testing
