// What ends a run before it does harm: a rank that fails by itself, with which the others end, a checkpoint
// of another model, tokens that mean something else, and sizes that no machine has.
#include <filesystem>

#include "engine/arena.h"
#include "engine/rank_device.h"
#include "loom/dataset.h"
#include "loom/model.h"
#include "train/runs.h"

namespace loom::testing {
namespace {

class Failures : public Runs {
 protected:
  void SetUp() override {
    make_tokens(config_.data.folder);
    config_.data.microbatch = 1;
    config_.parallel.strict = false;
  }

  /// Trains to step `steps`, on one rank, and saves.
  Status run_to(int64_t steps) {
    config_.run.steps = steps;
    Result<std::unique_ptr<train::Trainer>> trainer = train::Trainer::create(config_, nullptr);
    LOOM_TRY(trainer.status());
    LOOM_TRY((*trainer)->run([](const train::StepRecord&) {}));
    return (*trainer)->save_model();
  }
  /// The same text in pairs of bytes: 300 tokens.
  std::string data_of_pairs() {
    DatasetOptions options;
    options.train_vocabulary = 300;
    EXPECT_TRUE(make_dataset({folder_ / "text.txt"}, folder_ / "pairs", options).ok());
    return folder_ / "pairs";
  }
};

/// What each rank's run ends with. Rank 1 has a dataset of its own.
std::vector<Status> ends_of(const train::Config& config, int ranks, const std::string& data_of_rank_1) {
  std::vector<Status> ends(static_cast<size_t>(ranks));
  const auto patience = [](weftConfig_t& world) { world.timeoutSeconds = 20; };
  on_ranks(
      ranks, 1,
      [&](weftComm_t world) {
        int rank = 0;
        ASSERT_EQ(weftCommUserRank(world, &rank), weftSuccess);
        train::Config own = config;
        if (rank == 1) own.data.folder = data_of_rank_1;
        Result<std::unique_ptr<train::Trainer>> trainer = train::Trainer::create(own, world);
        ends[static_cast<size_t>(rank)] =
            trainer.ok() ? (*trainer)->run([](const train::StepRecord&) {}) : trainer.status();
      },
      patience);
  return ends;
}

TEST_F(Failures, ARankThatFailsAloneInAStepEndsTheOthers) {
  // Now and then a token that is none: the larger of its two bytes says so.
  std::filesystem::copy(folder_ / "data", folder_ / "damaged");
  const std::string file = folder_ / "damaged/train-00000.tokens";
  std::string bytes = get_file(file);
  for (size_t at = 65; at < bytes.size(); at += 2 * 411) bytes[at] = '\x7f';
  put_file(file, bytes);
  config_.run.steps = 1000;
  struct Layout {
    int shard, stages, tensor;
  };
  for (const auto& [shard, stages, tensor] : {Layout{2, 1, 1}, {1, 1, 1}, {1, 2, 2}}) {
    SCOPED_TRACE(fmt::format("p {}, P {}, T {}", shard, stages, tensor));
    config_.parallel.sharded_data_parallel_degree = shard;
    config_.parallel.pipeline_degree = stages;
    config_.parallel.tensor_degree = tensor;
    const std::vector<Status> ends = ends_of(config_, 4, folder_ / "damaged");
    EXPECT_TRUE(fails_with(ends[1], Code::invalid_data, "is not in the vocabulary"));
    for (const int rank : {0, 2, 3})  // what rank 1 found has come to all
      EXPECT_TRUE(fails_with(ends[static_cast<size_t>(rank)], Code::communication_error,
                             "was aborted: " + ends[1].message()));
  }
}

TEST_F(Failures, ADatasetThatOneRankLacksIsToldToAll) {
  for (const Status& end : ends_of(config_, 3, folder_ / "nowhere"))
    EXPECT_TRUE(fails_with(end, Code::not_found, "nowhere"));
}

TEST_F(Failures, ACheckpointOfAModelWithAsManyElementsIsRefused) {
  LOOM_ASSERT_OK(run_to(2));
  const train::Config right = config_;
  config_.model.heads = 2;
  EXPECT_TRUE(fails_with(run_to(4), Code::invalid_data, "another model: it has model.heads 4, not 2"));
  config_ = right;
  config_.model.activation = "relu";
  EXPECT_TRUE(fails_with(run_to(4), Code::invalid_data, "it has model.activation gelu_new, not relu"));
  config_ = right;
  config_.run.out = folder_ / "other";
  config_.run.resume_from = right.run.out + "/checkpoints/step-00000002";
  config_.model.heads = 8;
  EXPECT_TRUE(fails_with(run_to(4), Code::invalid_data, "it has model.heads 4, not 8"));
  config_.model.heads = 4;
  config_.model.dropout = 0.2;  // may change in the course of training
  LOOM_ASSERT_OK(run_to(4));
}

/// The step's checkpoint was there already, so that nobody came back to its model.
TEST_F(Failures, AModelOfAStepThatCannotBeWrittenIsWrittenByWhoeverGoesOn) {
  config_.run.checkpoint_every = config_.run.save_model_every = 2;
  const std::string models = config_.run.out + "/models";
  std::filesystem::create_directories(models);
  put_file(models + "/step-00000002", "");  // where the folder is to be
  EXPECT_TRUE(fails_with(run_to(4), Code::invalid_argument, models + "/step-00000002"));
  std::filesystem::remove(models + "/step-00000002");
  LOOM_ASSERT_OK(run_to(4));
  for (const char* step : {"/step-00000002", "/step-00000004"})
    EXPECT_TRUE(std::filesystem::exists(models + step + "/model.safetensors")) << step;
}

TEST_F(Failures, TokensOfAnotherTokenizerAreRefused) {
  const std::string pairs = data_of_pairs();
  config_.model.vocabulary = 300;  // as large as either's
  LOOM_ASSERT_OK(run_to(2));
  const train::Config right = config_;
  config_.data.folder = pairs;
  EXPECT_TRUE(
      fails_with(run_to(4), Code::invalid_argument, "tokens of another tokenizer than those of " + pairs));
  config_.run.out = folder_ / "tuned";
  config_.model = {};
  config_.model.from = right.run.out + "/model";
  EXPECT_TRUE(fails_with(run_to(1), Code::invalid_argument, "of another tokenizer (byte-level BPE of 300"));
  Result<Model> model = Model::open(right.run.out + "/model", 1);
  LOOM_ASSERT_OK(model);
  EvaluationOptions options;
  options.batches = 1;
  EXPECT_TRUE(
      fails_with(model->evaluate(pairs, options), Code::invalid_argument, "`loom tokenize --tokenizer"));
  // What the sentence asks for, and the model's own data.
  DatasetOptions fitting;
  fitting.tokenizer = right.run.out + "/model";
  LOOM_ASSERT_OK(make_dataset({folder_ / "text.txt"}, folder_ / "fitting", fitting));
  LOOM_ASSERT_OK(model->evaluate(folder_ / "fitting", options));
  LOOM_ASSERT_OK(model->evaluate(right.data.folder, options));
  config_.data.folder = folder_ / "fitting";
  LOOM_ASSERT_OK(run_to(1));
}

TEST_F(Failures, TokensThatTheTokenizerBesideThemDidNotMakeAreRefused) {
  const std::string pairs = data_of_pairs();
  std::filesystem::remove(folder_ / "data/loom-tokenizer.json");
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
    std::filesystem::copy(pairs + "/" + name, folder_ / fmt::format("data/{}", name),
                          std::filesystem::copy_options::overwrite_existing);
  EXPECT_TRUE(fails_with(run_to(1), Code::invalid_data, "were not made by the tokenizer beside them"));
}

TEST_F(Failures, SizesThatNoMachineHasAreRefusedWithABound) {
  const auto parsed = [](std::string key) {
    return train::parse_config(format::Json::object(), std::vector<std::string>{std::move(key)}).status();
  };
  EXPECT_TRUE(fails_with(parsed("model.layers=100000000"), Code::invalid_argument,
                         "model.layers is 100000000, must be from 1 to 65536"));
  EXPECT_TRUE(fails_with(parsed("run.steps=5000000000"), Code::invalid_argument, "must be from 1 to 4"));
  for (const char* key : {"data.global_batch", "data.sequence_length", "data.microbatch"})
    EXPECT_TRUE(fails_with(parsed(fmt::format("{}=3000000000", key)), Code::invalid_argument, "2147483647"));
  const train::Config right = config_;
  const auto refused = [&](const char* words) {
    const Status status = run_to(1);
    config_ = right;
    return fails_with(status, Code::invalid_argument, words);
  };
  config_.model.width = 1 << 21;
  EXPECT_TRUE(refused("model.width is 2097152, must be from 1 to 1048576"));
  config_.model.width = 1 << 20;
  config_.model.layers = 1 << 16;
  EXPECT_TRUE(refused("parameters, must have 1e+15 at most"));
  config_.data.global_batch = 1 << 30;
  EXPECT_TRUE(refused("microbatches through 4 units, must be 1000000 passes at most"));
  config_.data.global_batch = config_.data.microbatch = 1 << 30;
  EXPECT_TRUE(refused("a smaller data.microbatch is added up as well"));
}

TEST_F(Failures, AnArenaThatNoMachineHasIsRefusedBeforeItIsTouched) {
  const Result<engine::Groups> groups = engine::Groups::create(nullptr, {}, false);
  LOOM_ASSERT_OK(groups);
  const auto device = engine::RankDevice::create({}, false);
  LOOM_ASSERT_OK(device);
  EXPECT_TRUE(fails_with(engine::Arena::create(int64_t{1} << 50, *groups, **device), Code::out_of_memory,
                         "a rank needs 1073741825 MiB for its arena, "));
}

}  // namespace
}  // namespace loom::testing
