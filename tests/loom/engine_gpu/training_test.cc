// An engine on a GPU trains as one on CPUs: arena, streams and products on the fake driver, whose memory
// faults where the host touches it. Sums of products round in another order, so losses are near, not equal.
#include "engine_gpu/on_fake_gpus.h"

namespace loom::testing {
namespace {

class GpuTraining : public OnFakeGpus {};

TEST_F(GpuTraining, OneRankHasTheLossesOfCpus) {
  expect_losses_of_cpus(tiny_job(), kTolerance, shared_gpu, 5);
}

TEST_F(GpuTraining, EveryFamilyHasTheLossesOfCpus) {
  for (const model::Family family : kEveryFamily) {
    SCOPED_TRACE(model::family_name(family));
    expect_losses_of_cpus(tiny_job(1, 1, 2, family), kTolerance, shared_gpu);
  }
}

TEST_F(GpuTraining, SeveralTextsInASequenceHaveTheLossesOfCpus) {
  for (const model::Family family : {model::Family::gpt2, model::Family::mistral}) {
    SCOPED_TRACE(model::family_name(family));
    program::Job job = tiny_job(1, 1, 2, family);
    job.packed = true;
    expect_losses_of_cpus(job, kTolerance, shared_gpu);
    job = tiny_job(2, 1, 1, family);
    job.packed = true;
    job.tensor_degree = 2;
    job.batch = kSequences;
    expect_losses_of_cpus(job, kTolerance, own_gpu);
  }
}

TEST_F(GpuTraining, SmallerTypesHaveTheLossesOfCpus) {
  for (const program::Precision precision : {program::Precision::bf16, program::Precision::fp16}) {
    SCOPED_TRACE(program::precision_name(precision));
    program::Job job = tiny_job(1, 1, 2);
    job.precision = precision;
    expect_losses_of_cpus(job, precision == program::Precision::bf16 ? 5e-3 : 1e-3, shared_gpu);
  }
}

TEST_F(GpuTraining, DropsWhatCpusDrop) {
  program::Job job = tiny_job(1, 1, 2);
  job.spec.residual_dropout = job.spec.embedding_dropout = job.spec.attention_dropout = 0.1f;
  expect_losses_of_cpus(job, kTolerance, shared_gpu);
}

TEST_F(GpuTraining, CheckpointingAndOffloadingChangeNoBit) {
  program::Job job = tiny_job(1, 1, 2);
  job.spec.layers = 6;
  job.strict = true;
  const auto on_gpu = [&] { return train(job, 0, 3, {}, {}, 1, shared_gpu); };
  const std::vector<double> plain = on_gpu();
  job.checkpoint_group = 1;
  EXPECT_EQ(on_gpu(), plain);
  job.offload = true;
  job.loading_horizon = 2;
  EXPECT_EQ(on_gpu(), plain);
  job.checkpoint_group = 0;
  EXPECT_EQ(on_gpu(), plain);
}

TEST_F(GpuTraining, NothingRunsIntoWhatIsInFlight) {
  program::Job job = tiny_job(1, 1, 2);
  job.spec.layers = 6;
  job.offload = true;
  job.loading_horizon = 2;
  bool offloads = false;
  train(
      job, 0, 3, {},
      [&](engine::Engine& engine, const engine::Groups&) -> Status {
        offloads = engine.memory().tier_bytes > 0;
        LOOM_TRY(engine.evaluate().status());
        return engine.logits(3).status();
      },
      1, shared_gpu);
  EXPECT_TRUE(offloads);
  EXPECT_EQ(fake.race(), "");
}

TEST_F(GpuTraining, EvaluationAndLogitsAreThoseOfCpus) {
  for (const model::Task task : {model::Task::causal, model::Task::masked, model::Task::classification}) {
    program::Job job =
        tiny_job(1, 1, 2, task == model::Task::causal ? model::Family::gpt2 : model::Family::bert);
    job.spec =
        family_spec(task == model::Task::causal ? model::Family::gpt2 : model::Family::bert, task, job.spec);
    if (task == model::Task::masked) job.targets = 3;
    if (task == model::Task::classification) job.spec.labels = 3, job.targets = 1;
    model::complete(job.spec);
    struct Seen {
      double loss = 0;
      int64_t right = 0;
      std::vector<float> logits;
    };
    const auto look = [&](Seen& seen) {
      return [&](engine::Engine& engine, const engine::Groups&) -> Status {
        for (int m = 0; m < job.microbatches && task == model::Task::classification; ++m)
          for (int32_t& target : engine.targets(m)) target = target % 3;
        const Result<double> loss = engine.evaluate();
        LOOM_TRY(loss.status());
        seen.loss = *loss;
        seen.right = engine.right();
        Result<std::vector<float>> logits = engine.logits(5);
        LOOM_TRY(logits.status());
        seen.logits = logits.take();
        return {};
      };
    };
    const auto begin = [&](engine::Engine& engine, const engine::Groups& groups) -> Status {
      LOOM_TRY(engine.initialize(3));
      fill_batch(engine, groups, 0);
      return {};
    };
    Seen cpu, gpu;
    SCOPED_TRACE(static_cast<int>(task));
    train(job, 0, 0, begin, look(cpu));
    train(job, 0, 0, begin, look(gpu), 1, shared_gpu);
    EXPECT_NEAR(gpu.loss, cpu.loss, kTolerance * cpu.loss);
    EXPECT_EQ(gpu.right, cpu.right);
    if (task == model::Task::classification) {
      EXPECT_GT(cpu.right, 0);
    }
    ASSERT_EQ(gpu.logits.size(), cpu.logits.size());
    for (size_t i = 0; i < cpu.logits.size(); ++i) EXPECT_NEAR(gpu.logits[i], cpu.logits[i], 1e-4);
  }
}

TEST_F(GpuTraining, TooLittleMemoryIsNamedBeforeTheFirstStep) {
  program::Job job = tiny_job();
  job.batch = 1 << 20;
  const Result<engine::Groups> groups = engine::Groups::create(nullptr, job.layout(), false, 0);
  LOOM_ASSERT_OK(groups);
  EXPECT_TRUE(fails_with(engine::Engine::create(job, *groups, {.gpu = 0}), Code::out_of_memory,
                         "CUDA device 0 (fake device, compute capability 9.0) has too little memory"));
}

TEST_F(GpuTraining, AnEngineAndItsGroupsAreOfOneGpu) {
  const program::Job job = tiny_job();
  const Result<engine::Groups> groups = engine::Groups::create(nullptr, job.layout(), false);
  LOOM_ASSERT_OK(groups);
  EXPECT_TRUE(fails_with(engine::Engine::create(job, *groups, {.gpu = 0}), Code::invalid_argument,
                         "the engine is for GPU 0, the groups for GPU -1"));
}

TEST_F(GpuTraining, WhatStandsInForComputingIsRefused) {
  const program::Job job = tiny_job();
  const Result<engine::Groups> groups = engine::Groups::create(nullptr, job.layout(), false, 0);
  LOOM_ASSERT_OK(groups);
  const auto engine = engine::Engine::create(job, *groups, {.gpu = 0});
  LOOM_ASSERT_OK(engine);
  (*engine)->stand_in([](const program::Instruction&) {});
  EXPECT_TRUE(
      fails_with((*engine)->step(settings_of(0)), Code::unsupported, "runs on CPUs, not on CUDA device 0"));
}

}  // namespace
}  // namespace loom::testing
