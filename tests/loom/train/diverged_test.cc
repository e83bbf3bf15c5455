// Runs that diverge: what nobody can go on with is no checkpoint, those before stay, and the sentence that
// ends the run names the newest.
#include <limits>

#include "train/runs.h"

namespace loom::testing {
namespace {

class Diverged : public SteadyRuns {
 protected:
  void SetUp() override {
    SteadyRuns::SetUp();
    config_.run.checkpoint_every = 1;
    config_.run.keep = 1;
  }

  /// Ends on all ranks as a run that is not finite; with which sentence.
  std::string sentence_of(int ranks) {
    std::string sentence;
    on_ranks(ranks, 1, [&](weftComm_t world) {
      const auto trainer = train::Trainer::create(config_, world);
      LOOM_ASSERT_OK(trainer);
      const Status ended = (*trainer)->run([](const train::StepRecord&) {});
      EXPECT_EQ(ended.code(), Code::not_finite) << ended.message();
      if ((*trainer)->groups().rank() == 0) sentence = ended.message();
    });
    return sentence;
  }

  /// Of a run whose loss is soon no number, and which makes no checkpoint before.
  std::string sentence_of_wild_run() {
    config_.run.steps = 40;
    config_.run.checkpoint_every = 100;
    config_.optimizer.learning_rate = 1e6;
    config_.optimizer.clip_norm = 0;
    return sentence_of(1);
  }

  std::optional<uint64_t> latest() const {
    return *format::Checkpoints::open(folder_ / "out/checkpoints", 1)->latest();
  }
};

TEST_F(Diverged, AnInfiniteStateIsNoModelAndNoCheckpointAndPushesNoneOut) {
  config_.run.save_model_every = 1;
  for (const int ranks : {1, 2}) {
    config_.run.out = folder_ / "out";
    std::filesystem::remove_all(config_.run.out);
    config_.parallel.sharded_data_parallel_degree = ranks;
    config_.optimizer.learning_rate = 1e-3;
    config_.optimizer.weight_decay = 0.1;
    config_.run.steps = 2;
    run_on(ranks, config_);
    ASSERT_EQ(latest(), 2u);
    // Loss and norm of this step are fine; what it makes of the weights is not.
    config_.run.steps = 6;
    config_.optimizer.learning_rate = 3e38;
    config_.optimizer.weight_decay = 1e3;
    const std::string sentence = sentence_of(ranks);
    EXPECT_NE(sentence.find("not finite: no checkpoint or model is made of it"), std::string::npos)
        << sentence;
    EXPECT_NE(sentence.find("run.resume_from=" + (folder_ / "out/checkpoints/step-00000002")),
              std::string::npos)
        << sentence;
    EXPECT_EQ(latest(), 2u);
    EXPECT_TRUE(std::filesystem::exists(folder_ / "out/models/step-00000002"));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "out/models/step-00000003"));
    config_.optimizer.learning_rate = 1e-3;
    config_.optimizer.weight_decay = 0.1;
    config_.run.steps = 3;
    const Records records = run_on(ranks, config_);
    EXPECT_TRUE(std::isfinite(records.at(2).loss));
  }
}

TEST_F(Diverged, ALossThatIsNoNumberNamesTheNewestCheckpoint) {
  config_.run.steps = 2;
  run_on(1, config_);
  const std::string sentence = sentence_of_wild_run();
  EXPECT_NE(sentence.find("the newest checkpoint is of step 2: the same run.out goes on from it"),
            std::string::npos)
      << sentence;
}

TEST_F(Diverged, WithoutACheckpointThereIsNoneToName) {
  const std::string sentence = sentence_of_wild_run();
  EXPECT_NE(sentence.find("there is no checkpoint to go back to, run.checkpoint_every makes some"),
            std::string::npos)
      << sentence;
}

}  // namespace
}  // namespace loom::testing
