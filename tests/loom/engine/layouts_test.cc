// Every way to divide a job over data, shard, pipeline and tensor degrees trains like one rank.
#include <cmath>
#include <set>

#include "engine/families.h"
#include "program/schedule.h"

namespace loom::testing::layouts_test {
namespace {

using program::Layout;
using program::Schedule;

constexpr int kSteps = 10;

/// 8 microbatches of one sequence in all, so that the tree over them is the same on every layout; 8 units, 8
/// heads, and a vocabulary that 8 ranks do not divide evenly.
program::Job job_of(const Layout& layout) {
  program::Job job = small_job(layout.ranks(), layout.shard, kSequences / layout.data, 1);
  job.spec.layers = 6;
  job.spec.heads = 8;
  job.spec.vocabulary = 47;
  job.spec.context = job.tokens = 16;
  job.spec.residual_dropout = job.spec.embedding_dropout = job.spec.attention_dropout = 0.1f;
  job.strict = true;
  job.pipeline_degree = layout.pipeline;
  job.tensor_degree = layout.tensor;
  job.placement = layout.placement;
  return job;
}

/// All divisions of so many ranks, each in every order of D, P and T that puts some rank elsewhere.
std::vector<Layout> layouts_of(int ranks) {
  std::vector<Layout> layouts;
  for (int pipeline = 1; pipeline <= ranks; pipeline *= 2)
    for (int tensor = 1; pipeline * tensor <= ranks; tensor *= 2) {
      const int data = ranks / (pipeline * tensor);
      for (int shard = 1; shard <= data; shard *= 2) {
        std::set<std::string> seen;
        for (const char* placement : {"DPT", "DTP", "PDT", "PTD", "TDP", "TPD"}) {
          const Layout layout{data, pipeline, tensor, shard, placement};
          if (seen.insert(program::picture(layout, ranks)).second) layouts.push_back(layout);
        }
      }
    }
  return layouts;
}

const std::vector<double>& one_rank() {
  static const std::vector<double> losses = train(job_of({1, 1, 1, 1, "DPT"}), 0, kSteps);
  return losses;
}

/// Strict order gives the bits of one rank, unless products are divided: their sums are other sums.
void expect_losses_of_one_rank(const program::Job& job) {
  SCOPED_TRACE(fmt::format("{} {} {} strict {}", program::to_string(job.layout()),
                           program::schedule_name(job.schedule), job.divides_rows ? "memory" : "speed",
                           job.strict));
  const std::vector<double> losses = train(job, 0, kSteps, {}, {}, job.world > 4 ? 2 : 1);
  if (job.tensor_degree == 1) {
    EXPECT_EQ(losses, one_rank());
    return;
  }
  for (size_t step = 0; step < losses.size(); ++step)
    EXPECT_NEAR(losses[step], one_rank()[step], 1e-5 * one_rank()[step]) << "step " << step;
}

class Divided : public ::testing::TestWithParam<int> {};

TEST_P(Divided, EveryLayoutHasTheLossesOfOneRank) {
  int number = 0;
  for (const Layout& layout : layouts_of(GetParam())) {
    program::Job job = job_of(layout);
    // What does not change the result takes turns.
    ++number;
    if (layout.tensor > 1) {  // larger microbatches, fewer exchanges
      job.microbatches = std::min(job.microbatches, layout.pipeline);
      job.batch = kSequences / layout.data / job.microbatches;
      job.divides_rows = number % 2 == 0;
      job.prescaled_batch = number % 3 != 1 || job.batch % layout.tensor != 0;
    }
    job.strict = layout.tensor == 1 || number % 3 == 0;
    job.checkpoint_group = number % 3;
    job.schedule = number % 2 == 0 ? Schedule::one_f_one_b : Schedule::simple;
    if (layout.pipeline == 2 && job.microbatches % 2 == 0 && number % 3 == 1) {
      job.schedule = Schedule::interleaved;
      job.virtual_stages = 3;
    }
    expect_losses_of_one_rank(job);
  }
  EXPECT_EQ(number, GetParam() == 1 ? 1 : GetParam() == 2 ? 4 : GetParam() == 4 ? 15 : 42);
}

INSTANTIATE_TEST_SUITE_P(Training, Divided, ::testing::Values(1, 2, 4, 8),
                         [](const auto& info) { return fmt::format("{}ranks", info.param); });

TEST(Divided, LogitsAreThoseOfOneRankOnAllRanks) {
  std::mutex mutex;
  std::vector<std::vector<float>> logits;
  const auto look = [&](engine::Engine& engine, const engine::Groups&) -> Status {
    for (int m = 0; m < engine.job().microbatches; ++m)
      std::fill(engine.tokens(m).begin(), engine.tokens(m).end(), m);
    Result<std::vector<float>> row = engine.logits(5);
    LOOM_TRY(row.status());
    const std::lock_guard lock(mutex);
    logits.push_back(row.take());
    return {};
  };
  train(job_of({1, 1, 1, 1, "DPT"}), 0, 2, {}, look);
  for (const bool divides_rows : {false, true}) {
    program::Job job = job_of({1, 2, 2, 1, "DPT"});
    job.microbatches = 2;
    job.batch = 4;
    job.divides_rows = divides_rows;
    train(job, 0, 2, {}, look);
  }
  ASSERT_EQ(logits.size(), 9u);
  for (const std::vector<float>& row : logits) {
    ASSERT_EQ(row.size(), 47u);
    for (size_t token = 0; token < row.size(); ++token) EXPECT_NEAR(row[token], logits[0][token], 2e-4);
  }
}

program::Job job_of_family(model::Family family, const Layout& layout) {
  program::Job job = job_of(layout);
  job.spec.width = 64;
  job.spec.layers = 3;
  job.spec.heads = 4;
  job.spec = family_spec(family, model::usual_task(family), job.spec);
  model::complete(job.spec);
  return job;
}

TEST(Families, PipelinesGiveTheBitsOfOneRank) {
  for (const model::Family family : kEveryFamily) {
    const std::vector<double> wanted = train(job_of_family(family, {1, 1, 1, 1, "DPT"}), 0, 3);
    EXPECT_LT(wanted[1], wanted[0]) << model::family_name(family);
    EXPECT_EQ(train(job_of_family(family, {2, 2, 1, 2, "DPT"}), 0, 3), wanted) << model::family_name(family);
  }
}

TEST(Families, StagesOfTensorRanksHaveTheLossesOfOneRank) {
  for (const model::Family family : kEveryFamily) {
    const auto job_for = [&](const Layout& layout) {
      program::Job job = job_of_family(family, layout);
      job.microbatches = 2;
      job.batch = kSequences / 2;
      return job;
    };
    const std::vector<double> wanted = train(job_for({1, 1, 1, 1, "DPT"}), 0, 3);
    for (const int stages : {2, 3})
      for (const bool divides_rows : {false, true}) {
        program::Job job = job_for({1, stages, 2, 1, "DPT"});
        job.divides_rows = divides_rows;
        job.prescaled_batch = stages == 2;
        const std::vector<double> got = train(job, 0, 3);
        for (size_t step = 0; step < got.size(); ++step)
          EXPECT_NEAR(got[step], wanted[step], 1e-5 * wanted[step])
              << model::family_name(family) << stages << divides_rows << step;
      }
  }
}

}  // namespace
}  // namespace loom::testing::layouts_test
