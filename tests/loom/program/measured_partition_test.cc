// Partitions of measured units: both what was measured of time and what was measured of memory count.
#include <gtest/gtest.h>

#include "program/generate.h"
#include "program/partition.h"

namespace loom::program {
namespace {

constexpr int kUnits = 8;

/// Six equal blocks; embedding and head are small.
Job blocks_job() {
  Job job;
  job.spec.vocabulary = 10;
  job.spec.context = 64;
  job.spec.width = 32;
  job.spec.layers = 6;
  job.spec.heads = 4;
  job.spec.feed_forward = 64;
  job.batch = 4;
  job.tokens = 64;
  job.world = job.pipeline_degree = 2;
  job.microbatches = 4;
  return job;
}

/// What a measurement finds that has found `part` of what is planned for each unit.
MeasuredUnits measured(const std::vector<double>& part) {
  MeasuredUnits units;
  units.us.assign(kUnits, 1.0);
  units.planned_bytes.assign(kUnits, 1000.0);
  for (const double each : part) units.saved_bytes.push_back(1000 * each);
  return units;
}

TEST(MeasuredPartition, ActivationsAreThoseMeasured) {
  const Job job = blocks_job();
  const PartitionRequest planned = partition_request(job, Machine());
  const PartitionRequest request = partition_request(job, Machine(), measured({1, 1, 0.5, 0.25, 1, 1, 1, 1}));
  for (const size_t unit : {0, 1, 4, 7})
    EXPECT_DOUBLE_EQ(request.units[unit].activation_bytes, planned.units[unit].activation_bytes) << unit;
  EXPECT_DOUBLE_EQ(request.units[2].activation_bytes, 0.5 * planned.units[2].activation_bytes);
  EXPECT_DOUBLE_EQ(request.units[3].activation_bytes, 0.25 * planned.units[3].activation_bytes);
  for (size_t unit = 0; unit < kUnits; ++unit) {
    EXPECT_DOUBLE_EQ(request.units[unit].state_bytes, planned.units[unit].state_bytes) << unit;
    EXPECT_DOUBLE_EQ(request.units[unit].time_us, 1) << unit;
  }
}

TEST(MeasuredPartition, ABlockThatIsRecomputedKeepsItsInputWhatEverItWrites) {
  Job job = blocks_job();
  job.checkpoint_group = 1;
  const PartitionRequest planned = partition_request(job, Machine());
  const PartitionRequest request =
      partition_request(job, Machine(), measured({1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 1}));
  for (size_t unit = 0; unit < kUnits; ++unit)
    EXPECT_DOUBLE_EQ(request.units[unit].activation_bytes, planned.units[unit].activation_bytes) << unit;
}

TEST(MeasuredPartition, TheCutFollowsTheMeasuredMemory) {
  const Job job = blocks_job();
  const auto cut = [&](const std::vector<double>& part) {
    PartitionRequest request = partition_request(job, Machine(), measured(part));
    request.memory_weight = 1;
    return partition_exactly(request)->first_units.back();
  };
  const int even = cut({1, 1, 1, 1, 1, 1, 1, 1});
  EXPECT_GT(cut({1, 0.1, 0.1, 0.1, 1, 1, 1, 1}), even) << "the first blocks save little";
  EXPECT_LE(cut({1, 1, 1, 1, 0.1, 0.1, 0.1, 1}), even);
}

}  // namespace
}  // namespace loom::program
