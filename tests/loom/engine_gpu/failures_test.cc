// The driver of one rank fails once, where only that rank notices: the other rank must not wait for it.
#include <barrier>

#include "engine_gpu/on_fake_gpus.h"
#include "support.h"

namespace loom::testing {
namespace {

class GpuFailures : public OnFakeGpus {
 protected:
  /// Both ranks have made a step. Then the next call of `function` fails, in `action` of one of them.
  void expect_both_fail(const program::Job& job, const char* function, const EngineAction& action) {
    std::vector<Status> ends(2);
    std::barrier both(2);
    on_ranks(2, 1, [&](weftComm_t world) {
      const int gpu = gpu_of_rank(own_gpu, world);
      const Result<engine::Groups> groups = engine::Groups::create(world, job.layout(), job.strict, gpu);
      LOOM_ASSERT_OK(groups);
      const auto engine = engine::Engine::create(job, *groups, {.gpu = gpu});
      LOOM_ASSERT_OK(engine);
      LOOM_ASSERT_OK((*engine)->initialize(3));
      fill_batch(**engine, *groups, 0);
      LOOM_ASSERT_OK((*engine)->step(settings_of(0)));
      LOOM_ASSERT_OK((*engine)->evaluate());
      LOOM_ASSERT_OK((*engine)->logits(0));
      both.arrive_and_wait();  // no barrier of Weft, which the failing rank would end for the other
      if (groups->rank() == 0) fake.fail_after(function, 0, cuda::kOutOfMemory);
      both.arrive_and_wait();
      ends[static_cast<size_t>(groups->rank())] = action(**engine, *groups);
    });
    int aborted = 0;
    for (const Status& end : ends) {
      EXPECT_NE(end.message().find(function), std::string::npos) << end.message();
      aborted += end.message().find("was aborted: ") != std::string::npos;
    }
    EXPECT_EQ(aborted, 1) << "one rank fails by itself";
  }
};

TEST_F(GpuFailures, OfFetchingAnEvaluationEndItOnAllRanks) {
  expect_both_fail(tiny_job(2, 2), "cuStreamSynchronize",
                   [](engine::Engine& engine, const engine::Groups&) { return engine.evaluate().status(); });
}

TEST_F(GpuFailures, OfFetchingLogitsEndThemOnAllRanks) {
  program::Job job = tiny_job();
  job.world = job.tensor_degree = 2;
  expect_both_fail(job, "cuStreamSynchronize",
                   [](engine::Engine& engine, const engine::Groups&) { return engine.logits(1).status(); });
}

TEST_F(GpuFailures, OfReadingAModelEndItsSavingOnAllRanks) {
  const TemporaryFolder folder;
  expect_both_fail(tiny_job(2, 2), "cuEventSynchronize", [&](engine::Engine& engine, const engine::Groups&) {
    return engine.save_model(folder.path());
  });
}

TEST_F(GpuFailures, ABatchThatIsRefusedIsNoLongerRead) {
  program::Job job = tiny_job(1, 1, 1, model::Family::bert);
  job.spec = family_spec(model::Family::bert, model::Task::masked, job.spec);
  job.targets = 3;
  model::complete(job.spec);
  const auto groups = engine::Groups::create(nullptr, job.layout(), false, 0);
  LOOM_ASSERT_OK(groups);
  const auto engine = engine::Engine::create(job, *groups, {.gpu = 0});
  LOOM_ASSERT_OK(engine);
  LOOM_ASSERT_OK((*engine)->initialize(3));
  fill_batch(**engine, *groups, 0);
  const auto step = [&] { return (*engine)->step(settings_of(0)); };
  for (int32_t& target : (*engine)->targets(0)) target = 1;
  const uint64_t waits = fake.calls("cuStreamSynchronize");
  EXPECT_TRUE(fails_with(step(), Code::invalid_argument, "microbatch 0 has"));
  EXPECT_GT(fake.calls("cuStreamSynchronize"), waits) << "what was queued may read the batch still";
  fill_batch(**engine, *groups, 0);
  LOOM_ASSERT_OK(step());
}

/// Products of other shapes would sum a bias's gradient in another order than those of the other ranks.
TEST_F(GpuFailures, TensorRanksWithUnevenSharesAreRefused) {
  program::Job job = tiny_job();
  job.world = job.tensor_degree = 2;
  job.spec.feed_forward = 33;
  on_ranks(2, 1, [&](weftComm_t world) {
    const Result<engine::Groups> groups = engine::Groups::create(world, job.layout(), false, 0);
    LOOM_ASSERT_OK(groups);
    EXPECT_TRUE(fails_with(engine::Engine::create(job, *groups, {.gpu = 0}), Code::unsupported,
                           "tensor_degree is 2, and on GPUs it must divide model.feed_forward, 33"));
  });
}

/// Without stream memory operations a call returns when its result is there, and stages would wait for each
/// other: loom.engine_gpu.without_stream_waits runs these.
class WithoutStreamWaits : public OnFakeGpus {
 protected:
  void SetUp() override {
    const char* const given = std::getenv("FAKE_CUDA_MEMOPS");
    if (given == nullptr || std::string_view(given) != "0") GTEST_SKIP() << "it takes FAKE_CUDA_MEMOPS=0";
    OnFakeGpus::SetUp();
  }
};

TEST_F(WithoutStreamWaits, PipelinesAreRefused) {
  program::Job job = tiny_job(1, 1, 4);
  job.world = job.pipeline_degree = 2;
  on_ranks(2, 1, [&](weftComm_t world) {
    const Result<engine::Groups> groups = engine::Groups::create(world, job.layout(), false, 0);
    LOOM_ASSERT_OK(groups);
    EXPECT_TRUE(fails_with(engine::Engine::create(job, *groups, {.gpu = 0}), Code::unsupported,
                           "pipeline_degree must be 1 where CUDA streams do not wait for Weft: "));
  });
}

TEST_F(WithoutStreamWaits, ShardsHaveTheLossesOfCpus) {
  expect_losses_of_cpus(tiny_job(2, 2), kTolerance, own_gpu, 2);
}

}  // namespace
}  // namespace loom::testing
