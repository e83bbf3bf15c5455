// Measuring the units of a model: what rank 0 finds is what all ranks divide by, and when it finds nothing
// all say why and divide by the cost model.
#include "train/profiling.h"

#include "engine/ranks.h"
#include "train/runs.h"

namespace loom::testing {
namespace {

using Units = std::vector<engine::UnitProfile>;

TEST(Profiling, AllRanksHaveWhatRankZeroHasMeasured) {
  for (const int ranks : {1, 2})
    on_ranks(ranks, 1, [&](weftComm_t world) {
      int rank = 0;
      if (world != nullptr) {
        ASSERT_EQ(weftCommUserRank(world, &rank), weftSuccess);
      }
      const Units own = rank == 0 ? Units{{0, 10, 100, 200}, {1, 20, 300, 400}} : Units();
      const Result<train::SharedProfile> shared = train::share_profile(own, 2, world);
      LOOM_ASSERT_OK(shared);
      EXPECT_EQ(shared->failure, "");
      ASSERT_EQ(shared->units.size(), 2u);
      EXPECT_EQ(shared->units[0].saved_bytes, 100);
      EXPECT_EQ(shared->units[1].time_us, 20);
      EXPECT_EQ(shared->units[1].planned_bytes, 400);
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

// Sanitizers end a process that asks for so much.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(Profiling, AModelThatFitsNowhereIsRefusedAndNotFatal) {
  program::Job job = small_job(1, 1, 1, 1);
  job.spec.vocabulary = 1 << 29;
  job.spec.width = 1 << 20;  // more than a process may address
  const Result<Units> units = engine::profile_units(job, 1, 1);
  EXPECT_TRUE(
      fails_with(units, Code::out_of_memory, "there is not enough memory to measure the model's units"));
}
#endif

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
