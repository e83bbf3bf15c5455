// A checkpoint of any layout resumes on any other, and becomes a model of Hugging Face's form: every family
// and head, through chains of layouts that hand one run's state on.
#include <filesystem>
#include <set>

#include "train/runs.h"
#include "train/stored_state.h"

namespace loom::testing {
namespace {

struct Division {
  int ranks, shard = 1, stages = 1, tensor = 1;
  const char* partition = "auto";
  const char* pipeline = "1f1b";
  bool optimizer_only = false;
};

std::string to_string(const Division& d) {
  return fmt::format("{} ranks, p {}, P {}, T {}, {}, {}{}", d.ranks, d.shard, d.stages, d.tensor,
                     d.partition, d.pipeline, d.optimizer_only ? ", the optimizer's state alone" : "");
}

class Reshapes : public Runs {
 protected:
  Reshapes() {
    config_.data.sequence_length = 12;
    config_.data.microbatch = 2;
    config_.model.layers = 4;
    config_.model.dropout = 0.1;
    config_.parallel.strict = false;  // tensor ranks add in another order anyway
    config_.optimizer.learning_rate = 5e-3;
    config_.optimizer.schedule = "constant";
    config_.run.evaluation_steps = 1;
    config_.run.keep = 100;
    config_.run.trace_ranks = 0;
  }

  /// Goes on to step `until`, and leaves the model in run.out as well.
  Records go_on(const Division& division, int64_t until) const {
    train::Config config = config_;
    config.run.steps = until;
    config.parallel.sharded_data_parallel_degree = division.shard;
    config.parallel.pipeline_degree = division.stages;
    config.parallel.tensor_degree = division.tensor;
    config.parallel.partition = division.partition;
    config.parallel.tied = "copies";
    config.parallel.pipeline = division.pipeline;
    config.parallel.shard_optimizer_state = division.optimizer_only;
    config.parallel.prescaled_batch = config.data.microbatch % division.tensor != 0;
    return run_on(division.ranks, config,
                  [](train::Trainer& trainer) { LOOM_ASSERT_OK(trainer.save_model()); });
  }

  /// What `loom export` makes of the checkpoint is, byte by byte, what the ranks have gathered.
  void expect_exported(int64_t step) const {
    const std::string out = config_.run.out, exported = folder_ / "exported";
    LOOM_ASSERT_OK(train::export_model(fmt::format("{}/checkpoints/step-{:08}", out, step), exported));
    for (const char* name : {"/config.json", "/model.safetensors"}) {
      const std::string gathered = get_file(out + "/model" + name);
      EXPECT_GT(gathered.size(), 300u);
      EXPECT_EQ(get_file(exported + name), gathered) << name;
    }
  }

  /// Three steps on the first of these, two on each that follows: the losses of one rank that does them all.
  void expect_losses_of_one_rank(const std::vector<Division>& chain) {
    const auto steps = static_cast<int64_t>(2 * chain.size() + 1);
    const std::string out = folder_ / config_.model.family;
    config_.run.out = out + "-whole";
    const Records wanted = go_on({1}, steps);
    config_.run.out = out + "-parts";
    int64_t until = 1;
    for (const Division& division : chain) {
      const int64_t begin = until == 1 ? 0 : until;
      until += 2;
      SCOPED_TRACE(
          fmt::format("{}, {}, steps {} to {}", config_.model.family, to_string(division), begin, until));
      const Records got = go_on(division, until);
      ASSERT_EQ(got.size(), static_cast<size_t>(until - begin));
      for (const auto& [step, record] : got) {
        const double loss = wanted.at(step).loss;
        EXPECT_NEAR(record.loss, loss, 1e-5 * loss) << "step " << step;
      }
      expect_exported(until);
    }
    EXPECT_NE(wanted.at(steps - 1).loss, wanted.at(0).loss);
  }

