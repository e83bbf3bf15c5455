// Heads that compute several pieces of rows on a GPU, in memory for logits of its own type.
#include "engine_gpu/on_fake_gpus.h"

namespace loom::testing::head_rows_test {
namespace {

class GpuHeadRows : public OnFakeGpus {
 protected:
  /// A vocabulary that is no whole number of packs, so that rows of logits are padded.
  static program::Job odd_job(model::Family family, model::Task task) {
    program::Job job = tiny_job(1, 1, 1, family);
    job.spec.vocabulary = 43;
    job.spec = family_spec(family, task, job.spec);
    if (task == model::Task::classification) job.spec.labels = 3, job.targets = 1;
    if (task == model::Task::masked) job.targets = 3;
    model::complete(job.spec);
    return job;
  }
};

TEST_F(GpuHeadRows, HaveTheLossesOfCpusWhateverTheirRows) {
  const std::pair<model::Family, model::Task> models[] = {
      {model::Family::gpt2, model::Task::causal},
      {model::Family::gptj, model::Task::causal},  // a bias of logits
      {model::Family::bert, model::Task::masked},
      {model::Family::roberta, model::Task::classification}};
  for (const auto& [family, task] : models)
    for (const auto& [precision, tolerance] :
         {std::pair{program::Precision::fp32, kTolerance}, {program::Precision::bf16, 5e-3}}) {
      SCOPED_TRACE(fmt::format("{} {} {}", model::family_name(family), model::objective_of(task).name,
                               program::precision_name(precision)));
      program::Job job = odd_job(family, task);
      job.precision = precision;
      const auto losses = [](const program::Job& of, const GpuOf& gpu_of) {
        std::vector<double> losses;
        const auto run = [&](engine::Engine& engine, const engine::Groups& groups) -> Status {
          for (int step = 0; step < 2; ++step) {
            fill_task_batch(engine, groups, step);
            const Result<engine::StepResult> result = engine.step(settings_of(of, step));
            LOOM_TRY(result.status());
            losses.push_back(result->loss);
            losses.push_back(result->gradient_norm);
          }
          fill_task_batch(engine, groups, 2);
          const Result<double> evaluated = engine.evaluate();
          LOOM_TRY(evaluated.status());
          losses.push_back(*evaluated);
          return {};
        };
        train(of, 0, 0, {}, run, 1, gpu_of);
        return losses;
      };
      const std::vector<double> wanted = losses(job, {});
      for (const int64_t rows : {int64_t{5}, int64_t{64}}) {
        job.table = {rows, true};
        const std::vector<double> got = losses(job, shared_gpu);
        ASSERT_EQ(got.size(), wanted.size());
        for (size_t i = 0; i < wanted.size(); ++i)
          EXPECT_NEAR(got[i], wanted[i], (i % 2 == 1 ? 10 : 1) * tolerance * wanted[i]) << rows << " " << i;
      }
    }
}

TEST_F(GpuHeadRows, OfTensorRanksHaveTheLossesOfCpus) {
  for (const bool divides_rows : {false, true}) {
    program::Job job = odd_job(model::Family::gpt2, model::Task::causal);
    job.world = job.tensor_degree = 2;
    job.divides_rows = divides_rows;
    const std::vector<double> wanted = train(job, 0, 2);
    job.table = {10, true};
    const std::vector<double> got = train(job, 0, 2, {}, {}, 1, shared_gpu);
    for (size_t step = 0; step < wanted.size(); ++step)
      EXPECT_NEAR(got[step], wanted[step], kTolerance * wanted[step]) << divides_rows;
  }
}

/// A run that turns from GPUs to CPUs takes its job along.
TEST_F(GpuHeadRows, AreOfTheTypeThatTheDeviceHas) {
  program::Job job = tiny_job();
  job.precision = program::Precision::bf16;
  job.table.of_gpu = true;
  const std::vector<double> losses = train(job, 0, 2);
  job.table.of_gpu = false;
  EXPECT_EQ(train(job, 0, 2), losses);
  const auto end = [](engine::Engine& engine, const engine::Groups&) -> Status {
    EXPECT_TRUE(engine.job().table.of_gpu);
    return {};
  };
  train(job, 0, 1, {}, end, 1, shared_gpu);
}

}  // namespace
}  // namespace loom::testing::head_rows_test
