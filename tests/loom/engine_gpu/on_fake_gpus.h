// Training on fake GPUs, beside the same on CPUs.
#pragma once

#include <cstdlib>

#include "engine/families.h"
#include "loom/device/emulated_kernels.h"
#include "loom/device/fakes.h"

namespace loom::testing {

constexpr double kTolerance = 1e-5;  // of losses in fp32

/// All ranks share GPU 0, or each takes one of the two that there are.
inline int shared_gpu(int) { return 0; }
inline int own_gpu(int rank) { return rank % 2; }

/// fill_batch() for any task: classes of sequences are their first targets.
inline void fill_task_batch(engine::Engine& engine, const engine::Groups& groups, int step) {
  fill_batch(engine, groups, step);
  const program::Job& job = engine.job();
  if (job.spec.task != model::Task::classification) return;
  for (int m = 0; m < job.microbatches; ++m)
    for (int64_t at = 0; at < job.batch * job.tokens; ++at) {
      int32_t& target = engine.targets(m)[static_cast<size_t>(at)];
      target = at % job.tokens == 0 ? std::abs(target) % 3 : -1;
    }
}

/// Races between streams of all ranks fail the test, unless it takes them.
class OnFakeGpus : public ::testing::Test {
 protected:
  void SetUp() override {
    add_emulated_kernels();
    fake.follow_races(1);
  }
  void TearDown() override {
    EXPECT_EQ(fake.race(), "");
    fake.follow_races(0);
  }

  /// Losses on GPUs are near those on CPUs, step by step, relatively.
  static void expect_losses_of_cpus(const program::Job& job, double tolerance, const GpuOf& gpu_of,
                                    int steps = 3, engine::Attention attention = engine::Attention::own) {
    const std::vector<double> wanted = train(job, 0, steps),
                              got = train(job, 0, steps, {}, {}, 1, gpu_of, attention);
    for (size_t step = 0; step < wanted.size(); ++step)
      EXPECT_NEAR(got[step], wanted[step], tolerance * wanted[step]) << "step " << step;
  }

  FakeDriver fake;
};

/// A model so small that the emulator is done soon: two blocks, 8 sequences of 8 tokens a step.
inline program::Job tiny_job(int world = 1, int degree = 1, int microbatches = 1,
                             model::Family family = model::Family::gpt2) {
  program::Job job = small_job(world, degree, microbatches, kSequences / world / microbatches);
  job.spec.layers = 2;
  job.spec.heads = 2;
  job.spec.context = job.tokens = 8;
  job.spec = family_spec(family, model::usual_task(family), job.spec);
  model::complete(job.spec);
  return job;
}

}  // namespace loom::testing