  const std::vector<Division> back_and_forth_ = {{8, 2, 2, 2}, {1}, {2, 1, 1, 2}, {2, 1, 2},
                                                 {2, 1, 1, 2}, {1}, {8, 2, 2, 2}};
  const std::string pieces_ = fixture("wordpiece.json");
};

TEST_F(Reshapes, EveryFamilysCheckpointsResumeOnAnyLayoutAndBack) {
  make_tokens(config_.data.folder, pieces_);
  for (const char* family : {"gpt2", "gptj", "gpt_neox", "gpt_neo", "bloom", "llama", "bert", "roberta"}) {
    config_.model.family = family;
    config_.model.key_value_heads = std::string(family) == "llama" ? 2 : 0;
    expect_losses_of_one_rank(back_and_forth_);
  }
}

TEST_F(Reshapes, EveryClassifiersCheckpointsResumeOnAnyLayoutAndKeepTheNamesOfLabels) {
  for (const char* family : {"bert", "roberta", "gptj"}) {
    make_examples(config_.data.folder, pieces_);
    config_.model.family = family;
    expect_losses_of_one_rank(back_and_forth_);
    const Result<format::Json> exported = format::read_config(folder_ / "exported");
    LOOM_ASSERT_OK(exported);
    EXPECT_EQ((*exported)["id2label"], (format::Json{{"0", "even"}, {"1", "odd"}})) << family;
    EXPECT_EQ((*exported)["label2id"], (format::Json{{"even", 0}, {"odd", 1}})) << family;
  }
}

TEST_F(Reshapes, CutsInterleavedPartsAndOptimizerShardsChangeBothWays) {
  make_tokens(config_.data.folder);
  config_.model.family = "gptj";
  expect_losses_of_one_rank({{4, 1, 2, 2, "0,2"},
                             {4, 1, 2, 2, "0,4"},
                             {2, 1, 2, 1, "auto", "interleaved"},
                             {4, 2, 2, 1, "auto", "1f1b", true},
                             {4, 1, 2, 2, "0,1,3,5", "interleaved"},
                             {4, 2, 1, 2, "auto", "1f1b", true},
                             {2, 1, 2, 1, "0,2,3,4", "interleaved"},
                             {1}});
}

/// Two stages of two shards, twice: each shard is a file, which one of the two ranks that hold it has
/// written.
TEST_F(Reshapes, ACheckpointHasEveryShardOnce) {
  make_tokens(config_.data.folder);
  go_on({8, 2, 2}, 1);
  std::set<std::string> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(config_.run.out + "/checkpoints/step-00000001"))
    if (entry.path().extension() == ".safetensors") files.insert(entry.path().filename());
  EXPECT_EQ(files,
            (std::set<std::string>{"state-00000-of-00002.safetensors", "state-00001-of-00002.safetensors",
                                   "state-stage-1-00000-of-00002.safetensors",
                                   "state-stage-1-00001-of-00002.safetensors"}));
}

TEST_F(Reshapes, ThreeTensorRanksTakeOverFromTwoAndGiveBack) {
  make_tokens(config_.data.folder);
  config_.model.family = "bloom";  // whose heads have slopes of their own
  config_.model.width = 48;
  config_.model.heads = 6;
  expect_losses_of_one_rank({{3, 1, 1, 3}, {2, 1, 1, 2}, {6, 1, 2, 3, "0,2"}, {1}, {3, 1, 1, 3}});
}

TEST_F(Reshapes, TensorRanksWithUnequalPartsOfHiddenLayersGiveThemOn) {
  make_tokens(config_.data.folder);
  config_.model.width = 48;
  config_.model.heads = 6;
  config_.model.feed_forward = 100;  // 34, 34 and 32
  expect_losses_of_one_rank({{3, 1, 1, 3}, {2, 1, 1, 2}, {1}, {3, 1, 1, 3}});
}

/// Masters are what is stored and exported, so that a layout's model in bf16 has all bits of fp32 as well.
TEST_F(Reshapes, SmallerTypesGoOnWithTheBitsOfTheirMasters) {
  make_tokens(config_.data.folder);
  config_.parallel.precision = "bf16";
  config_.parallel.strict = true;
  for (const char* family : {"gpt_neo", "bert"}) {
    if (family == std::string("bert")) make_tokens(config_.data.folder, pieces_);
    config_.model.family = family;
    config_.run.out = folder_ / fmt::format("{}-whole", family);
    const Records wanted = go_on({2, 2}, 6);
    config_.run.out = folder_ / fmt::format("{}-parts", family);
    Records got = go_on({2, 2}, 3);
    expect_exported(3);
    got.merge(go_on({4, 2, 2}, 5));
    expect_exported(5);
    got.merge(go_on({2, 1, 1, 2}, 6));
    expect_exported(6);
    for (const auto& [step, record] : wanted)  // stages keep bits in strict order, tensor ranks do not
      EXPECT_NEAR(got.at(step).loss, record.loss, step < 5 ? 0 : 1e-2 * record.loss)
          << family << ", " << step;
  }
}

}  // namespace
}  // namespace loom::testing
