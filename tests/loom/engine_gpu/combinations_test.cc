// Ranks that share the model, and what they do besides training a language model: evaluations, logits,
// classes, masked tokens, 16 bits, checkpoints.
#include <cmath>
#include <filesystem>

#include "engine_gpu/on_fake_gpus.h"
#include "support.h"

namespace loom::testing {
namespace {

/// `data` ranks share the state, in stages of tensor ranks.
program::Job job_of(int data, int pipeline, int tensor) {
  program::Job job = tiny_job(data, data, pipeline > 1 ? 4 / data : 1);
  job.world = data * pipeline * tensor;
  job.pipeline_degree = pipeline;
  job.tensor_degree = tensor;
  return job;
}

/// With targets of a task that is not a language model's.
program::Job with_task(program::Job job, model::Task task, int64_t targets) {
  job.spec = family_spec(model::Family::bert, task, job.spec);
  if (task == model::Task::classification) job.spec.labels = 3;
  job.targets = targets;
  model::complete(job.spec);
  return job;
}

class GpuCombinations : public OnFakeGpus {
 protected:
  struct Seen {
    std::vector<double> losses;
    double evaluated = 0;
    std::vector<float> logits;
  };
  /// Two steps, an evaluation and a row's logits, as rank 0 sees them.
  static Seen look(const program::Job& job, const GpuOf& gpu_of) {
    Seen seen;
    train(
        job, 0, 0, {},
        [&](engine::Engine& engine, const engine::Groups& groups) -> Status {
          Seen own;
          for (int step = 0; step < 2; ++step) {
            fill_task_batch(engine, groups, step);
            const auto result = engine.step(settings_of(job, step));
            LOOM_TRY(result.status());
            own.losses.push_back(result->loss);
          }
          fill_task_batch(engine, groups, 2);
          const Result<double> loss = engine.evaluate();
          LOOM_TRY(loss.status());
          own.evaluated = *loss;
          Result<std::vector<float>> logits = engine.logits(0);
          LOOM_TRY(logits.status());
          own.logits = logits.take();
          if (groups.rank() == 0) seen = std::move(own);
          return {};
        },
        1, gpu_of);
    return seen;
  }
  static void expect_what_cpus_see(const program::Job& job, double tolerance) {
    const Seen cpu = look(job, {}), gpu = look(job, own_gpu);
    ASSERT_EQ(gpu.losses.size(), 2u);
    for (size_t step = 0; step < 2; ++step)
      EXPECT_NEAR(gpu.losses[step], cpu.losses[step], tolerance * cpu.losses[step]) << "step " << step;
    EXPECT_GT(cpu.evaluated, 0);
    EXPECT_NEAR(gpu.evaluated, cpu.evaluated, tolerance * cpu.evaluated);
    ASSERT_EQ(gpu.logits.size(), cpu.logits.size());
    for (size_t i = 0; i < cpu.logits.size(); ++i)
      EXPECT_NEAR(gpu.logits[i], cpu.logits[i], 10 * tolerance) << "logit " << i;
  }
};

TEST_F(GpuCombinations, ShardsEvaluate) { expect_what_cpus_see(job_of(2, 1, 1), kTolerance); }
TEST_F(GpuCombinations, TensorRanksEvaluate) { expect_what_cpus_see(job_of(1, 1, 2), kTolerance); }
TEST_F(GpuCombinations, StagesEvaluate) { expect_what_cpus_see(job_of(1, 2, 1), kTolerance); }

TEST_F(GpuCombinations, ClassifiersTrain) {
  for (const int tensor : {1, 2}) {
    SCOPED_TRACE(tensor);
    expect_what_cpus_see(with_task(job_of(1, 1, tensor), model::Task::classification, 1), kTolerance);
  }
}

TEST_F(GpuCombinations, MaskedTokensTrainInShards) {
  expect_what_cpus_see(with_task(job_of(2, 1, 1), model::Task::masked, 3), kTolerance);
}

TEST_F(GpuCombinations, SmallerTypesTrainInShards) {
  for (const program::Precision precision : {program::Precision::bf16, program::Precision::fp16}) {
    SCOPED_TRACE(program::precision_name(precision));
    program::Job job = job_of(2, 1, 1);
    job.precision = precision;
    expect_losses_of_cpus(job, precision == program::Precision::bf16 ? 5e-3 : 1e-3, own_gpu, 2);
  }
}

/// The derivatives of one rank overflow; those of the other are zeros.
TEST_F(GpuCombinations, AnOverflowOfOneRankIsLeftOutByAll) {
  program::Job job = tiny_job(2, 1);
  job.precision = program::Precision::fp16;
  train(
      job, 0, 1, {},
      [&](engine::Engine& engine, const engine::Groups& groups) -> Status {
        fill_batch(engine, groups, 1);
        if (groups.rank() == 0)
          for (int32_t& target : engine.targets(0)) target = -1;
        engine::StepSettings settings = settings_of(1);
        settings.loss_scale = 1e30;
        Result<engine::StepResult> result = engine.step(settings);
        LOOM_TRY(result.status());
        EXPECT_TRUE(result->skipped) << "rank " << groups.rank();
        EXPECT_TRUE(std::isfinite(result->loss)) << "only derivatives are scaled";
        settings.loss_scale = 4096;
        settings.uncounted = 1;
        fill_batch(engine, groups, 2);
        result = engine.step(settings);
        LOOM_TRY(result.status());
        EXPECT_FALSE(result->skipped);
        return engine.check_state();
      },
      1, own_gpu);
}

TEST_F(GpuCombinations, StagesAndTensorRanksWriteTheFilesOfCpus) {
  for (const auto& [pipeline, tensor] : {std::pair{2, 1}, {1, 2}}) {
    SCOPED_TRACE(fmt::format("{} stages of {} tensor ranks", pipeline, tensor));
    const program::Job job = job_of(1, pipeline, tensor);
    const TemporaryFolder cpu, gpu;
    const auto save_to = [](const std::string& folder) {
      return [folder](engine::Engine& engine, const engine::Groups&) -> Status {
        LOOM_TRY(engine.save_state(folder));
        return engine.save_model(folder);
      };
    };
    train(job, 0, 0, {}, save_to(cpu.path()));
    train(job, 0, 0, {}, save_to(gpu.path()), 1, own_gpu);
    int files = 0;
    for (const auto& file : std::filesystem::directory_iterator(cpu.path())) {
      const std::string name = file.path().filename();
      EXPECT_EQ(get_file(gpu.path() + "/" + name), get_file(file.path())) << name;
      ++files;
    }
    EXPECT_GE(files, 4) << "of each rank's state, the model and its config";
  }
}

}  // namespace
}  // namespace loom::testing
