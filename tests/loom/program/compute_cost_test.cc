// The kernels of a unit's work: what they sum up to, and what a device makes of them.
#include "program/compute_cost.h"

#include <gtest/gtest.h>

namespace loom::testing {
namespace {

using namespace program;

Job block_job() {
  Job job;
  job.spec.vocabulary = 1000;
  job.spec.context = job.tokens = 2048;
  job.spec.width = 1024;
  job.spec.layers = 2;
  job.spec.heads = 8;
  job.spec.feed_forward = 4096;
  job.batch = 2;
  job.precision = Precision::fp16;
  return job;
}

double bytes_of(const std::vector<Kernel>& kernels) {
  double bytes = 0;
  for (const Kernel& kernel : kernels) bytes += kernel.bytes;
  return bytes;
}

double flops_of(const std::vector<Kernel>& kernels, KernelKind kind) {
  double flops = 0;
  for (const Kernel& kernel : kernels)
    if (kernel.kind == kind) flops += kernel.flops;
  return flops;
}

TEST(ComputeCost, ABlockMoves54BytesForEachElementOfATokenAndTwiceThatBack) {
  const Job job = block_job();
  const double elements = 2.0 * 2048 * 1024;
  EXPECT_DOUBLE_EQ(bytes_of(kernels_of(job, {}, 1, Op::forward)), 54 * elements);
  EXPECT_DOUBLE_EQ(bytes_of(kernels_of(job, {}, 1, Op::backward)), 108 * elements);
}

TEST(ComputeCost, TensorRanksDivideAllButNormsAndSums) {
  Job job = block_job();
  job.world = job.tensor_degree = 4;
  const double elements = 2.0 * 2048 * 1024;
  EXPECT_DOUBLE_EQ(bytes_of(kernels_of(job, {}, 1, Op::forward)), (22 + 32 / 4) * elements);
  job.divides_rows = true;
  EXPECT_DOUBLE_EQ(bytes_of(kernels_of(job, {}, 1, Op::forward)), 54.0 / 4 * elements);
}

TEST(ComputeCost, PiecesAreTheWhole) {
  const Job job = block_job();
  for (const AttentionKind attention : {AttentionKind::fused, AttentionKind::standard})
    for (const Op op : {Op::forward, Op::backward}) {
      const Device device{.attention = attention, .fused_flops = 1e12};
      double bytes = 0, flops = 0;
      for (int piece = 0; piece < 8; ++piece) {
        const std::vector<Kernel> kernels = kernels_of(job, device, 1, op, piece);
        bytes += bytes_of(kernels);
        flops += flops_of(kernels, KernelKind::product);
      }
      const std::vector<Kernel> all = kernels_of(job, device, 1, op);
      EXPECT_DOUBLE_EQ(bytes, bytes_of(all));
      EXPECT_DOUBLE_EQ(flops, flops_of(all, KernelKind::product));
    }
}

TEST(ComputeCost, StandardAttentionMovesItsScores) {
  const Job job = block_job();
  const Device standard{.attention = AttentionKind::standard};
  const double pairs = 2.0 * 2048 * 2048 * 8;
  const auto more = [&](Op op) {
    return bytes_of(kernels_of(job, standard, 1, op)) - bytes_of(kernels_of(job, {}, 1, op));
  };
  EXPECT_DOUBLE_EQ(more(Op::forward), 13 * pairs);
  EXPECT_DOUBLE_EQ(more(Op::backward), 19 * pairs);
  EXPECT_DOUBLE_EQ(flops_of(kernels_of(job, standard, 1, Op::forward), KernelKind::batched),
                   2 * flops_of(kernels_of(job, {}, 1, Op::forward), KernelKind::attention))
      << "fused attention leaves out the pairs that are masked";
  EXPECT_EQ(score_bytes(job, AttentionKind::fused), 0);
  EXPECT_DOUBLE_EQ(score_bytes(job, AttentionKind::standard), 7 * pairs);
}

/// 109 tiles of 256 x 128 on 108 multiprocessors take two waves.
TEST(ComputeCost, AProductTakesWholeWavesOfTiles) {
  Machine machine;
  machine.flops = 1e12;
  Kernel product{KernelKind::product, 1e9, 0, 256 * 108, 128};
  machine.device.multiprocessors = 108;
  EXPECT_DOUBLE_EQ(kernel_us(machine, product), 1000);
  product.rows = 256 * 109;
  EXPECT_DOUBLE_EQ(kernel_us(machine, product), 1000.0 * 216 / 109);
  machine.device.multiprocessors = 0;
  EXPECT_DOUBLE_EQ(kernel_us(machine, product), 1000);
}

TEST(ComputeCost, NoKernelIsShorterThanALaunch) {
  Machine machine;
  machine.device.launch_us = 4;
  EXPECT_EQ(kernel_us(machine, {KernelKind::product, 1000}), 4);
  EXPECT_EQ(kernel_us(machine, {KernelKind::product, 0}), 0) << "there is none";
}

TEST(ComputeCost, MemoryPassesCountWhereTheirRateIsKnown) {
  Machine machine;
  const Job job = block_job();
  EXPECT_EQ(compute_time(job, machine, 1, Op::forward).pass_us, 0);
  machine.device.pass_bandwidth = 1e9;
  EXPECT_DOUBLE_EQ(compute_time(job, machine, 1, Op::forward).pass_us, 54.0 * 2 * 2048 * 1024 / 1e3);
}

}  // namespace
}  // namespace loom::testing
