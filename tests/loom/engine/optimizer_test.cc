// The optimizer of a whole step against PyTorch's: which parameters decay, the norm, and clipping
// (fixtures/optimizer.py).
#include "engine/ranks.h"
#include "format/json_file.h"
#include "model/hugging_face.h"

namespace loom::testing {
namespace {

struct Layout {
  int world, shard, stages, tensor, microbatches;
};

class Optimizer : public ::testing::TestWithParam<Layout> {};

TEST_P(Optimizer, DecaysAndClipsAsPyTorchDoes) {
  const auto [world, shard, stages, tensor, microbatches] = GetParam();
  const format::Json expected = *format::read_json(fixture("optimizer.json"));
  const auto losses = expected["losses"].get<std::vector<double>>();
  const auto norms = expected["norms"].get<std::vector<double>>();
  const format::Json& given = expected["settings"];
  ASSERT_EQ(losses.size(), 20u);
  const double clip = given["clip_norm"];
  EXPECT_GT(std::count_if(norms.begin(), norms.end(), [&](double norm) { return norm > clip; }), 4);
  EXPECT_GT(std::count_if(norms.begin(), norms.end(), [&](double norm) { return norm < clip; }), 4);

  const int data = world / stages / tensor;
  program::Job job = small_job(world, shard, microbatches, kSequences / data / microbatches);
  job.spec = *model::spec_from_config(*format::read_config(fixture("gpt2-tied")));
  job.pipeline_degree = stages;
  job.tensor_degree = tensor;
  on_ranks(world, 1, [&](weftComm_t comm) {
    const Result<engine::Groups> groups = engine::Groups::create(comm, job.layout(), false);
    LOOM_ASSERT_OK(groups);
    const auto engine = engine::Engine::create(job, *groups, {});
    LOOM_ASSERT_OK(engine);
    const auto file = format::SafetensorsReader::open(fixture("gpt2-tied"));
    LOOM_ASSERT_OK(file);
    LOOM_ASSERT_OK((*engine)->load_model(*file));
    for (int step = 0; step < static_cast<int>(losses.size()); ++step) {
      engine::StepSettings settings;
      settings.step = static_cast<uint32_t>(step);
      settings.clip_norm = given["clip_norm"];
      settings.optimizer.learning_rate = given["learning_rate"];
      settings.optimizer.beta1 = given["beta1"];
      settings.optimizer.beta2 = given["beta2"];
      settings.optimizer.epsilon = given["epsilon"];
      settings.optimizer.weight_decay = given["weight_decay"];
      fill_batch(**engine, *groups, step);
      const Result<engine::StepResult> result = (*engine)->step(settings);
      LOOM_ASSERT_OK(result);
      const auto at = static_cast<size_t>(step);
      EXPECT_NEAR(result->loss, losses[at], 5e-5 * losses[at]) << "step " << step;
      EXPECT_NEAR(result->gradient_norm, norms[at], 2e-4 * norms[at]) << "step " << step;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Training, Optimizer,
                         ::testing::Values(Layout{1, 1, 1, 1, 1}, Layout{2, 2, 1, 1, 2},
                                           Layout{2, 1, 2, 1, 4}, Layout{2, 1, 1, 2, 1},
                                           Layout{8, 2, 2, 2, 2}),
                         [](const auto& info) {
                           return fmt::format("{}ranksP{}T{}p{}", info.param.world, info.param.stages,
                                              info.param.tensor, info.param.shard);
                         });

/// Element by element, from the arena: what the first step reads.
TEST(OptimizerSlots, BeginWithTheirInitialValuesInEveryLayout) {
  constexpr ops::Slot kSlots[] = {{"first_moment", 0}, {"second_moment", 0.25f}};
  const ops::Optimizer optimizer = {kSlots};
  for (const auto& [world, degree] : {std::pair(1, 1), {2, 2}}) {
    program::Job job = small_job(world, degree, 1, kSequences / world);
    job.optimizer = &optimizer;
    train(job, 0, 0, {}, [&](engine::Engine& engine, const engine::Groups&) -> Status {
      int found = 0;
      for (const program::Instruction& i : engine.training().instructions) {
        size_t slot = 0;
        for (const program::Use& use : i.uses) {
          if (use.role != program::Role::slot) continue;
          const auto at = static_cast<size_t>(engine.memory().offset[static_cast<size_t>(use.buffer)]);
          const auto* values = reinterpret_cast<const float*>(engine.arena().data() + at);
          const int64_t count = job.shard(engine.units()[static_cast<size_t>(i.unit)]);
          EXPECT_EQ(std::count(values, values + count, kSlots[slot++].initial), count) << i.unit;
          ++found;
        }
      }
      EXPECT_EQ(found, 2 * job.units());
      return {};
    });
  }
}

/// A checkpoint without the optimizer's state leaves them as they begin.
TEST(OptimizerSlots, AreCheckpointedByTheirNames) {
  const program::Job job = small_job(1, 1, 1, kSequences);
  train(job, 0, 0, {}, [&](engine::Engine& engine, const engine::Groups&) -> Status {
    const Result<format::FlatLayout> whole = engine.state_layout(0, 0),
                                     masters = engine.state_layout(0, 0, false);
    LOOM_TRY(whole.status());
    LOOM_TRY(masters.status());
    EXPECT_EQ(whole->buffers().size(), 3 * masters->buffers().size());
    for (const char* name : {"master.1", "first_moment.1", "second_moment.1"})
      EXPECT_TRUE(whole->buffer(name).ok()) << name;
    return {};
  });
}

}  // namespace
}  // namespace loom::testing
