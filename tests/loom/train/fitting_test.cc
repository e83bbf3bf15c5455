// parallel.memory_limit_mb: a partition that needs less is found, and what is refused does not fit.
#include <algorithm>

#include "engine/ranks.h"
#include "loom/plan.h"
#include "model/families.h"
#include "train/config.h"

namespace loom::testing {
namespace {

using train::Config;

constexpr int64_t kVocabulary = 8192;

/// Eight blocks of width 256 in two stages; the embedding and the head's copy are as much as three of them.
Config two_stages() {
  Config config;
  config.model.layers = 8;
  config.data.sequence_length = 512;
  config.data.global_batch = 8;
  config.data.microbatch = 1;
  config.parallel.pipeline_degree = 2;
  config.parallel.tied = "copies";
  return config;
}

struct Way {
  const char *name, *pipeline;
  int64_t tokens;
  bool offloads;
  int64_t recomputes;
};

class Fitting : public ::testing::TestWithParam<Way> {
 protected:
  Fitting() {
    config_.data.sequence_length = GetParam().tokens;
    config_.parallel.pipeline = GetParam().pipeline;
    config_.parallel.activation_offloading = GetParam().offloads;
    config_.parallel.activation_checkpointing.group = GetParam().recomputes;
  }
  Result<program::Job> job(const std::string& partition, int64_t limit) {
    config_.parallel.partition = partition;
    config_.parallel.memory_limit_mb = limit;
    return train::job_of(config_, *train::spec_of(config_, kVocabulary), 2);
  }
  /// Whole MiB that a partition's arenas need.
  int64_t need(const std::string& partition) {
    const Result<program::Job> made = job(partition, 0);
    EXPECT_TRUE(made.ok()) << sentence(made);
    return made.ok() ? (*train::arena_bytes(*made) >> 20) + 1 : 0;
  }

  Config config_ = two_stages();
};

TEST_P(Fitting, ALimitThatTheBestPartitionKeepsChangesNothing) {
  const int64_t mib = need("auto");
  const Result<program::Job> free = job("auto", 0), limited = job("auto", mib);
  LOOM_ASSERT_OK(free);
  LOOM_ASSERT_OK(limited);
  EXPECT_EQ(limited->first_units, free->first_units);
}

TEST_P(Fitting, WhatACutByHandNeedsIsEnough) {
  int64_t least = INT64_MAX;
  const bool interleaved = std::string(GetParam().pipeline) == "interleaved";
  for (int first = 1; first <= 9; ++first) {
    if (!interleaved) least = std::min(least, need(fmt::format("0,{}", first)));
    for (int second = first + 1; interleaved && second < 9; ++second)
      for (int third = second + 1; third <= 9; ++third)
        least = std::min(least, need(fmt::format("0,{},{},{}", first, second, third)));
  }
  const Result<program::Job> limited = job("auto", least);
  LOOM_ASSERT_OK(limited);
  EXPECT_LE(*train::arena_bytes(*limited), least << 20);
  EXPECT_TRUE(fails_with(job("auto", least - 1), Code::out_of_memory,
                         fmt::format("a rank needs {} MiB with sharded_data_parallel_degree 1 and partition "
                                     "0,",
                                     least)));
}

INSTANTIATE_TEST_SUITE_P(Partitions, Fitting,
                         ::testing::Values(Way{"short", "1f1b", 64, false, 0},
                                           Way{"long", "1f1b", 512, false, 0},
                                           Way{"recomputed", "1f1b", 512, false, 1},
                                           Way{"offloaded", "simple", 512, true, 0},
                                           Way{"offloaded_inputs", "1f1b", 512, true, 1},
                                           Way{"interleaved", "interleaved", 64, false, 0}),
                         [](const auto& info) { return info.param.name; });

TEST(Fitting, APlanSaysThatBetterPartitionsDoNotFit) {
  const auto told = [](int64_t limit) {
    return *loom::Config::parse(
        "{}", {"model.layers=8", "data.sequence_length=512", "data.global_batch=8", "data.microbatch=1",
               "parallel.pipeline_degree=2", "parallel.optimize=speed",
               fmt::format("parallel.memory_limit_mb={}", limit)});
  };
  Cluster cluster;
  cluster.ranks = 2;
  cluster.flops = 5e10;
  constexpr const char* kWords = "modelled times; better ones do not fit parallel.memory_limit_mb\n";
  const Result<Plan> free = plan(told(0), cluster, kVocabulary);
  LOOM_ASSERT_OK(free);
  EXPECT_EQ(free->partition.find(kWords), std::string::npos);
  const int64_t mib = free->arena_bytes() >> 20;  // less than it needs
  const Result<Plan> limited = plan(told(mib), cluster, kVocabulary);
  LOOM_ASSERT_OK(limited);
  EXPECT_LE(limited->arena_bytes(), mib << 20);
  EXPECT_NE(limited->partition.find(kWords), std::string::npos) << limited->partition;
  EXPECT_EQ(limited->partition.find("no partition is better"), std::string::npos);
}

/// Of one rank there is nothing to share.
TEST(Fitting, TheDegreeOfAnOptimizersStateBeginsAtTwo) {
  Config config;
  config.data.global_batch = 8;
  config.parallel.shard_optimizer_state = true;
  config.parallel.sharded_data_parallel_degree = 0;
  const model::ModelSpec spec = *train::spec_of(config, kVocabulary);
  const Result<program::Job> two = train::job_of(config, spec, 4);
  LOOM_ASSERT_OK(two);
  EXPECT_EQ(two->degree, 2);
  config.parallel.memory_limit_mb = *train::arena_bytes(*two) >> 20;
  const Result<program::Job> four = train::job_of(config, spec, 4);
  LOOM_ASSERT_OK(four);
  EXPECT_EQ(four->degree, 4);
  config.parallel.memory_limit_mb = 0;
  EXPECT_TRUE(fails_with(train::job_of(config, spec, 1), Code::invalid_argument,
                         "shard_optimizer_state needs a sharded_data_parallel_degree above 1"));
}

TEST(Fitting, ABatchThatTensorRanksCannotDivideIsRefusedWithWhatTheyCould) {
  Config config;
  config.parallel.tensor_degree = 2;
  const model::ModelSpec spec = *train::spec_of(config, kVocabulary);
  for (const int64_t microbatch : {0, 1})
    for (const int64_t global : {1, 3}) {
      config.data.microbatch = microbatch;
      config.data.global_batch = global;
      EXPECT_TRUE(fails_with(
          train::job_of(config, spec, 2), Code::invalid_argument,
          fmt::format("data.global_batch is {}, must be a multiple of data ranks · tensor_degree, 1 · 2",
                      global)));
    }
  config.parallel.prescaled_batch = true;
  config.parallel.optimize = "speed";
  LOOM_ASSERT_OK(train::job_of(config, spec, 2));
}

}  // namespace
}  // namespace loom::testing
