// Training on fake GPUs with cuDNN's attention, on a fake cuDNN, beside the same on CPUs; and jobs that cuDNN
// is not for.
#include "engine/attention_choice.h"
#include "engine_gpu/on_fake_gpus.h"
#include "loom/device/fake_cudnn/control.h"
#include "support.h"

namespace loom::testing::cudnn_attention_test {
namespace {

using engine::Attention;

constexpr double kShortTolerance = 5e-3;  // of losses in bf16

class GpuCudnn : public OnFakeGpus {
 protected:
  static uint64_t runs() { return calls("cudnnBackendExecute"); }
  static uint64_t calls(const char* what) {
    void* const library = dlopen(LOOM_FAKE_CUDNN, RTLD_NOW);
    return reinterpret_cast<decltype(&fake_cudnn_calls)>(dlsym(library, "fake_cudnn_calls"))(what);
  }
  static program::Job short_job(int world = 1, int degree = 1, int microbatches = 1,
                                model::Family family = model::Family::gpt2) {
    program::Job job = tiny_job(world, degree, microbatches, family);
    job.precision = program::Precision::bf16;
    return job;
  }
  /// Losses are those of CPUs, and cuDNN has run.
  static void expect_losses(const program::Job& job, const GpuOf& gpu_of = shared_gpu) {
    const uint64_t before = runs();
    expect_losses_of_cpus(job, kShortTolerance, gpu_of, 3, Attention::cudnn);
    EXPECT_GT(runs(), before);
  }
  static Result<std::unique_ptr<engine::Engine>> made(const program::Job& job, const engine::Groups& groups,
                                                      Attention attention) {
    return engine::Engine::create(job, groups, {.gpu = groups.gpu(), .attention = attention});
  }
  static void expect_refused(const program::Job& job, const std::string& words) {
    const Result<engine::Groups> groups = engine::Groups::create(nullptr, job.layout(), job.strict, 0);
    LOOM_ASSERT_OK(groups);
    EXPECT_TRUE(fails_with(made(job, *groups, Attention::cudnn), Code::unsupported,
                           "parallel.attention is cudnn, but " + words));
    const auto engine = made(job, *groups, Attention::automatic);
    LOOM_ASSERT_OK(engine);
    EXPECT_EQ((*engine)->attention().library, "");
    EXPECT_NE((*engine)->attention().why_not.find("attention is computed by Loom's kernels: " + words),
              std::string::npos)
        << (*engine)->attention().why_not;
    const uint64_t before = runs();
    LOOM_ASSERT_OK((*engine)->initialize(3));
    fill_batch(**engine, *groups, 0);
    LOOM_ASSERT_OK((*engine)->step(settings_of(job, 0)));
    EXPECT_EQ(runs(), before);
  }
};

TEST_F(GpuCudnn, FamiliesItIsForHaveTheLossesOfCpus) {
  for (const model::Family family : {model::Family::gpt2, model::Family::gptj, model::Family::gpt_neox,
                                     model::Family::llama, model::Family::bert, model::Family::roberta}) {
    SCOPED_TRACE(model::family_name(family));
    expect_losses(short_job(1, 1, 2, family));
  }
}

TEST_F(GpuCudnn, HalfPrecisionHasTheLossesOfCpus) {
  program::Job job = short_job(1, 1, 2);
  job.precision = program::Precision::fp16;
  expect_losses(job);
}

TEST_F(GpuCudnn, RanksHaveTheLossesOfCpus) {
  expect_losses(short_job(2, 2));
  expect_losses(short_job(2, 1), own_gpu);
  program::Job job = short_job();
  job.world = job.tensor_degree = 2;
  expect_losses(job, own_gpu);
  job = short_job(1, 1, 2, model::Family::bert);
  job.world = job.pipeline_degree = 2;
  expect_losses(job, own_gpu);
}

TEST_F(GpuCudnn, RecomputingChangesNoBit) {
  program::Job job = short_job(1, 1, 2);
  job.strict = true;
  const auto losses = [&] { return train(job, 0, 3, {}, {}, 1, shared_gpu, Attention::cudnn); };
  const std::vector<double> plain = losses();
  EXPECT_EQ(losses(), plain) << "a strict job has deterministic gradients";
  job.checkpoint_group = 1;
  EXPECT_EQ(losses(), plain);
}

TEST_F(GpuCudnn, StrictJobsTakeDeterministicPlans) {
  program::Job job = short_job();
  const uint64_t before = calls("plans"), deterministic = calls("deterministic plans");
  train(job, 0, 1, {}, {}, 1, shared_gpu, Attention::cudnn);
  EXPECT_EQ(calls("plans") - before, 2u);
  EXPECT_EQ(calls("deterministic plans") - deterministic, 1u) << "the forward pass alone";
  job.strict = true;
  train(job, 0, 1, {}, {}, 1, shared_gpu, Attention::cudnn);
  EXPECT_EQ(calls("deterministic plans") - deterministic, 3u);
}

TEST_F(GpuCudnn, ARunGoesOnFromACheckpoint) {
  program::Job job = short_job(1, 1, 2);
  job.strict = true;
  const std::vector<double> whole = train(job, 0, 4, {}, {}, 1, shared_gpu, Attention::cudnn);
  const TemporaryFolder folder;
  const auto save = [&](engine::Engine& engine, const engine::Groups&) {
    return engine.save_state(folder.path());
  };
  const auto load = [&](engine::Engine& engine, const engine::Groups&) -> Status {
    engine::StateReaders readers(1);
    const Result<format::FlatLayout> layout = engine.state_layout(0, 0);
    LOOM_TRY(layout.status());
    readers[0].push_back(std::make_unique<format::FlatReader>(folder.path(), *layout));
    return engine.load_state(readers);
  };
  train(job, 0, 2, {}, save, 1, shared_gpu, Attention::cudnn);
  EXPECT_EQ(train(job, 2, 4, load, {}, 1, shared_gpu, Attention::cudnn),
            std::vector<double>(whole.begin() + 2, whole.end()));
}

TEST_F(GpuCudnn, JobsItIsNotForAreNamed) {
  expect_refused(tiny_job(), "cuDNN's attention takes bf16 and fp16, not fp32: set parallel.precision");
  program::Job job = short_job();
  job.spec.attention_dropout = 0.1f;
  expect_refused(
      job,
      "cuDNN's attention would drop other elements than Loom's, and attention's dropout is 0.1: set "
      "model.dropout to 0");
  expect_refused(short_job(1, 1, 1, model::Family::bloom), "cuDNN's ALiBi knows the heads of one rank only");
  job = short_job(1, 1, 1, model::Family::gpt_neo);
  expect_refused(job, "the model's attention has windows, of ");
  job = short_job();
  job.packed = true;
  expect_refused(job, "cuDNN's attention would let texts of one sequence see each other");
  job = short_job();
  job.spec.heads = 4;
  job.spec.width = 48;
  model::complete(job.spec);
  expect_refused(job, "cuDNN's attention takes heads of a multiple of 8 elements up to 256, not of 12");
}

TEST_F(GpuCudnn, CpusHaveNone) {
  const program::Job job = short_job();
  const Result<engine::Groups> groups = engine::Groups::create(nullptr, job.layout(), false);
  LOOM_ASSERT_OK(groups);
  EXPECT_TRUE(
      fails_with(made(job, *groups, Attention::cudnn), Code::unsupported,
                 "parallel.attention is cudnn, which computes on GPUs, and the ranks compute on CPUs"));
  const auto engine = made(job, *groups, Attention::automatic);
  LOOM_ASSERT_OK(engine);
  EXPECT_EQ((*engine)->attention().why_not, "");
}

TEST_F(GpuCudnn, ItsMemoryIsBelowWhatIsKeptFree) {
  program::Job job = short_job();
  for (const bool strict : {false, true}) {
    job.strict = strict;
    std::array<int64_t, 2> beside{};
    for (const Attention attention : {Attention::own, Attention::cudnn})
      train(
          job, 0, 1, {},
          [&](engine::Engine& engine, const engine::Groups&) -> Status {
            beside[attention == Attention::cudnn ? 1 : 0] = engine.memory_bytes() - engine.arena_bytes();
            EXPECT_EQ(engine.attention().library, attention == Attention::cudnn ? "cuDNN 9.19.0" : "");
            return {};
          },
          1, shared_gpu, attention);
    EXPECT_GT(engine::attention_bytes(job, Attention::cudnn), 0);
    EXPECT_LE(beside[1], beside[0] + engine::attention_bytes(job, Attention::cudnn));
  }
  EXPECT_EQ(engine::attention_bytes(job, Attention::own), 0);
  EXPECT_EQ(engine::attention_bytes(tiny_job(), Attention::automatic), 0) << "fp32 is not for cuDNN";
}

}  // namespace
}  // namespace loom::testing::cudnn_attention_test
