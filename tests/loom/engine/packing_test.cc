// Texts that share a sequence: none sees another, whatever the family and the layout.
#include "engine/families.h"
#include "text/tokenizer.h"

namespace loom::testing {
namespace {

constexpr int kTexts = 8, kPackedSteps = 4;
constexpr int64_t kLength = 12;

program::Job packing_job(model::Family family) {
  program::Job job = small_job(1, 1, 1, kTexts);
  job.spec = family_spec(family, model::Task::causal, job.spec);
  model::complete(job.spec);
  return job;
}

/// Texts of 5 and of 7 tokens, by turns: each at the beginning of a sequence, or two in one. The last token
/// of a text has no target.
void put_texts(engine::Engine& engine, int step) {
  const program::Job& job = engine.job();
  const std::span<int32_t> tokens = engine.tokens(0), targets = engine.targets(0);
  std::fill(tokens.begin(), tokens.end(), 1);
  std::fill(targets.begin(), targets.end(), text::kNoTarget);
  for (int64_t text = 0; text < kTexts; ++text) {
    const int64_t size = text % 2 == 0 ? 5 : 7;
    int64_t at = !job.packed ? text * kLength : text / 2 * kLength + (text % 2 == 0 ? 0 : 5);
    auto token = static_cast<int32_t>((step * 31 + text * 7) % job.spec.vocabulary);
    for (int64_t t = 0; t < size; ++t, ++at) {
      const auto next = static_cast<int32_t>((token * 3 + 5) % job.spec.vocabulary);
      tokens[static_cast<size_t>(at)] = token;
      targets[static_cast<size_t>(at)] = t + 1 < size ? next : job.packed ? text::kEndsText : text::kNoTarget;
      token = next;
    }
  }
}

struct Losses {
  std::vector<double> loss, norm;
};

Losses losses_of(const program::Job& job) {
  Losses losses;
  on_ranks(1, 1, [&](weftComm_t world) {
    Result<engine::Groups> groups = engine::Groups::create(world, job.layout(), job.strict);
    LOOM_ASSERT_OK(groups);
    Result<std::unique_ptr<engine::Engine>> engine = engine::Engine::create(job, *groups, {});
    LOOM_ASSERT_OK(engine);
    LOOM_ASSERT_OK((*engine)->initialize(3));
    for (int step = 0; step < kPackedSteps; ++step) {
      put_texts(**engine, step);
      engine::StepSettings settings = settings_of(step);
      settings.targets = kTexts / 2 * (4 + 6);
      const Result<engine::StepResult> result = (*engine)->step(settings);
      LOOM_ASSERT_OK(result);
      losses.loss.push_back(result->loss);
      losses.norm.push_back(result->gradient_norm);
    }
  });
  return losses;
}

TEST(Packing, EveryFamilyHasTheLossesOfTextsApart) {
  for (const model::Family family : kEveryFamily) {
    if (model::usual_task(family) != model::Task::causal) continue;
    SCOPED_TRACE(model::family_name(family));
    const program::Job apart = packing_job(family);
    program::Job packed = apart;
    packed.packed = true;
    packed.batch = kTexts / 2;
    const Losses wanted = losses_of(apart), got = losses_of(packed);
    ASSERT_EQ(wanted.loss.size(), static_cast<size_t>(kPackedSteps));
    for (size_t step = 0; step < wanted.loss.size(); ++step) {
      EXPECT_NEAR(got.loss[step], wanted.loss[step], 1e-5 * wanted.loss[step]) << step;
      EXPECT_NEAR(got.norm[step], wanted.norm[step], 1e-4 * wanted.norm[step]) << step;
    }
    packed.packed = false;
    EXPECT_GT(std::abs(losses_of(packed).loss[0] - wanted.loss[0]), 1e-4 * wanted.loss[0])
        << "texts that see each other have other losses";
  }
}

TEST(Packing, EveryLayoutHasTheLossesOfOneRank) {
  for (const model::Family family : {model::Family::gpt2, model::Family::mistral}) {
    SCOPED_TRACE(model::family_name(family));
    program::Job one = packing_job(family);
    one.packed = true;
    const std::vector<double> wanted = train(one, 0, kPackedSteps);
    const auto expect_same = [&](program::Job job) {
      job.batch = kSequences / (job.microbatches * job.data_degree());
      SCOPED_TRACE(fmt::format("{} ranks, {} shards, {} stages, {} tensor ranks", job.world, job.degree,
                               job.pipeline_degree, job.tensor_degree));
      const std::vector<double> got = train(job, 0, kPackedSteps);
      for (size_t step = 0; step < wanted.size(); ++step)
        EXPECT_NEAR(got[step], wanted[step], 1e-5 * wanted[step]) << step;
    };
    program::Job shards = one, stages = one, tensor = one, memory = one, all = one, interleaved = one;
    shards.world = shards.degree = 2, shards.microbatches = 2, shards.checkpoint_group = 1;
    stages.world = stages.pipeline_degree = 3,
    stages.microbatches = 4;  // one with neither embedding nor head
    interleaved.world = interleaved.pipeline_degree = 2, interleaved.microbatches = 4;
    interleaved.schedule = program::Schedule::interleaved, interleaved.virtual_stages = 2;
    tensor.world = tensor.tensor_degree = 2;
    memory.world = memory.tensor_degree = 2, memory.divides_rows = true, memory.prescaled_batch = false;
    all.world = 4, all.pipeline_degree = all.tensor_degree = 2, all.microbatches = 2,
    all.prescaled_batch = false;
    all.offload = true, all.loading_horizon = 2;
    for (const program::Job& job : {shards, stages, interleaved, tensor, memory, all}) expect_same(job);
  }
}

TEST(Packing, OnlyOfCausalModels) {
  program::Job job = small_job(1, 1, 1, 2);
  job.spec = family_spec(model::Family::bert, model::Task::masked, job.spec);
  model::complete(job.spec);
  job.packed = true;
  EXPECT_TRUE(
      fails_with(job.check(), Code::invalid_argument,
                 "a sequence holds several texts (data.packing) only in causal models, and the task is "
                 "masked"));
}

}  // namespace
}  // namespace loom::testing
