// Models x element types x divisions over ranks x memory x dropout, on fake GPUs beside CPUs. ctest runs a
// selection in which each value of a factor occurs; LOOM_EVERY_PAIR=1 build/bin/test_loom_engine_gpu
// --gtest_filter='*GpuMatrix*' runs one in which each value stands beside each of every other factor.
#include <cstdlib>

#include "engine_gpu/on_fake_gpus.h"
#include "pairwise.h"

namespace loom::testing::matrix_test {
namespace {

struct Model {
  model::Family family;
  model::Task task;
};
constexpr Model kModels[] = {{model::Family::gpt2, model::Task::causal},
                             {model::Family::gptj, model::Task::causal},
                             {model::Family::gpt_neox, model::Task::causal},
                             {model::Family::gpt_neo, model::Task::causal},
                             {model::Family::bloom, model::Task::causal},
                             {model::Family::llama, model::Task::causal},
                             {model::Family::mistral, model::Task::causal},
                             {model::Family::qwen2, model::Task::causal},
                             {model::Family::qwen3, model::Task::causal},
                             {model::Family::bert, model::Task::masked},
                             {model::Family::roberta, model::Task::masked},
                             {model::Family::gptj, model::Task::classification},
                             {model::Family::bert, model::Task::classification},
                             {model::Family::roberta, model::Task::classification}};

struct Type {
  program::Precision precision;
  double tolerance;  // of losses, relatively
};
constexpr Type kTypes[] = {{program::Precision::fp32, kTolerance},
                           {program::Precision::bf16, 5e-3},
                           {program::Precision::fp16, 1e-3}};

struct Division {
  const char* name;
  int data, shard, pipeline, tensor;
  bool divides_rows = false;
};
constexpr Division kDivisions[] = {{"one", 1, 1, 1, 1},
                                   {"shards2", 2, 2, 1, 1},
                                   {"mics4by2", 4, 2, 1, 1},
                                   {"shards4", 4, 4, 1, 1},
                                   {"tensor2", 1, 1, 1, 2},
                                   {"tensor2rows", 1, 1, 1, 2, true},
                                   {"stages2", 1, 1, 2, 1},
                                   {"stages4", 1, 1, 4, 1},
                                   {"shards2tensor2", 2, 2, 1, 2},
                                   {"stages2shards2", 2, 2, 2, 1},
                                   {"stages2tensor2rows", 1, 1, 2, 2, true}};

struct Memory {
  const char* name;
  int checkpoint_group;
  bool offload;
};
constexpr Memory kMemories[] = {
    {"plain", 0, false}, {"checkpointed", 1, false}, {"offloaded", 0, true}, {"both", 1, true}};

constexpr float kDropouts[] = {0, 0.1f};
struct Cards {
  const char* name;
  int (*of_rank)(int rank);
};
constexpr Cards kCards[] = {{"shared", shared_gpu}, {"own", own_gpu}};

struct Row {
  Model model;
  Type type;
  Division division;
  Memory memory;
  float dropout;
  Cards cards;

  std::string name() const {
    return fmt::format("{}_{}_{}_{}_{}_{}_{}", model::family_name(model.family),
                       model::objective_of(model.task).name, program::precision_name(type.precision),
                       division.name, memory.name, dropout > 0 ? "dropout" : "sure", cards.name);
  }
  program::Job job() const {
    program::Job job =
        tiny_job(division.data, division.shard, division.pipeline > 1 ? 4 / division.data : 1, model.family);
    if (memory.offload) job.spec.layers = 4;  // or nothing would lie long enough
    job.spec = family_spec(model.family, model.task, job.spec);
    if (model.task == model::Task::classification) job.spec.labels = 3, job.targets = 1;
    if (model.task == model::Task::masked) job.targets = 3;
    job.spec.residual_dropout = job.spec.embedding_dropout = job.spec.attention_dropout = dropout;
    model::complete(job.spec);
    job.precision = type.precision;
    job.world = division.data * division.pipeline * division.tensor;
    job.pipeline_degree = division.pipeline;
    job.tensor_degree = division.tensor;
    job.divides_rows = division.divides_rows;
    job.checkpoint_group = memory.checkpoint_group;
    job.offload = memory.offload;
    job.loading_horizon = 2;
    return job;
  }
};

Row row_of(const std::vector<size_t>& levels) {
  return {kModels[levels[0]],   kTypes[levels[1]],    kDivisions[levels[2]],
          kMemories[levels[3]], kDropouts[levels[4]], kCards[levels[5]]};
}

std::vector<Row> rows() {
  const std::vector<size_t> levels = {std::size(kModels),   std::size(kTypes),    std::size(kDivisions),
                                      std::size(kMemories), std::size(kDropouts), std::size(kCards)};
  std::vector<Row> rows;
  if (std::getenv("LOOM_EVERY_PAIR") != nullptr) {
    for (const std::vector<size_t>& row : weft::testing::pairwise(levels)) rows.push_back(row_of(row));
    return rows;
  }
  for (size_t i = 0; i < std::size(kDivisions); ++i)
    rows.push_back(row_of({i % levels[0], i % levels[1], i, i % levels[3], i / 2 % 2, i % 2}));
  return rows;
}

class GpuMatrix : public OnFakeGpus, public ::testing::WithParamInterface<Row> {
 protected:
  /// Of two steps and an evaluation.
  static std::vector<double> losses(const program::Job& job, const GpuOf& gpu_of) {
    std::vector<double> losses;
    train(
        job, 0, 0, {},
        [&](engine::Engine& engine, const engine::Groups& groups) -> Status {
          std::vector<double> own;
          for (int step = 0; step < 2; ++step) {
            fill_task_batch(engine, groups, step);
            const Result<engine::StepResult> result = engine.step(settings_of(job, step));
            LOOM_TRY(result.status());
            own.push_back(result->loss);
          }
          fill_task_batch(engine, groups, 2);
          const Result<double> evaluated = engine.evaluate();
          LOOM_TRY(evaluated.status());
          own.push_back(*evaluated);
          if (groups.rank() == 0) losses = own;
          return engine.check_state();
        },
        1, gpu_of);
    return losses;
  }
};

TEST_P(GpuMatrix, HasTheLossesOfCpus) {
  const program::Job job = GetParam().job();
  LOOM_ASSERT_OK(job.check());
  const std::vector<double> wanted = losses(job, {}), got = losses(job, GetParam().cards.of_rank);
  ASSERT_EQ(wanted.size(), 3u);
  ASSERT_EQ(got.size(), 3u);
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_GT(wanted[i], 0.1);
    EXPECT_NEAR(got[i], wanted[i], GetParam().type.tolerance * wanted[i])
        << (i < 2 ? "step " : "evaluation ") << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, GpuMatrix, ::testing::ValuesIn(rows()),
                         [](const auto& info) { return info.param.name(); });

TEST(Pairwise, EachLevelStandsBesideEachOther) {
  const std::vector<size_t> levels = {5, 3, 4, 1, 2};
  const auto rows = weft::testing::pairwise(levels);
  EXPECT_GE(rows.size(), 20u);
  EXPECT_LE(rows.size(), 26u);
  for (size_t a = 0; a < levels.size(); ++a)
    for (size_t b = 0; b < a; ++b) {
      std::set<std::pair<size_t, size_t>> seen;
      for (const auto& row : rows) seen.insert({row[a], row[b]});
      EXPECT_EQ(seen.size(), levels[a] * levels[b]);
    }
}

}  // namespace
}  // namespace loom::testing::matrix_test
