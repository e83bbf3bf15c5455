// Masked language models on tensor ranks: the head picks the rows with targets, and has the losses of one
// rank.
#include <barrier>

#include "engine/families.h"
#include "program/generate.h"

namespace loom::testing::masked_test {
namespace {

constexpr int kSteps = 6;

/// Three of the twelve tokens of each sequence have targets.
program::Job masked_job(int tensor = 1, bool divides_rows = false) {
  program::Job job = small_job(tensor, 1, 1, kSequences);
  job.spec.vocabulary = 41;  // the last rank has fewer tokens
  job.spec = family_spec(model::Family::bert, model::Task::masked, job.spec);
  job.targets = 3;
  job.tensor_degree = tensor;
  job.divides_rows = divides_rows;
  return job;
}

void expect_equal_losses(const program::Job& job, const std::vector<double>& wanted) {
  const std::vector<double> got = train(job, 0, static_cast<int>(wanted.size()));
  for (size_t step = 0; step < wanted.size(); ++step)
    EXPECT_NEAR(got[step], wanted[step], 1e-5 * wanted[step]) << "step " << step;
}

TEST(Masked, TensorRanksHaveTheLossesOfOneRank) {
  for (const bool tied : {true, false}) {
    program::Job one = masked_job();
    one.spec.tied = tied;
    const std::vector<double> wanted = train(one, 0, kSteps);
    for (const int tensor : {2, 4})
      for (const bool divides_rows : {false, true}) {
        SCOPED_TRACE(fmt::format("T {}{}", tensor, divides_rows ? ", rows divided" : ""));
        program::Job job = masked_job(tensor, divides_rows);
        job.spec.tied = tied;
        expect_equal_losses(job, wanted);
        job.prescaled_batch = false;
        expect_equal_losses(job, wanted);
      }
  }
}

TEST(Masked, StagesOfTensorRanksWithShardsHaveTheLossesOfOneRank) {
  const std::vector<double> wanted = train(masked_job(), 0, kSteps);
  for (const bool divides_rows : {false, true}) {
    program::Job job = masked_job(2, divides_rows);
    job.world = 8;
    job.pipeline_degree = job.degree = job.microbatches = 2;
    job.batch = kSequences / 4;
    job.checkpoint_group = 1;
    expect_equal_losses(job, wanted);
  }
}

/// Blocks look at where sequences end, also on stages whose units have no tokens and no targets.
TEST(Masked, TextsWithPaddingInThreeStagesHaveTheLossesOfOneRank) {
  program::Job one = masked_job();
  one.spec.padding = 0;
  const std::vector<double> wanted = train(one, 0, kSteps);
  for (const bool divides_rows : {false, true})
    for (const bool prescaled : {false, true}) {
      SCOPED_TRACE(fmt::format("rows divided {}, prescaled {}", divides_rows, prescaled));
      program::Job job = masked_job(2, divides_rows);
      job.spec.padding = 0;
      job.world = 6;
      job.pipeline_degree = 3;
      job.microbatches = 2;
      job.batch = kSequences / 2;
      job.checkpoint_group = divides_rows ? 1 : 0;
      job.prescaled_batch = prescaled;
      expect_equal_losses(job, wanted);
    }
}

TEST(Masked, MoreRowsThanLogitsOfAtATimeHaveTheLossesOfOneRank) {
  program::Job one = masked_job();
  one.spec.context = one.tokens = 150;
  one.targets = 141;  // 1128 rows, of which two ranks have logits of 1024 at a time
  const std::vector<double> wanted = train(one, 0, 2);
  for (const bool divides_rows : {false, true}) {
    program::Job job = one;
    job.world = job.tensor_degree = 2;
    job.divides_rows = divides_rows;
    expect_equal_losses(job, wanted);
  }
}

/// The evaluation's loss, and logits of a row with a target and of one without.
std::pair<double, std::vector<float>> look(const program::Job& job) {
  std::pair<double, std::vector<float>> seen;
  std::mutex mutex;
  train(job, 0, 1, {}, [&](engine::Engine& engine, const engine::Groups& groups) -> Status {
    fill_batch(engine, groups, 5);
    EXPECT_GE(engine.targets(0)[12], 0);  // (0 · 7 + 1) % 12 < 3
    EXPECT_LT(engine.targets(0)[13], 0);
    const Result<double> loss = engine.evaluate();
    LOOM_TRY(loss.status());
    std::vector<float> logits;
    for (const int64_t row : {12, 13, 95}) {
      const Result<std::vector<float>> some = engine.logits(row);
      LOOM_TRY(some.status());
      logits.insert(logits.end(), some->begin(), some->end());
    }
    const std::lock_guard lock(mutex);
    seen = {*loss, logits};
    return {};
  });
  return seen;
}

TEST(Masked, EvaluationAndLogitsOfAnyRowAreThoseOfOneRank) {
  const auto [loss, logits] = look(masked_job());
  for (const bool divides_rows : {false, true}) {
    const auto [own_loss, own_logits] = look(masked_job(2, divides_rows));
    EXPECT_NEAR(own_loss, loss, 1e-5 * loss);
    ASSERT_EQ(own_logits.size(), 3u * 41);
    for (size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(own_logits[i], logits[i], 1e-4) << i;
  }
}

TEST(Masked, MoreTargetsThanTheJobHasAreRefused) {
  const program::Job job = masked_job(2, true);
  std::barrier together(2);
  on_ranks(2, 1, [&](weftComm_t world) {
    Result<engine::Groups> groups = engine::Groups::create(world, job.layout(), job.strict);
    LOOM_ASSERT_OK(groups);
    Result<std::unique_ptr<engine::Engine>> engine = engine::Engine::create(job, *groups, {});
    LOOM_ASSERT_OK(engine);
    LOOM_ASSERT_OK((*engine)->initialize(3));
    fill_batch(**engine, *groups, 0);
    std::fill_n((*engine)->targets(0).begin(), 12, 7);
    // The refusal aborts communicators in which the other rank may still be initializing.
    together.arrive_and_wait();
    // By this rank, or by one that was first.
    const Status refused = (*engine)->step(settings_of(0)).status();
    EXPECT_NE(refused.message().find("microbatch 0 has 33 targets, but the job has 3 of each of 8 sequences"),
              std::string::npos)
        << refused.message();
  });
}

}  // namespace
}  // namespace loom::testing::masked_test
