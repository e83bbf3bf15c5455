// Measuring the units of a model: what rank 0 finds is what all ranks divide by, and when it finds nothing
// all say why and divide by the cost model.
#include "train/profiling.h"

#include "base/process_memory.h"
#include "engine/ranks.h"
#include "train/runs.h"

namespace loom::testing {
namespace {

using Units = std::vector<engine::UnitProfile>;

TEST(Profiling, AllRanksHaveWhatRankZeroHasMeasured) {
  const engine::UnitProfile first{0, 1, 10, {1, 2}, {100, 200}, {5, 6}},
      second{1, 0, 20, {3, 4}, {300, 400}, {7, 8}};
  for (const int ranks : {1, 2})
    on_ranks(ranks, 1, [&](weftComm_t world) {
      int rank = 0;
      if (world != nullptr) {
        ASSERT_EQ(weftCommUserRank(world, &rank), weftSuccess);
      }
      const Units own = rank == 0 ? Units{first, second} : Units();
      const Result<train::SharedProfile> shared = train::share_profile(own, 2, world);
      LOOM_ASSERT_OK(shared);
      EXPECT_EQ(shared->failure, "");
      ASSERT_EQ(shared->units.size(), 2u);
      EXPECT_EQ(shared->units[0].saved.measured, 100);
      EXPECT_EQ(shared->units[0].measured, 1);
      EXPECT_EQ(shared->units[1].measured, 0);
      EXPECT_EQ(shared->units[1].time_us, 20);
      EXPECT_EQ(shared->units[1].saved.planned, 400);
      EXPECT_EQ(shared->units[1].workspace.planned, 8);
    });
}

TEST(Profiling, AllRanksAreToldWhyThereIsNothing) {
  for (const int ranks : {1, 2})
    on_ranks(ranks, 1, [&](weftComm_t world) {
      const Result<Units> own = fail(Code::out_of_memory, "there is not enough for a unit");
      const Result<train::SharedProfile> shared = train::share_profile(own, 2, world);
      LOOM_ASSERT_OK(shared);
      EXPECT_EQ(shared->failure, "there is not enough for a unit");
      EXPECT_TRUE(shared->units.empty()) << "zeros would be taken for times";
    });
}

TEST(Profiling, AModelThatFitsNowhereIsRefusedAndNotFatal) {
  program::Job job = small_job(1, 1, 1, 1);
  job.spec.vocabulary = 1 << 29;
  job.spec.width = 1 << 20;  // more than a process may address
  const Result<Units> units = engine::profile_units(job, 1);
  EXPECT_TRUE(
      fails_with(units, Code::out_of_memory, "there is not enough memory to measure the model's units"));
}

/// The kernel would give it, until it is used: then it would end the process.
TEST(Profiling, AUnitThatNeedsMostOfTheMachineIsRefusedAndNotKilled) {
  program::Job job = small_job(1, 1, 1, 1);
  job.spec.tied = false;
  job.spec.width = 1024;
  job.spec.vocabulary = machine_bytes() / 10 * 8 / (16 * 1024);
  EXPECT_GT(engine::bytes_to_profile(job), machine_bytes() / 10 * 7);
  EXPECT_LT(engine::bytes_to_profile(job), machine_bytes());
  EXPECT_TRUE(fails_with(engine::profile_units(job, 1), Code::out_of_memory,
                         "MiB three quarters may be used for it"));
}

TEST(Profiling, TheLimitOfARankHoldsForMeasuringToo) {
  const program::Job job = small_job(1, 1, 1, 1);
  const int64_t needed = engine::bytes_to_profile(job);
  LOOM_ASSERT_OK(engine::profile_units(job, 1, {.repeats = 1, .limit_bytes = needed}));
  EXPECT_TRUE(fails_with(engine::profile_units(job, 1, {.repeats = 1, .limit_bytes = needed - 1}),
                         Code::out_of_memory, "and parallel.memory_limit_mb is"));
}

class ProfiledRuns : public Runs {};

TEST_F(ProfiledRuns, DivideByWhatIsMeasuredWithoutANote) {
  make_tokens(config_.data.folder);
  config_.parallel.profile = true;
  config_.parallel.pipeline_degree = 2;
  config_.run.steps = 1;
  run_on(2, config_, [&](train::Trainer& trainer) {
    EXPECT_EQ(trainer.profiles().size(), 4u);
    EXPECT_TRUE(trainer.notes().empty());
  });
}

TEST_F(ProfiledRuns, AreMeasuredWithinTheLimitOfARank) {
  config_.model.width = 256;
  const Result<model::ModelSpec> spec = train::spec_of(config_, 300);
  LOOM_ASSERT_OK(spec);
  LOOM_ASSERT_OK(train::profile(config_, *spec, 1, 1));
  config_.parallel.memory_limit_mb = 8;  // a block's state alone is more
  EXPECT_TRUE(fails_with(train::profile(config_, *spec, 1, 1), Code::out_of_memory,
                         "and parallel.memory_limit_mb is 8"));
}

/// What one rank measures has no degree; the plan of the same config measures, too.
TEST_F(ProfiledRuns, MeasureWhereTheOptimizersStateAloneIsShared) {
  make_tokens(config_.data.folder);
  config_.parallel.profile = true;
  config_.parallel.shard_optimizer_state = true;
  config_.parallel.sharded_data_parallel_degree = 2;
  config_.run.steps = 1;
  run_on(2, config_, [&](train::Trainer& trainer) {
    EXPECT_EQ(trainer.profiles().size(), 4u);
    EXPECT_TRUE(trainer.notes().empty());
  });
}

}  // namespace
}  // namespace loom::testing
