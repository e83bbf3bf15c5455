// How runs begin: what all ranks must have alike, whose checkpoints lie in run.out, when moments began, and
// how many threads a rank has.
#include <cmath>
#include <filesystem>

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
  EXPECT_EQ(train::threads_of(config, {cpus, 1, cpus}, {}), 1);
  EXPECT_EQ(train::threads_of(config, {cpus + 1, 1, cpus + 1}, {}), 1);
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

/// Slurm, `docker --cpuset-cpus` and Open MPI bind ranks to some of the CPUs; threads of more would take
/// turns.
TEST_F(Beginnings, ThreadsAreThoseThatTheRankMayRunOn) {
  train::Config config;
  const int cpus = train::threads_of(config, {}, {}, {1 << 20, 1});
  EXPECT_EQ(train::threads_of(config, {}, {}, {1, 1}), 1);
  EXPECT_EQ(train::threads_of(config, {1, 1, 2 * cpus}, {}, {2 * cpus, 1}), 1);
  EXPECT_EQ(train::threads_of(config, {1, 1, 2}, {}, {2 * cpus, 1}), cpus);
  // Two sockets of two ranks each.
  on_ranks(4, 1, [&](weftComm_t world) {
    int rank = 0;
    ASSERT_EQ(weftCommUserRank(world, &rank), weftSuccess);
    const Result<train::Sharers> sharers =
        train::find_sharers(world, {}, {8, rank < 2 ? uint64_t{11} : uint64_t{12}});
    LOOM_ASSERT_OK(sharers);
    EXPECT_EQ(sharers->of_machine, 4);
    EXPECT_EQ(sharers->of_cpus, 2);
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

TEST_F(Beginnings, ARankWithOtherDataIsNamed) {
  make_tokens(folder_ / "more", "bytes", 900);
  std::filesystem::copy(config_.data.folder, folder_ / "copy");
  for (const Status& end : created([&](train::Config& own) { own.data.folder = folder_ / "copy"; }))
    LOOM_ASSERT_OK(end);
  const std::vector<Status> ends = created([&](train::Config& own) { own.data.folder = folder_ / "more"; });
  for (const Status& end : ends)
    EXPECT_TRUE(fails_with(
        end, Code::invalid_data,
        "the data in " + (folder_ / "more") + " are not those that rank 0 has in " + config_.data.folder));
  EXPECT_EQ(ends[0].message().find("rank 1: "), 0u) << ends[0].message();
}

TEST_F(Beginnings, ADamagedCheckpointIsPassedOverAndSaidSo) {
  config_.run.checkpoint_every = 2;
  run_on(1, config_);
  const std::string checkpoints = config_.run.out + "/checkpoints/step-0000000";
  std::filesystem::remove(checkpoints + "4/state-00000-of-00001.safetensors");
  {
    const auto trainer = train::Trainer::create(config_, nullptr);
    LOOM_ASSERT_OK(trainer);
    EXPECT_EQ((*trainer)->next_step(), 2);
    ASSERT_EQ((*trainer)->notes().size(), 1u);
    EXPECT_NE((*trainer)->notes()[0].find(checkpoints + "4 has no file state-00000-of-00001.safetensors"),
              std::string::npos);
    EXPECT_NE((*trainer)->notes()[0].find("goes on from step 2"), std::string::npos);
  }
  // Where none is whole, beginning anew would lose what may be mended.
  put_file(checkpoints + "2/manifest.json", "{");
  for (const std::string& from : {std::string(), checkpoints + "2"}) {
    config_.run.resume_from = from;
    EXPECT_TRUE(fails_with(train::Trainer::create(config_, nullptr), Code::invalid_data,
                           "remove that folder to begin anew"));
  }
  config_.run.resume = false;
  EXPECT_TRUE(
      fails_with(train::Trainer::create(config_, nullptr), Code::invalid_argument, "of an earlier run"));
}

// Nobody used to be told: a run whose newest checkpoint had lost its manifest went back by a checkpoint.
TEST_F(Beginnings, ACheckpointWithoutAManifestIsPassedOverAndSaidSo) {
  config_.run.checkpoint_every = 2;
  run_on(1, config_);
  const std::string checkpoints = config_.run.out + "/checkpoints/step-0000000";
  const auto expect_note = [&](int64_t step, const std::string& words) {
    const auto trainer = train::Trainer::create(config_, nullptr);
    LOOM_ASSERT_OK(trainer);
    EXPECT_EQ((*trainer)->next_step(), step);
    ASSERT_FALSE((*trainer)->notes().empty());
    EXPECT_EQ(
        (*trainer)->notes()[0].find("a checkpoint is passed over: " + checkpoints + "4 has no manifest.json"),
        0u)
        << (*trainer)->notes()[0];
    EXPECT_NE((*trainer)->notes()[0].find(words), std::string::npos) << (*trainer)->notes()[0];
  };
  std::filesystem::remove(checkpoints + "4/manifest.json");
  expect_note(2, "; goes on from step 2");
  std::filesystem::rename(checkpoints + "2", folder_ / "elsewhere");
  expect_note(0, "there is none before it: the run begins anew");
  config_.run.resume_from = folder_ / "elsewhere";
  expect_note(2, "the run begins with " + (folder_ / "elsewhere"));
}

TEST_F(Beginnings, ACheckpointOfAnotherVersionIsNotPassedOver) {
  config_.run.checkpoint_every = 2;
  run_on(1, config_);
  put_file(config_.run.out + "/checkpoints/step-00000004/manifest.json",
           R"({"format": "loom checkpoint", "version": 9})");
  for (const Status& end : created([](train::Config&) {}))
    EXPECT_TRUE(fails_with(end, Code::unsupported, "a run that went on without it would lose it"));
}

TEST_F(Beginnings, AFlippedBitOfACheckpointNamesTheOneBefore) {
  config_.run.checkpoint_every = 2;
  config_.parallel.sharded_data_parallel_degree = 2;
  run_on(2, config_);
  const std::string checkpoints = config_.run.out + "/checkpoints/step-0000000";
  const auto flip = [&](const std::string& file) {
    std::string bytes = get_file(file);
    bytes[bytes.size() - 4] ^= 1;  // the least of a number's bits
    put_file(file, bytes);
  };
  flip(checkpoints + "4/state-00001-of-00002.safetensors");
  for (const Status& end : created([](train::Config&) {}))
    EXPECT_TRUE(
        fails_with(end, Code::invalid_data,
                   "4/state-00001-of-00002.safetensors is damaged: it does not have the hash that its "
                   "manifest says; the checkpoint before it is of step 2: without the folder " +
                       checkpoints + "4 the run goes on from that"));
  std::filesystem::remove_all(checkpoints + "4");
  const Records rest = run_on(2, config_);
  EXPECT_EQ(rest.begin()->first, 2);
  std::filesystem::remove_all(checkpoints + "4");
  flip(checkpoints + "2/state-00000-of-00002.safetensors");
  for (const Status& end : created([](train::Config&) {}))
    EXPECT_TRUE(fails_with(end, Code::invalid_data, "there is no complete checkpoint before it"));
}

TEST_F(Beginnings, AFolderHasOneRun) {
  {
    const auto first = train::Trainer::create(config_, nullptr);
    LOOM_ASSERT_OK(first);
    EXPECT_TRUE(fails_with(train::Trainer::create(config_, nullptr), Code::invalid_argument,
                           "run.out: " + config_.run.out + " is being written by process"));
    for (const Status& end : created([](train::Config&) {}))
      EXPECT_TRUE(fails_with(end, Code::invalid_argument, "is being written by process"));
    train::Config other = config_;
    other.run.out = folder_ / "other";
    LOOM_ASSERT_OK(train::Trainer::create(other, nullptr));
  }
  for (const Status& end : created([](train::Config&) {})) LOOM_ASSERT_OK(end);
}

TEST_F(Beginnings, ARunThatIsOverSaysWhatWouldGoOn) {
  const auto noted = [&](int64_t steps) {
    config_.run.steps = steps;
    const auto trainer = train::Trainer::create(config_, nullptr);
    EXPECT_TRUE(trainer.ok()) << trainer.status().message();
    EXPECT_EQ((*trainer)->is_over(), !(*trainer)->notes().empty());
    return (*trainer)->notes();
  };
  EXPECT_TRUE(noted(4).empty());
  run_on(1, config_);
  for (const int64_t steps : {4, 3})
    EXPECT_EQ(noted(steps),
              std::vector<std::string>{fmt::format("nothing to do: the checkpoint is of step 4, run.steps is "
                                                   "{}; a larger run.steps goes on",
                                                   steps)});
  EXPECT_TRUE(noted(5).empty());
}

TEST_F(Beginnings, AModelWithoutATokenizerAndWithMoreTokensThanTheDataIsNoted) {
  config_.model.vocabulary = 300;
  run_on(1, config_, [](train::Trainer& trainer) { LOOM_ASSERT_OK(trainer.save_model()); });
  config_.model = {};
  config_.model.from = config_.run.out + "/model";
  config_.run.out = folder_ / "tuned";
  const auto notes = [&] {
    const auto trainer = train::Trainer::create(config_, nullptr);
    EXPECT_TRUE(trainer.ok()) << trainer.status().message();
    return (*trainer)->notes();
  };
  EXPECT_TRUE(notes().empty());
  for (const char* name : {"loom-tokenizer.json", "tokenizer.json"})
    std::filesystem::remove(config_.model.from + "/" + name);
  ASSERT_EQ(notes().size(), 1u);
  EXPECT_NE(notes()[0].find("has a vocabulary of 300 tokens and no tokenizer beside it"), std::string::npos);
}

/// The advice to tokenize with the model's own tokenizer led in a circle.
TEST_F(Beginnings, AModelWithFewerTokensThanItsTokenizerIsToldHowToGrow) {
  run_on(1, config_, [](train::Trainer& trainer) { LOOM_ASSERT_OK(trainer.save_model()); });
  config_.model = {};
  config_.model.from = config_.run.out + "/model";
  format::Json config = format::read_config(config_.model.from).take();
  config["vocab_size"] = 200;
  LOOM_ASSERT_OK(format::write_config(config_.model.from, config));
  EXPECT_TRUE(
      fails_with(train::Trainer::create(config_, nullptr), Code::invalid_argument,
                 "has 200 tokens, but the dataset's vocabulary has 257: the model must have a row for "
                 "each token of its tokenizer, which `model.resize_token_embeddings"));
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
