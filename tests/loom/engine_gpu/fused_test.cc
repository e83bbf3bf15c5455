// Steps that a GPU does at once: which kernels and products a step of a run has.
#include "engine_gpu/on_fake_gpus.h"

namespace loom::testing::fused_test {
namespace {

class GpuFusedSteps : public OnFakeGpus {
 protected:
  /// Calls of all kernels and products with that text in their names.
  static int64_t calls(const std::vector<cuda::KernelTime>& times, const std::string& text) {
    int64_t calls = 0;
    for (const cuda::KernelTime& time : times)
      if (time.name.find(text) != std::string::npos) calls += time.calls;
    return calls;
  }
};

TEST_F(GpuFusedSteps, AreOneKernelOrProductEach) {
  program::Job job = tiny_job();
  job.precision = program::Precision::bf16;
  job.strict = true;  // so that an epilogue is chosen without timing
  job.spec.residual_dropout = job.spec.embedding_dropout = 0.1f;
  std::vector<cuda::KernelTime> times;
  const auto end = [&](engine::Engine& engine, const engine::Groups& groups) -> Status {
    fill_batch(engine, groups, 0);
    Result<std::vector<cuda::KernelTime>> timed = engine.timed_step(settings_of(job, 0));
    LOOM_TRY(timed.status());
    times = timed.take();
    return {};
  };
  train(job, 0, 0, {}, end, 1, shared_gpu);
  const int64_t layers = job.spec.layers;
  EXPECT_EQ(calls(times, "loom_norm_forward_bf16"), 2 * layers + 1);
  EXPECT_EQ(calls(times, "loom_add_dropout_bf16"), layers) << "after feed-forward, at the end of a block";
  EXPECT_EQ(calls(times, "loom_dropout_bf16"), 2 + layers) << "of the embedding, and before feed-forward";
  EXPECT_EQ(calls(times, "epilogue gelu_bias"), layers);
  EXPECT_EQ(calls(times, "epilogue gelu_backward"), layers);
  EXPECT_EQ(calls(times, "loom_gelu_tanh"), 0);
}

}  // namespace
}  // namespace loom::testing::fused_test
