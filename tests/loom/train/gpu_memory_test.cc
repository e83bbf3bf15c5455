// Jobs that a GPU's memory bounds, and what is said of those that do not fit.
#include "train/gpu_memory.h"

#include "support.h"

namespace loom::testing {
namespace {

using train::Config;

/// A job of eight sequences on two ranks, whose model has `layers`.
class GpuMemory : public ::testing::Test {
 protected:
  GpuMemory() {
    config_.model.vocabulary = 256;
    config_.data.sequence_length = 64;
    config_.data.global_batch = 32;
  }
  Result<program::Job> job(int64_t mebibytes) const {
    const Result<model::ModelSpec> spec = train::spec_of(config_, 256);
    if (!spec.ok()) return spec.status();
    return train::job_on_gpus(config_, *spec, 2, {}, mebibytes << 20);
  }
  Config config_;
};

TEST_F(GpuMemory, AJobThatFitsIsTheConfigs) {
  const Result<program::Job> job = this->job(4096);
  LOOM_ASSERT_OK(job);
  EXPECT_EQ(job->batch, 16);
  EXPECT_EQ(job->degree, 1);
}

TEST_F(GpuMemory, WhatWouldFitIsNamedAndDoes) {
  int64_t whole = 1;
  while (!job(whole).ok()) ++whole;
  const int64_t less = whole - whole / 8;
  const Result<program::Job> job = this->job(less);
  ASSERT_TRUE(fails_with(job, Code::out_of_memory, fmt::format("{} MiB are free for it: ", less)));
  EXPECT_TRUE(fails_with(job, Code::out_of_memory, " would fit"));
  const std::string sentence = job.status().message(), key = "data.microbatch=";
  ASSERT_NE(sentence.find(key), std::string::npos) << sentence;
  config_.data.microbatch = std::stoi(sentence.substr(sentence.find(key) + key.size()));
  EXPECT_TRUE(this->job(less).ok()) << sentence;
  config_.data.microbatch *= 2;
  EXPECT_FALSE(this->job(less).ok()) << "it is the largest that fits";
}

TEST_F(GpuMemory, AnOpenDegreeIsTheSmallestThatFits) {
  config_.data.microbatch = 1;
  int64_t whole = 1;
  while (!job(whole).ok()) ++whole;
  config_.parallel.sharded_data_parallel_degree = 0;
  EXPECT_EQ(job(whole)->degree, 1);
  EXPECT_EQ(job(whole - 4)->degree, 2);
}

TEST_F(GpuMemory, MoreRanksAreNamedWhereTheseAreTooFew) {
  config_.data.microbatch = 1;
  config_.parallel.activation_checkpointing = {1, 1};
  config_.parallel.sharded_data_parallel_degree = 2;
  int64_t both = 1;
  while (!job(both).ok()) ++both;
  EXPECT_TRUE(fails_with(job(both - 6), Code::out_of_memory, "4 ranks, each with as many sequences, and "));
  EXPECT_TRUE(fails_with(job(1), Code::out_of_memory, "nothing that was tried with this model fits"));
}

TEST_F(GpuMemory, TheConfigsOwnLimitStaysItsOwn) {
  config_.parallel.memory_limit_mb = 100;
  EXPECT_TRUE(fails_with(job(4096), Code::out_of_memory, "parallel.memory_limit_mb is 100"));
}

}  // namespace
}  // namespace loom::testing
