// From its groups on, a run communicates from memory that it has registered with them: while it measures its
// machine, in steps, evaluations, traces, checkpoints and saved models, and when it goes on.
#include "train/runs.h"
#include "train/weft_calls.h"

namespace loom::testing {
namespace {

struct Kind {
  const char* name;
  int64_t degree, stages, tensors;
  bool strict, prescaled;
  const char* precision;
};

class Registered : public Runs, public ::testing::WithParamInterface<Kind> {};

TEST_P(Registered, IsAllThatARunCommunicatesFrom) {
  const Kind& kind = GetParam();
  make_tokens(config_.data.folder);
  config_.parallel.sharded_data_parallel_degree = kind.degree;
  config_.parallel.pipeline_degree = kind.stages;
  config_.parallel.tensor_degree = kind.tensors;
  config_.parallel.strict = kind.strict;
  config_.parallel.prescaled_batch = kind.prescaled;
  config_.parallel.precision = kind.precision;
  config_.data.microbatch = 2;
  config_.run.evaluate_every = config_.run.checkpoint_every = config_.run.save_model_every = 1;
  WeftCalls::begin();
  for (const int64_t steps : {2, 3}) {
    config_.run.steps = steps;
    on_ranks(4, 2, [&](weftComm_t world) {
      const auto trainer = train::Trainer::create(config_, world, train::Measuring::machine);
      LOOM_ASSERT_OK(trainer);
      EXPECT_EQ((*trainer)->next_step(), steps == 2 ? 0 : 2);
      LOOM_ASSERT_OK((*trainer)->run([](const train::StepRecord&) {}));
      LOOM_ASSERT_OK((*trainer)->save_model());
      EXPECT_EQ((*trainer)->trace().has_value(), (*trainer)->groups().rank() == 0);
    });
  }
  const WeftCalls::Seen seen = WeftCalls::end();
  EXPECT_EQ(seen.unregistered, std::vector<std::string>());
  for (const char* function : {"weftAllGather", "weftAllReduce", "weftBroadcast", "weftSend", "weftRecv"})
    EXPECT_TRUE(seen.calls.contains(function)) << function << " was not called, or this test does not see it";
  EXPECT_EQ(seen.calls.contains("weftReduceScatter"), kind.degree > 1 || kind.tensors > 1);
}

INSTANTIATE_TEST_SUITE_P(Train, Registered,
                         ::testing::Values(Kind{"ShardsAndReplicas", 2, 1, 1, false, false, "bf16"},
                                           Kind{"ShardsAndStages", 2, 2, 1, true, false, "fp32"},
                                           Kind{"StagesOfTensorRanks", 1, 2, 2, false, false, "fp16"},
                                           Kind{"ReplicasOfTensorRanks", 1, 1, 2, false, true, "fp32"}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(RegisteredMemory, IsWhereLogitsTravelFrom) {
  WeftCalls::begin();
  on_ranks(4, 2, [&](weftComm_t world) {
    program::Job job = small_job(4, 1, 2, 4);
    job.pipeline_degree = job.tensor_degree = 2;
    const Result<engine::Groups> groups = engine::Groups::create(world, job.layout(), false);
    LOOM_ASSERT_OK(groups);
    const auto engine = engine::Engine::create(job, *groups, {});
    LOOM_ASSERT_OK(engine);
    LOOM_ASSERT_OK((*engine)->initialize(1));
    fill_batch(**engine, *groups, 0);
    LOOM_ASSERT_OK((*engine)->logits(3));
  });
  EXPECT_EQ(WeftCalls::end().unregistered, std::vector<std::string>());
}

TEST(RegisteredMemory, IsToldFromOther) {
  WeftCalls::begin();
  on_ranks(2, 1, [&](weftComm_t world) {
    const Result<engine::Groups> groups =
        engine::Groups::create(world, small_job(2, 2, 1, 1).layout(), false);
    LOOM_ASSERT_OK(groups);
    float number = 1;
    ASSERT_EQ(weftAllReduce(&number, &number, 1, weftFloat32, weftSum, groups->world(), nullptr),
              weftSuccess);
  });
  EXPECT_EQ(WeftCalls::end().unregistered,
            std::vector<std::string>(4, "weftAllReduce of 4 bytes"));  // both ranks, from and to
}

}  // namespace
}  // namespace loom::testing
