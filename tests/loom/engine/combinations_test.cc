// Features together: what each alone promises holds for both.
#include "engine/ranks.h"
#include "program/schedule.h"

namespace loom::testing::combinations_test {
namespace {

constexpr int kSteps = 6;

void expect_equal_losses(const std::vector<double>& got, const std::vector<double>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t step = 0; step < got.size(); ++step)
    EXPECT_NEAR(got[step], wanted[step], 1e-5 * wanted[step]) << "step " << step;
}

TEST(Combinations, OffloadingInStagesOfTensorRanksChangesNoBit) {
  for (const bool divides_rows : {false, true})
    for (const int data : {1, 2}) {
      program::Job job = small_job(4 * data, data, 4, kSequences / 4 / data);
      job.pipeline_degree = 2;
      job.tensor_degree = 2;
      job.divides_rows = divides_rows;
      job.spec.layers = 8;
      job.spec.residual_dropout = job.spec.attention_dropout = 0.1f;
      job.checkpoint_group = data - 1;
      const std::vector<double> plain = train(job, 0, kSteps);
      job.offload = true;
      job.loading_horizon = 2;
      const auto is_offloading = [](engine::Engine& engine, const engine::Groups&) -> Status {
        EXPECT_GT(engine.memory().tier_bytes, 0);
        return {};
      };
      EXPECT_EQ(train(job, 0, kSteps, {}, is_offloading), plain)
          << data << " data ranks, rows " << (divides_rows ? "divided" : "whole");
    }
}

TEST(Combinations, ThreeTensorRanksHaveTheLossesOfOne) {
  program::Job job = small_job(1, 1, 2, kSequences / 2);
  job.spec.heads = 6;
  job.spec.width = 36;
  job.spec.feed_forward = 70;  // 24, 24 and 22
  const std::vector<double> one = train(job, 0, kSteps);
  for (const bool divides_rows : {false, true})
    for (const int stages : {1, 2}) {
      job.tensor_degree = 3;
      job.pipeline_degree = stages;
      job.world = 3 * stages;
      job.divides_rows = divides_rows;
      expect_equal_losses(train(job, 0, kSteps), one);
    }
}

TEST(Combinations, FourStagesOfTwoInterleavedPartsHaveTheBitsOfOneRank) {
  const auto job_of = [](int stages) {
    program::Job job = small_job(stages, 1, kSequences, 1);
    job.strict = true;
    job.spec.layers = 8;
    job.spec.residual_dropout = 0.1f;
    job.pipeline_degree = stages;
    return job;
  };
  const std::vector<double> one = train(job_of(1), 0, kSteps);
  program::Job job = job_of(4);
  job.schedule = program::Schedule::interleaved;
  job.virtual_stages = 2;
  EXPECT_EQ(train(job, 0, kSteps), one);
  job.checkpoint_group = 1;
  EXPECT_EQ(train(job, 0, kSteps), one);
}

TEST(Combinations, OptimizerShardsAloneWithTensorRanksHaveTheLossesOfOneRank) {
  const std::vector<double> one = train(small_job(1, 1, 2, kSequences / 2), 0, kSteps);
  for (const auto& [data, stages] : {std::pair{2, 1}, {4, 1}, {2, 2}}) {
    program::Job job = small_job(data * stages * 2, 2, 2, kSequences / 2 / data);
    job.tensor_degree = 2;
    job.pipeline_degree = stages;
    job.divides_rows = data == 2;
    job.shard_optimizer_only = true;
    expect_equal_losses(train(job, 0, kSteps), one);
  }
}

/// Arena and workers' scratch after a step of one sequence.
int64_t bytes_at(int64_t tokens) {
  program::Job job = small_job(1, 1, 1, 1);
  job.spec.context = 2048;
  job.tokens = tokens;
  int64_t bytes = 0;
  train(job, 0, 1, {}, [&](engine::Engine& engine, const engine::Groups&) -> Status {
    bytes = engine.memory_bytes();
    return {};
  });
  return bytes;
}

/// Scores of all tokens with all, 4 heads of floats, would be 64 MiB at 2048 tokens.
TEST(Combinations, MemoryGrowsWithTheLengthOfSequencesAndNotWithItsSquare) {
  const int64_t first = bytes_at(512), second = bytes_at(1024), fourth = bytes_at(2048);
  const double once = static_cast<double>(second - first), twice = static_cast<double>(fourth - second);
  EXPECT_GT(once, 512 * 32 * 4);
  EXPECT_NEAR(twice, 2 * once, 0.02 * once);
  EXPECT_LT(fourth, 16 << 20);
}

}  // namespace
}  // namespace loom::testing::combinations_test
