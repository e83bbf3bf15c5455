// fp16's scaled derivatives: what is scaled is divided again, and when something overflows, wherever it is,
// all ranks leave the step out together.
#include <cmath>

#include "engine/ranks.h"

namespace loom::testing::loss_scale_test {
namespace {

struct Layout {
  int data, shard, tensor = 1, stages = 1;
  bool divides_rows = false;
  int world() const { return data * tensor * stages; }
  program::Job job() const {
    program::Job job = small_job(world(), shard, stages > 1 ? 4 / data : 1, 2);
    job.tensor_degree = tensor;
    job.pipeline_degree = stages;
    job.divides_rows = divides_rows;
    job.precision = program::Precision::fp16;
    return job;
  }
};

/// Everything that a step says of the numbers, to be compared between ranks and runs.
struct Outcome {
  double loss = 0, norm = 0;
  bool skipped = false;
  bool operator==(const Outcome&) const = default;
};
void PrintTo(const Outcome& outcome, std::ostream* out) {
  *out << outcome.loss << ", norm " << outcome.norm << (outcome.skipped ? ", skipped" : "");
}

/// A step: its number, the settings that it changes, and whether only data rank `only` has targets.
struct Step {
  int number = 0;
  double scale = 4096;
  uint32_t skipped = 0;
  int only = -1;
};

/// Runs steps on all ranks, which must all say the same, and returns what they say.
std::vector<Outcome> run(const program::Job& job, const std::vector<Step>& steps) {
  std::vector<Outcome> outcomes(steps.size());
  std::vector<bool> known(steps.size());
  std::mutex mutex;
  on_ranks(job.world, 1, [&](weftComm_t world) {
    const Result<engine::Groups> groups = engine::Groups::create(world, job.layout(), job.strict);
    LOOM_ASSERT_OK(groups);
    const auto engine = engine::Engine::create(job, *groups, {});
    LOOM_ASSERT_OK(engine);
    LOOM_ASSERT_OK((*engine)->initialize(3));
    for (size_t i = 0; i < steps.size(); ++i) {
      fill_batch(**engine, *groups, steps[i].number);
      if (steps[i].only >= 0 && steps[i].only != groups->coordinates().data)
        for (int m = 0; m < job.microbatches; ++m)
          for (int32_t& target : (*engine)->targets(m)) target = -1;
      engine::StepSettings settings = settings_of(steps[i].number);
      settings.loss_scale = steps[i].scale;
      settings.uncounted = steps[i].skipped;
      const Result<engine::StepResult> result = (*engine)->step(settings);
      LOOM_ASSERT_OK(result);
      const Outcome outcome{result->loss, std::isfinite(result->gradient_norm) ? result->gradient_norm : -1,
                            result->skipped};
      const std::lock_guard lock(mutex);
      if (!known[i]) outcomes[i] = outcome;
      known[i] = true;
      EXPECT_EQ(outcomes[i], outcome) << "rank " << groups->rank() << ", step " << i;
    }
  });
  return outcomes;
}

std::string name_of(const ::testing::TestParamInfo<Layout>& info) {
  const Layout& l = info.param;
  return fmt::format("D{}p{}T{}P{}{}", l.data, l.shard, l.tensor, l.stages, l.divides_rows ? "rows" : "");
}

class Overflow : public ::testing::TestWithParam<Layout> {};
INSTANTIATE_TEST_SUITE_P(LossScale, Overflow,
                         ::testing::Values(Layout{1, 1}, Layout{2, 1}, Layout{2, 2}, Layout{4, 1},
                                           Layout{4, 2}, Layout{4, 4}, Layout{1, 1, 2},
                                           Layout{1, 1, 2, 1, true}, Layout{1, 1, 1, 2}, Layout{2, 2, 1, 2}),
                         name_of);

/// Derivatives of one data rank overflow, those of all others are zeros. The steps after it are those of a
/// run that never made it: no parameter, no moment and no correction of moments' bias has changed.
TEST_P(Overflow, OfOneRankIsLeftOutByAll) {
  const program::Job job = GetParam().job();
  const int last = GetParam().data - 1;
  const std::vector<Outcome> with =
      run(job, {{0}, {1}, {2, 1e30, 0, last}, {3, 4096, 1}, {4, 4096, 1}, {5, 4096, 1}});
  const std::vector<Outcome> without = run(job, {{0}, {1}, {3, 4096, 1}, {4, 4096, 1}, {5, 4096, 1}});
  ASSERT_EQ(with.size(), 6u);
  EXPECT_TRUE(with[2].skipped);
  EXPECT_TRUE(std::isfinite(with[2].loss)) << "only derivatives are scaled";
  EXPECT_EQ(with[2].norm, -1);
  for (size_t step = 0; step < without.size(); ++step) {
    const Outcome& other = with[step < 2 ? step : step + 1];
    EXPECT_EQ(other, without[step]) << step;
    EXPECT_FALSE(other.skipped) << step;
  }
}

/// The least power of two that overflows does so in few elements, in some shard of some stage.
TEST_P(Overflow, InAFewElementsIsLeftOutByAll) {
  std::vector<Step> steps;
  for (int power = 12; power < 34; ++power) steps.push_back({0, std::ldexp(1.0, power), 0});
  const std::vector<Outcome> outcomes = run(GetParam().job(), steps);
  EXPECT_FALSE(outcomes.front().skipped);
  EXPECT_TRUE(outcomes.back().skipped);
}

/// Powers of two change no bit of fp32: what the head multiplies by is divided again, in norm, clipping and
/// optimizer.
TEST(LossScale, IsDividedOutExactly) {
  for (Layout layout : {Layout{1, 1}, Layout{2, 2}, Layout{1, 1, 2}, Layout{1, 1, 1, 2}}) {
    program::Job job = layout.job();
    job.precision = program::Precision::fp32;
    const auto outcomes = [&](double scale) {
      return run(job, {{0, scale}, {1, scale}, {2, scale}, {3, scale}});
    };
    const std::vector<Outcome> plain = outcomes(1);
    EXPECT_GT(plain.back().norm, 0);
    EXPECT_EQ(outcomes(65536), plain);
    EXPECT_EQ(outcomes(std::ldexp(1.0, -20)), plain);
  }
}

/// What fp16 cannot hold without: derivatives of a mean over many targets, times a small number here for a
/// larger batch.
TEST(LossScale, KeepsDerivativesThatFp16WouldLose) {
  program::Job job = Layout{1, 1}.job();
  const double tiny = std::ldexp(1.0, -22);
  const Outcome lost = run(job, {{0, tiny}}).front(), kept = run(job, {{0, 4096}}).front();
  job.precision = program::Precision::fp32;
  const Outcome wanted = run(job, {{0, 1}}).front();
  EXPECT_NEAR(kept.norm, wanted.norm, 2e-3 * wanted.norm);
  EXPECT_GT(std::fabs(lost.norm - wanted.norm), 0.05 * wanted.norm);
}

TEST(LossScale, OfAnotherPrecisionDoesNotForgive) {
  program::Job job = Layout{1, 1}.job();
  job.precision = program::Precision::bf16;
  const Result<engine::Groups> groups = engine::Groups::create(nullptr, job.layout(), false);
  LOOM_ASSERT_OK(groups);
  const auto engine = engine::Engine::create(job, *groups, {});
  LOOM_ASSERT_OK(engine);
  LOOM_ASSERT_OK((*engine)->initialize(3));
  fill_batch(**engine, *groups, 0);
  engine::StepSettings settings = settings_of(0);
  settings.loss_scale = 1e42;
  EXPECT_TRUE(fails_with((*engine)->step(settings), Code::not_finite, "step 1: the loss is"));
}

TEST(LossScale, EvaluationAfterASkippedStepIsTheOneBefore) {
  program::Job job = Layout{2, 2}.job();
  on_ranks(2, 1, [&](weftComm_t world) {
    const Result<engine::Groups> groups = engine::Groups::create(world, job.layout(), false);
    LOOM_ASSERT_OK(groups);
    const auto engine = engine::Engine::create(job, *groups, {});
    LOOM_ASSERT_OK(engine);
    LOOM_ASSERT_OK((*engine)->initialize(3));
    const auto evaluated = [&] {
      fill_batch(**engine, *groups, 9);
      const Result<double> loss = (*engine)->evaluate();
      EXPECT_TRUE(loss.ok());
      return loss.ok() ? *loss : -1;
    };
    const double before = evaluated();
    fill_batch(**engine, *groups, 0);
    engine::StepSettings settings = settings_of(0);
    settings.loss_scale = 1e30;
    const Result<engine::StepResult> skipped = (*engine)->step(settings);
    LOOM_ASSERT_OK(skipped);
    EXPECT_TRUE(skipped->skipped);
    EXPECT_EQ(evaluated(), before);
    fill_batch(**engine, *groups, 0);
    settings.loss_scale = 4096;
    LOOM_ASSERT_OK((*engine)->step(settings));
    EXPECT_NE(evaluated(), before);
  });
}

}  // namespace
}  // namespace loom::testing::loss_scale_test
