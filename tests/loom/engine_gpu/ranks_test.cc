// Several ranks on GPUs: Weft moves their arenas on the streams of lanes. Ranks are threads, which share a
// GPU or have one each.
#include "engine_gpu/on_fake_gpus.h"

namespace loom::testing {
namespace {

struct Division {
  const char* name;
  int data = 1, shard = 1, pipeline = 1, tensor = 1;
  GpuOf gpu_of = shared_gpu;
};

program::Job divided(const Division& d, model::Family family = model::Family::gpt2) {
  program::Job job = tiny_job(d.data, d.shard, d.pipeline > 1 ? 4 / d.data : 1, family);
  job.world = d.data * d.pipeline * d.tensor;
  job.pipeline_degree = d.pipeline;
  job.tensor_degree = d.tensor;
  return job;
}

class GpuRanks : public OnFakeGpus, public ::testing::WithParamInterface<Division> {};

TEST_P(GpuRanks, HaveTheLossesOfCpus) {
  const program::Job job = divided(GetParam());
  expect_losses_of_cpus(job, kTolerance, GetParam().gpu_of);
}

INSTANTIATE_TEST_SUITE_P(
    Engine, GpuRanks,
    ::testing::Values(Division{"TwoShareShards", 2, 2}, Division{"TwoWithAGpuEach", 2, 2, 1, 1, own_gpu},
                      Division{"TwoReplicas", 2, 1}, Division{"FourByMics", 4, 2, 1, 1, own_gpu},
                      Division{"TwoStages", 1, 1, 2}, Division{"TwoStagesWithAGpuEach", 1, 1, 2, 1, own_gpu},
                      Division{"TwoTensorRanks", 1, 1, 1, 2},
                      Division{"StagesOfTensorRanks", 1, 1, 2, 2, own_gpu}),
    [](const auto& info) { return std::string(info.param.name); });

class GpuRanksOnce : public OnFakeGpus {};

TEST_F(GpuRanksOnce, TensorRanksThatDivideRowsAndExchangeTheirBatch) {
  program::Job job = divided({"", 1, 1, 1, 2});
  job.divides_rows = true;
  job.prescaled_batch = false;
  expect_losses_of_cpus(job, kTolerance, shared_gpu);
}

TEST_F(GpuRanksOnce, StrictOrderGivesTheBitsOfOneRank) {
  program::Job one = tiny_job(1, 1, kSequences);
  one.strict = true;
  const auto on_gpus = [](const program::Job& job) { return train(job, 0, 2, {}, {}, 1, own_gpu); };
  const std::vector<double> wanted = on_gpus(one);
  program::Job two = tiny_job(2, 2, kSequences / 2);
  two.strict = true;
  EXPECT_EQ(on_gpus(two), wanted);
}

TEST_F(GpuRanksOnce, EveryFamilyInShards) {
  for (const model::Family family : kEveryFamily) {
    SCOPED_TRACE(model::family_name(family));
    expect_losses_of_cpus(divided({"", 2, 2}, family), kTolerance, own_gpu, 2);
  }
}

TEST_F(GpuRanksOnce, OffloadingBesideGathers) {
  program::Job job = divided({"", 2, 2});
  job.spec.layers = 6;
  job.microbatches = 2;
  job.batch = 2;
  job.checkpoint_group = 1;
  job.offload = true;
  job.loading_horizon = 2;
  expect_losses_of_cpus(job, kTolerance, shared_gpu, 2);
}

}  // namespace
}  // namespace loom::testing
