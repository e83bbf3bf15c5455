// How runs begin: what all ranks must have alike, whose checkpoints lie in run.out, when moments began, and
// how many threads a rank has.
#include <cmath>

#include "base/file.h"
#include "format/safetensors_reader.h"
#include "train/runs.h"
#include "train/stored_state.h"
#include "train/threads.h"

namespace loom::testing {
namespace {

class Beginnings : public SteadyRuns {
 protected:
  void SetUp() override {
    SteadyRuns::SetUp();
    config_.data.microbatch = 1;
    config_.run.steps = 4;
  }

  /// What creating the run ends with, on each of two ranks; `change` is made to rank 1's config.
  std::vector<Status> created(const std::function<void(train::Config&)>& change) const {
    std::vector<Status> ends(2);
    on_ranks(2, 1, [&](weftComm_t world) {
      int rank = 0;
      ASSERT_EQ(weftCommUserRank(world, &rank), weftSuccess);
      train::Config own = config_;
      if (rank == 1) change(own);
      ends[static_cast<size_t>(rank)] = train::Trainer::create(own, world).status();
    });
    return ends;
  }

  /// The largest change of any parameter between two models.
  static float largest_change(const std::string& before, const std::string& after) {
    const auto a = format::SafetensorsReader::open(before), b = format::SafetensorsReader::open(after);
    EXPECT_TRUE(a.ok() && b.ok());
    float most = 0;
    for (const std::string& name : a->names()) {
      const format::TensorView view = *a->tensor(name);
      std::vector<float> x(view.elements()), y(view.elements());
      EXPECT_TRUE(a->read_f32(name, view.shape, x).ok());
      EXPECT_TRUE(b->read_f32(name, view.shape, y).ok());
      for (size_t i = 0; i < x.size(); ++i) most = std::max(most, std::abs(x[i] - y[i]));
    }
    return most;
  }
};

TEST_F(Beginnings, ThreadsAreTheMachinesOverItsOwnRanks) {
  std::vector<int> found(4);
  // Four pretended nodes, of which the first three are one machine.
  on_ranks(4, 4, [&](weftComm_t world) {
    int rank = 0;
    ASSERT_EQ(weftCommUserRank(world, &rank), weftSuccess);
    const Result<int> ranks = train::ranks_of_machine(world, rank < 3 ? 7 : 8);
    LOOM_ASSERT_OK(ranks);
    found[static_cast<size_t>(rank)] = *ranks;
    EXPECT_EQ(*train::ranks_of_machine(world), 4) << "where they really are";
  });
  EXPECT_EQ(found, (std::vector<int>{3, 3, 3, 1}));
  EXPECT_EQ(*train::ranks_of_machine(nullptr), 1);
  train::Config config;
  const int cpus = train::threads_of(config, {}, {});
  EXPECT_EQ(train::threads_of(config, {cpus, 1}, {}), 1);
  EXPECT_EQ(train::threads_of(config, {cpus + 1, 1}, {}), 1);
  config.parallel.threads = 5;
  EXPECT_EQ(train::threads_of(config, {4, 1}, {}), 5);
}

/// A container of half a machine's time: as many threads as CPUs would take turns.
TEST_F(Beginnings, ThreadsAreThoseThatTheControlGroupHasTimeFor) {
  train::Config config;
  const int cpus = train::threads_of(config, {}, {});
  EXPECT_EQ(train::threads_of(config, {}, {true, 1.5, 1}), 1);
  EXPECT_EQ(train::threads_of(config, {}, {true, 0.25, 1}), 1);
  EXPECT_EQ(train::threads_of(config, {}, {true, cpus + 10.0, 1}), cpus);
  EXPECT_EQ(train::threads_of(config, {1, 2}, {true, 2.0 * cpus, 1}), cpus);
  EXPECT_EQ(train::threads_of(config, {1, 2 * cpus}, {true, 2.0 * cpus, 1}), 1);
  // Two pods of two ranks each on one machine.
  on_ranks(4, 1, [&](weftComm_t world) {
    int rank = 0;
    ASSERT_EQ(weftCommUserRank(world, &rank), weftSuccess);
    const GroupLimit pod{true, 2.0, rank < 2 ? uint64_t{11} : uint64_t{12}};
    const Result<train::Sharers> sharers = train::find_sharers(world, pod);
    LOOM_ASSERT_OK(sharers);
    EXPECT_EQ(sharers->of_machine, 4);
    EXPECT_EQ(sharers->of_quota, 2);
  });
}

TEST_F(Beginnings, ARunAnewIsRefusedWhereAnotherRunsCheckpointsLie) {
  run_on(1, config_);
  config_.run.resume = false;
  // Its own would have lower numbers than those there, and the first pruning would remove them.
  for (const int64_t steps : {3, 4, 5}) {
    config_.run.steps = steps;
    EXPECT_TRUE(
        fails_with(train::Trainer::create(config_, nullptr), Code::invalid_argument, "name another run.out"));
  }
  LOOM_ASSERT_OK(remove_folder(config_.run.out + "/checkpoints"));
  EXPECT_EQ(run_on(1, config_).size(), 5u);
}

TEST_F(Beginnings, ARankWithAnotherConfigIsNamedWithTheKey) {
  const std::vector<Status> ends = created([](train::Config& own) { own.optimizer.learning_rate = 0.25; });
  for (const Status& end : ends) {
    EXPECT_EQ(end.code(), Code::invalid_argument);
    EXPECT_NE(end.message().find("optimizer.learning_rate is 0.25 here and 0.0006 on rank 0"),
              std::string::npos)
        << end.message();
  }
  EXPECT_EQ(ends[0].message().find("rank 1: "), 0u) << ends[0].message();
  // Two threads compute the same, and a folder may have another name on each node.
  for (const Status& end : created([](train::Config& own) { own.parallel.threads = 2; }))
    EXPECT_TRUE(end.ok());
}

TEST_F(Beginnings, RanksThatWouldBeginWithOtherCheckpointsAreNamed) {
  config_.run.checkpoint_every = 2;
  run_on(1, config_);
  const std::string checkpoints = config_.run.out + "/checkpoints/step-0000000";
  config_.run.out = folder_ / "next";
  config_.run.resume_from = checkpoints + "2";
  for (const std::string& other : {checkpoints + "4", std::string()}) {
    for (const Status& end : created([&](train::Config& own) { own.run.resume_from = other; }))
      EXPECT_TRUE(fails_with(end, Code::invalid_data, "all must begin with the same checkpoint"));
  }
}

TEST_F(Beginnings, MomentsThatBeginAgainAreNotTakenForOldOnes) {
  config_.optimizer.beta2 = 0.999;
  config_.optimizer.weight_decay = 0;
  config_.run.checkpoint_optimizer = false;
  run_on(1, config_);
  const std::string checkpoint = config_.run.out + "/checkpoints/step-00000004";
  LOOM_ASSERT_OK(train::export_model(checkpoint, folder_ / "before"));
  config_.run.out = folder_ / "next";
  config_.run.resume_from = checkpoint;
  config_.run.checkpoint_optimizer = true;
  config_.run.steps = 5;
  run_on(1, config_, [](train::Trainer& trainer) { LOOM_ASSERT_OK(trainer.save_model()); });
  // Adam's first update is the learning rate, whatever the gradient.
  const double rate = config_.optimizer.learning_rate;
  EXPECT_NEAR(largest_change(folder_ / "before", folder_ / "next/model"), rate, 0.01 * rate);

  // Where they began is remembered: interrupted or not, the rest is the same.
  config_.run.steps = 8;
  const Records resumed = run_on(1, config_);
  EXPECT_EQ(resumed.begin()->first, 5);
  config_.run.out = folder_ / "whole";
  const Records whole = run_on(1, config_);
  EXPECT_EQ(whole.begin()->first, 4);
  for (const auto& [step, record] : resumed) EXPECT_EQ(record.loss, whole.at(step).loss) << step;
}

}  // namespace
}  // namespace loom::testing
