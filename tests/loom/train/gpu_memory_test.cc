// Jobs that a GPU's memory bounds, and what is said of those that do not fit.
#include "train/gpu_memory.h"

#include <array>

#include "program/compute_cost.h"
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

/// GPT-2 as a step on one GPU has it, in bf16.
program::Job gpt2(int64_t layers, int64_t width, int64_t batch) {
  model::ModelSpec spec;
  spec.vocabulary = 50257;
  spec.context = 1024;
  spec.width = width;
  spec.layers = layers;
  spec.heads = width / 64;
  spec.feed_forward = 4 * width;
  spec.tied = true;
  program::Job job;
  job.spec = spec;
  job.precision = program::Precision::bf16;
  job.batch = batch;
  job.tokens = 1024;
  job.table = train::kGpuTable;
  return job;
}

/// What the products of a step's head read and write.
double head_bytes(const program::Job& job) {
  double bytes = 0;
  for (const program::Cost& cost : program::costs_of(job, {}, job.units() - 1, program::Op::loss))
    bytes += cost.operand_bytes;
  return bytes;
}

/// Pieces of 512 rows read and wrote the gradient of the embedding 128 times a step.
TEST(HeadRowsOfGpus, AreOfAllRowsWhereMemoryTakesThem) {
  constexpr int64_t kMemory = int64_t{78} << 30;
  for (const auto& [layers, width, batch] : {std::array<int64_t, 3>{12, 768, 64}, {48, 1600, 16}}) {
    const program::Job before = gpt2(layers, width, batch);
    const Result<program::Job> job = train::with_more_head_rows(before, kMemory);
    LOOM_ASSERT_OK(job);
    EXPECT_EQ(job->table.head_rows, batch * 1024);
    EXPECT_TRUE(job->table.of_gpu);
    EXPECT_LE(*train::arena_bytes(*job), kMemory);
    // Each piece reads the matrix twice, and reads and writes its gradient of fp32.
    const auto pieces = static_cast<double>(batch * 2), matrix = 50257.0 * static_cast<double>(width);
    EXPECT_DOUBLE_EQ(head_bytes(before) - head_bytes(*job), (pieces - 1) * (2 * 2 + 2 * 4) * matrix);
  }
  EXPECT_NEAR(head_bytes(gpt2(12, 768, 64)) / 1e9, 79.2, 0.05);
  EXPECT_NEAR(head_bytes(*train::with_more_head_rows(gpt2(12, 768, 64), kMemory)) / 1e9, 20.4, 0.05);
}

TEST(HeadRowsOfGpus, TakeAnEighthOfTheMemoryAndLeaveTheRestItsRoom) {
  const program::Job least = gpt2(12, 768, 64);
  const Result<program::Job> half = train::with_more_head_rows(least, int64_t{65536} * 50264 * 2 * 8 - 1);
  LOOM_ASSERT_OK(half);
  EXPECT_EQ(half->table.head_rows, 32768);
  program::Job quarter = least;
  quarter.table.head_rows = 16384;
  const Result<program::Job> tight = train::with_more_head_rows(least, *train::arena_bytes(quarter));
  LOOM_ASSERT_OK(tight);
  EXPECT_EQ(tight->table, quarter.table);
  EXPECT_EQ(train::with_more_head_rows(least, *train::arena_bytes(least) - 1)->table, least.table);
}

TEST(HeadRowsOfGpus, OfTensorRanksHaveAsManyBytes) {
  program::Job job = gpt2(12, 768, 64);
  job.tensor_degree = job.world = 2;
  const Result<program::Job> larger = train::with_more_head_rows(job, int64_t{78} << 30);
  LOOM_ASSERT_OK(larger);
  EXPECT_EQ(larger->table.head_rows, 32768) << "of each of two ranks";
}

/// Memory would decide on the order of sums.
TEST(HeadRowsOfGpus, InStrictOrderDoNotDependOnMemory) {
  program::Job job = gpt2(12, 768, 64);
  job.strict = true;
  EXPECT_EQ(train::with_more_head_rows(job, int64_t{78} << 30)->table, train::kGpuTable);
}

}  // namespace
}  // namespace loom::testing
