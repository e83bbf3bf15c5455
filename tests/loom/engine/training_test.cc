// Training gives the same losses however it is divided.
#include <cmath>

#include "engine/ranks.h"

namespace loom::testing::training_test {
namespace {

constexpr int kSteps = 50;

std::vector<double> reference() {
  static const std::vector<double> losses = train(small_job(1, 1, 1, kSequences), 0, kSteps);
  return losses;
}

void expect_equal_losses(const std::vector<double>& got, const std::vector<double>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t step = 0; step < got.size(); ++step)
    EXPECT_NEAR(got[step], wanted[step], 1e-5 * wanted[step]) << "step " << step;
}

TEST(Training, LossesFall) {
  const std::vector<double> losses = reference();
  EXPECT_NEAR(losses.front(), std::log(40.0), 0.1);
  EXPECT_LT(losses.back(), 2);
}

struct Layout {
  int world, degree, microbatches, group;
};

class EveryLayout : public ::testing::TestWithParam<Layout> {};

TEST_P(EveryLayout, HasTheLossesOfOneRank) {
  const auto [world, degree, microbatches, group] = GetParam();
  program::Job job = small_job(world, degree, microbatches, kSequences / world / microbatches);
  job.checkpoint_group = group;
  expect_equal_losses(train(job, 0, kSteps, {}, {}, world > 2 ? 2 : 1), reference());
}

/// 1, 2 and 4 ranks, every p, with and without accumulation and checkpointing; and what goes further.
std::vector<Layout> every_layout() {
  std::vector<Layout> layouts = {{1, 1, 8, 2}, {2, 2, 4, 1}, {4, 2, 2, 2}};
  for (const auto& [world, degree] : {std::pair{1, 1}, {2, 1}, {2, 2}, {4, 1}, {4, 2}, {4, 4}})
    for (const int microbatches : {1, 2})
      for (const int group : {0, 1}) layouts.push_back({world, degree, microbatches, group});
  return layouts;
}

INSTANTIATE_TEST_SUITE_P(Training, EveryLayout, ::testing::ValuesIn(every_layout()), [](const auto& info) {
  return fmt::format("{}ranks{}degree{}micro{}group", info.param.world, info.param.degree,
                     info.param.microbatches, info.param.group);
});

/// With 8 microbatches of one sequence in all, the tree over them is the same on every layout.
program::Job strict_job(int world, int degree) {
  program::Job job = small_job(world, degree, kSequences / world, 1);
  job.strict = true;
  job.spec.residual_dropout = job.spec.embedding_dropout = job.spec.attention_dropout = 0.1f;
  return job;
}

TEST(Training, StrictOrderGivesTheSameBitsOnEveryLayout) {
  const std::vector<double> one = train(strict_job(1, 1), 0, kSteps);
  for (const auto& [world, degree] : {std::pair{2, 1}, {2, 2}, {4, 1}, {4, 2}, {4, 4}})
    EXPECT_EQ(train(strict_job(world, degree), 0, kSteps), one) << world << " ranks, degree " << degree;
}

/// Microbatches of two sequences: four ranks have one each, so nothing is accumulated there.
TEST(Training, StrictOrderGivesTheSameBitsWithAndWithoutAccumulationAndCheckpointing) {
  const auto job_of = [](int world, int degree, int group) {
    program::Job job = strict_job(world, degree);
    job.microbatches = kSequences / 2 / world;
    job.batch = 2;
    job.checkpoint_group = group;
    return job;
  };
  const std::vector<double> one = train(job_of(1, 1, 0), 0, kSteps);
  for (const auto& [world, degree, group] :
       {std::tuple{1, 1, 1}, {2, 2, 0}, {2, 1, 3}, {4, 1, 0}, {4, 1, 1}, {4, 2, 2}, {4, 4, 0}, {4, 4, 1}})
    EXPECT_EQ(train(job_of(world, degree, group), 0, kSteps), one)
        << world << " ranks, degree " << degree << ", group " << group;
}

TEST(Training, CheckpointingAndGathersThatStayChangeNoBit) {
  program::Job job = strict_job(2, 2);
  const std::vector<double> plain = train(job, 0, 10);
  job.checkpoint_group = 2;
  EXPECT_EQ(train(job, 0, 10), plain);
  job.live_elements = 1 << 30;
  job.prefetch = 3;
  job.in_flight = 1;
  EXPECT_EQ(train(job, 0, 10), plain);
}

TEST(Training, OffloadingChangesNoBitAndNeedsLessMemory) {
  for (const int ranks : {1, 2})
    for (const int group : {0, 1}) {
      program::Job job = strict_job(ranks, ranks);
      job.spec.layers = 8;
      job.checkpoint_group = group;
      int64_t kept = 0, offloaded = 0;
      std::mutex mutex;
      const auto bytes = [&](int64_t& into) {
        return [&](engine::Engine& engine, const engine::Groups&) -> Status {
          const std::lock_guard lock(mutex);
          into = engine.memory().bytes;
          EXPECT_EQ(engine.memory().tier_bytes > 0, engine.job().offload);
          return {};
        };
      };
      const std::vector<double> plain = train(job, 0, 10, {}, bytes(kept));
      job.offload = true;
      job.loading_horizon = 2;
      EXPECT_EQ(train(job, 0, 10, {}, bytes(offloaded)), plain) << ranks << " ranks, group " << group;
      EXPECT_LT(offloaded, kept);
    }
}

TEST(Training, SmallerTypesLearn) {
  for (const program::Precision precision : {program::Precision::bf16, program::Precision::fp16}) {
    program::Job job = small_job(2, 2, 2, 2);
    job.precision = precision;
    const std::vector<double> losses = train(job, 0, kSteps);
    const bool fine = precision == program::Precision::fp16;
    EXPECT_NEAR(losses.back(), reference().back(), fine ? 0.05 : 0.2);
    EXPECT_NEAR(losses.front(), reference().front(), fine ? 1e-3 : 1e-2);
  }
}

TEST(Training, EvaluationIsTheLossOfTheNextStep) {
  const program::Job job = small_job(2, 2, 2, 2);
  std::vector<double> evaluated;
  std::mutex mutex;
  const std::vector<double> losses = train(job, 0, 6);
  train(job, 0, 5, {}, [&](engine::Engine& engine, const engine::Groups& groups) -> Status {
    fill_batch(engine, groups, 5);
    const Result<double> loss = engine.evaluate();
    LOOM_TRY(loss.status());
    const std::lock_guard lock(mutex);
    evaluated.push_back(*loss);
    return {};
  });
  ASSERT_EQ(evaluated.size(), 2u);
  EXPECT_EQ(evaluated[0], evaluated[1]);
  EXPECT_NEAR(evaluated[0], losses[5], 1e-6);
}

TEST(Training, LogitsPredictWhatWasLearned) {
  train(small_job(1, 1, 1, kSequences), 0, kSteps, {},
        [](engine::Engine& engine, const engine::Groups&) -> Status {
          const Result<std::vector<float>> logits = engine.logits(5);
          LOOM_TRY(logits.status());
          EXPECT_EQ(std::max_element(logits->begin(), logits->end()) - logits->begin(), engine.targets(0)[5]);
          return {};
        });
}

TEST(Training, ANaNEndsItWithASentenceAndChangesNothing) {
  program::Job job = small_job(2, 2, 1, 4);
  on_ranks(2, 1, [&](weftComm_t world) {
    const Result<engine::Groups> groups = engine::Groups::create(world, {.data = 2, .shard = 2}, false);
    LOOM_ASSERT_OK(groups);
    auto engine = engine::Engine::create(job, *groups, {});
    LOOM_ASSERT_OK(engine);
    LOOM_ASSERT_OK((*engine)->initialize(3));
    engine::StepSettings settings = settings_of(0);
    settings.optimizer.learning_rate = 1e30f;
    settings.clip_norm = 0;
    fill_batch(**engine, *groups, 0);
    LOOM_ASSERT_OK((*engine)->step(settings));
    settings.step = 1;
    EXPECT_TRUE(fails_with((*engine)->step(settings), Code::not_finite, "step 2: the loss is"));
  });
}

TEST(Engine, RefusesGroupsOfAnotherJob) {
  const Result<engine::Groups> groups = engine::Groups::create(nullptr, {}, false);
  LOOM_ASSERT_OK(groups);
  EXPECT_TRUE(fails_with(
      engine::Engine::create(small_job(2, 2, 1, 4), *groups, {}), Code::invalid_argument,
      "the job is for 2 ranks (D 2, P 1, T 1, p 2, DPT), the groups for 1 rank (D 1, P 1, T 1, p 1, DPT)"));
  EXPECT_TRUE(fails_with(engine::Groups::create(nullptr, {.data = 3}, false), Code::invalid_argument,
                         "the layout is for 3 ranks, the communicator has 1"));
}

}  // namespace
}  // namespace loom::testing::training_test
