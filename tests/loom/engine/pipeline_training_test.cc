// Pipelines train like one rank, whatever the schedule, the cuts and the placement.
#include "engine/ranks.h"
#include "program/generate.h"
#include "program/schedule.h"

namespace loom::testing::pipeline_training_test {
namespace {

using program::Schedule;

constexpr int kSteps = 10;

/// 8 microbatches of one sequence in all, so that the tree over them is the same on every layout.
program::Job strict_job(int world, int stages, int degree) {
  program::Job job = small_job(world, degree, kSequences * stages / world, 1);
  job.pipeline_degree = stages;
  job.strict = true;
  job.spec.residual_dropout = job.spec.embedding_dropout = job.spec.attention_dropout = 0.1f;
  return job;
}

const std::vector<double>& one_rank(bool tied) {
  static const auto run = [](bool tie) {
    program::Job job = strict_job(1, 1, 1);
    job.spec.tied = tie;
    return train(job, 0, kSteps);
  };
  static const std::vector<double> with = run(true), without = run(false);
  return tied ? with : without;
}

TEST(PipelineTraining, StrictOrderGivesTheBitsOfOneRank) {
  for (const Schedule schedule : {Schedule::simple, Schedule::one_f_one_b})
    for (const auto& [world, stages, degree] : {std::tuple{2, 2, 1}, {4, 4, 1}, {4, 2, 2}, {4, 2, 1}}) {
      program::Job job = strict_job(world, stages, degree);
      job.schedule = schedule;
      job.spec.tied = schedule == Schedule::simple || degree == 1;
      job.checkpoint_group = degree - 1;
      EXPECT_EQ(train(job, 0, kSteps, {}, {}, world == 4 ? 2 : 1), one_rank(job.spec.tied))
          << program::to_string(job.layout()) << " " << program::schedule_name(schedule);
    }
}

TEST(PipelineTraining, SpareMicrobatchesChangeNoBit) {
  for (const bool strict : {false, true})
    for (const auto& [world, stages, degree] : {std::tuple{2, 2, 1}, {4, 4, 1}, {4, 2, 2}}) {
      program::Job job = strict_job(world, stages, degree);
      job.strict = strict;
      const std::vector<double> usual = train(job, 0, kSteps);
      job.active_microbatches = stages + 2;
      EXPECT_GT(program::most_active(job), stages);
      EXPECT_EQ(train(job, 0, kSteps), usual) << program::to_string(job.layout()) << " strict " << strict;
    }
}

TEST(PipelineTraining, InterleavedPartsGiveTheBitsOfOneRank) {
  program::Job job = strict_job(2, 2, 1);
  job.schedule = Schedule::interleaved;
  job.virtual_stages = 2;
  EXPECT_EQ(train(job, 0, kSteps), one_rank(true));
  job.first_units = {0, 1, 3, 4};
  job.prefetch = 0;
  EXPECT_EQ(train(job, 0, kSteps), one_rank(true));
}

TEST(PipelineTraining, OptimizerShardsAloneGiveTheBitsOfOneRank) {
  for (const auto& [world, stages, degree] : {std::tuple{2, 1, 2}, {4, 2, 2}, {4, 1, 2}}) {
    program::Job job = strict_job(world, stages, degree);
    job.shard_optimizer_only = true;
    job.checkpoint_group = stages - 1;
    EXPECT_EQ(train(job, 0, kSteps), one_rank(true)) << program::to_string(job.layout());
  }
}

TEST(PipelineTraining, RowsOfTheEmbeddingAddedAsTheyAreMadeGiveTheLossesOfOneRank) {
  for (const auto& [world, stages, degree, tensor] :
       {std::tuple{2, 2, 1, 1}, {4, 2, 2, 1}, {2, 1, 1, 2}, {1, 1, 1, 1}})
    for (const bool tied : {false, true}) {
      program::Job job = strict_job(world, stages, degree);
      job.microbatches *= tensor;
      job.tensor_degree = tensor;
      job.strict = false;
      job.spec.tied = tied;
      job.shard_optimizer_only = degree > 1;
      const std::vector<double> losses = train(job, 0, kSteps);
      for (int step = 0; step < kSteps; ++step)
        EXPECT_NEAR(losses[step], one_rank(tied)[step], 1e-5 * one_rank(tied)[step])
            << program::to_string(job.layout()) << " tied " << tied << " step " << step;
    }
}

TEST(PipelineTraining, EveryPlacementOfEightRanksGivesTheBitsOfOneRank) {
  for (const char* placement : {"DPT", "DTP", "PDT", "PTD", "TDP", "TPD"}) {
    program::Job job = strict_job(8, 2, 2);
    job.placement = placement;
    EXPECT_EQ(train(job, 0, 4, {}, {}, 2),
              std::vector<double>(one_rank(true).begin(), one_rank(true).begin() + 4))
        << placement;
  }
}

TEST(PipelineTraining, DefaultOrderIsCloseToOneRank) {
  program::Job plain = small_job(1, 1, 1, kSequences);
  const std::vector<double> wanted = train(plain, 0, kSteps);
  for (const int degree : {1, 2}) {
    program::Job job = small_job(4, degree, 4, 1);
    job.pipeline_degree = 2;
    const std::vector<double> got = train(job, 0, kSteps);
    for (int step = 0; step < kSteps; ++step) EXPECT_NEAR(got[step], wanted[step], 1e-5 * wanted[step]);
  }
  program::Job job = small_job(2, 1, 4, 2);
  job.pipeline_degree = 2;
  for (const program::Precision precision : {program::Precision::bf16, program::Precision::fp16}) {
    job.precision = precision;
    EXPECT_NEAR(train(job, 0, kSteps).back(), wanted.back(), 0.1);
  }
}

TEST(PipelineTraining, EvaluationAndLogitsAreKnownToAllRanks) {
  program::Job job = small_job(2, 1, 2, 4);
  job.pipeline_degree = 2;
  job.strict = true;
  const std::vector<double> losses = train(job, 0, 4);
  std::vector<double> evaluated;
  std::vector<std::vector<float>> logits;
  std::mutex mutex;
  train(job, 0, 3, {}, [&](engine::Engine& engine, const engine::Groups& groups) -> Status {
    fill_batch(engine, groups, 3);
    const Result<double> loss = engine.evaluate();
    LOOM_TRY(loss.status());
    Result<std::vector<float>> row = engine.logits(5);
    LOOM_TRY(row.status());
    const std::lock_guard lock(mutex);
    evaluated.push_back(*loss);
    logits.push_back(row.take());
    return {};
  });
  ASSERT_EQ(evaluated.size(), 2u);
  EXPECT_EQ(evaluated[0], evaluated[1]);
  EXPECT_NEAR(evaluated[0], losses[3], 1e-6);
  EXPECT_EQ(logits[0], logits[1]);
  EXPECT_NE(logits[0], std::vector<float>(logits[0].size(), 0.0f));
}

/// Ranks tell each other how long they were busy until the norm; each divides by the time that it took
/// itself. Both are in the timelines: the ranks' all together, and between the beginning and the end of the
/// norm.
TEST(PipelineTraining, TheBubbleIsWhatAllRanksTimelinesSay) {
  program::Job job = small_job(2, 1, 4, 2);
  job.pipeline_degree = 2;
  struct Rank {
    double busy_us = 0, norm_begin_us = 0, norm_end_us = 0, bubble = -1;
  };
  std::vector<Rank> all(2);
  on_ranks(2, 1, [&](weftComm_t world) {
    const Result<engine::Groups> groups = engine::Groups::create(world, job.layout(), false);
    LOOM_ASSERT_OK(groups);
    const auto engine = engine::Engine::create(job, *groups, {});
    LOOM_ASSERT_OK(engine);
    LOOM_ASSERT_OK((*engine)->initialize(1));
    // The last stage has more to do, and waits less.
    (*engine)->stand_in([&](const program::Instruction&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(groups->rank() == 0 ? 1 : 3));
    });
    const Result<engine::StepResult> result = (*engine)->step(settings_of(0));
    LOOM_ASSERT_OK(result);
    Rank& own = all[static_cast<size_t>(groups->rank())];
    own.bubble = result->bubble;
    const std::vector<program::Instruction>& list = (*engine)->training().instructions;
    for (size_t i = 0; i < list.size(); ++i) {
      const program::Interval& interval = (*engine)->timeline()[i];
      if (list[i].op == program::Op::norm) {
        own.norm_begin_us = interval.begin_us;
        own.norm_end_us = interval.end_us;
        break;
      }
      if (list[i].lane == 0) own.busy_us += interval.end_us - interval.begin_us;
    }
  });
  const double busy_us = all[0].busy_us + all[1].busy_us;
  EXPECT_GT(busy_us, 1e3 * 4 * (2 * 2 + 3 * 5));
  for (const Rank& rank : all) {
    EXPECT_GE(rank.bubble, 1 - busy_us / 2 / rank.norm_begin_us - 1e-9);
    EXPECT_LE(rank.bubble, 1 - busy_us / 2 / rank.norm_end_us + 1e-9);
  }
}

}  // namespace
}  // namespace loom::testing::pipeline_training_test
