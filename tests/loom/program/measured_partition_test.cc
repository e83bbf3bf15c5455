// Partitions of measured units: both what was measured of time and what was measured of memory count.
#include <gtest/gtest.h>

#include <algorithm>

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

/// What a measurement finds that has found `part` of what is planned for each unit's backward.
MeasuredUnits measured(const std::vector<double>& part) {
  MeasuredUnits units;
  for (const double each : part) units.push_back({.us = 1, .saved = each});
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

TEST(MeasuredPartition, StateAndWorkspaceAreThoseMeasured) {
  const Job job = blocks_job();
  MeasuredUnits units(kUnits);
  units[2].state = 0.5;
  units[3].workspace = 0.25;
  const PartitionRequest planned = partition_request(job, Machine());
  const PartitionRequest request = partition_request(job, Machine(), units);
  const auto workspace = static_cast<double>(sizes_of(job).block_workspace);
  EXPECT_DOUBLE_EQ(request.units[2].state_bytes, 0.5 * planned.units[2].state_bytes);
  EXPECT_DOUBLE_EQ(request.units[2].transient_bytes, planned.units[2].transient_bytes);
  EXPECT_DOUBLE_EQ(request.units[3].state_bytes, planned.units[3].state_bytes);
  EXPECT_DOUBLE_EQ(request.units[3].transient_bytes, planned.units[3].transient_bytes - 0.75 * workspace);
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

/// Of many tokens, each of which may be any of many: logits are more than all that the blocks have.
TEST(MeasuredPartition, AHeadWithALargeWorkspaceMovesTheCut) {
  Job job = blocks_job();
  job.spec.vocabulary = 2000;
  job.microbatches = 1;
  job.spec.tied = false;
  const auto cut = [&](double workspace) {
    MeasuredUnits units = measured({1, 1, 1, 1, 1, 1, 1, 1});
    units.back().workspace = workspace;
    PartitionRequest request = partition_request(job, Machine(), units);
    request.memory_weight = 1;
    EXPECT_EQ(request.units.back().transient_bytes,
              workspace * static_cast<double>(sizes_of(job).head_workspace));
    return partition_exactly(request)->first_units.back();
  };
  EXPECT_GT(cut(1), cut(0.01)) << "blocks go to the stage before the head's";
}

/// A stage's arena has the workspace of its own units, and no other's.
TEST(MeasuredPartition, OnlyTheStageOfTheHeadHasRoomForLogits) {
  Job job = blocks_job();
  job.spec.vocabulary = 2000;
  const model::BufferSizes sizes = sizes_of(job);
  ASSERT_GT(sizes.head_workspace, 2 * sizes.block_workspace);
  const std::vector<Program> programs = *make_programs(job);
  const auto workspace = [](const Program& program) {
    const auto buffer = std::find_if(program.buffers.begin(), program.buffers.end(),
                                     [](const Buffer& each) { return each.name == "workspace"; });
    return buffer->bytes;
  };
  EXPECT_EQ(workspace(programs[0]), sizes.block_workspace);
  EXPECT_EQ(workspace(programs[1]), sizes.head_workspace);
}

/// Whole parameters and gradients are there while they are used, where ranks have slices of them.
TEST(MeasuredPartition, WholeUnitsAreChargedWhereTheStateIsShared) {
  Job job = blocks_job();
  job.microbatches = 1;
  const auto transient = [&](size_t unit) {
    return partition_request(job, Machine()).units[unit].transient_bytes;
  };
  const auto elements = [&](size_t unit) { return static_cast<double>(job.padded(job.held_units()[unit])); };
  const double block = transient(1), head = transient(7);
  EXPECT_EQ(block, static_cast<double>(sizes_of(job).block_workspace));
  job.world = 4;
  job.degree = 2;
  EXPECT_EQ(transient(1), block + 8 * elements(1));
  EXPECT_EQ(transient(7), head + 8 * (elements(7) + elements(0))) << "with the embedding that it borrows";
  job.shard_optimizer_only = true;
  EXPECT_EQ(transient(1), block) << "they are there all the time, and charged as state";
  job.microbatches = 2;
  EXPECT_EQ(transient(1), block + 4 * elements(1)) << "a gradient beside the sum";
  EXPECT_EQ(transient(0), 0) << "rows are added to the sum";
}

}  // namespace
}  // namespace loom::program
