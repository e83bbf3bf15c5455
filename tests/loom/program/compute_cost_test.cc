// The kernels of a unit's work: what they sum up to, and what a device makes of them.
#include "program/compute_cost.h"

#include <gtest/gtest.h>

#include <limits>

#include "program/steps.h"

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

double bytes_of(const std::vector<Cost>& kernels) {
  double bytes = 0;
  for (const Cost& kernel : kernels) bytes += kernel.bytes;
  return bytes;
}

double flops_of(const std::vector<Cost>& kernels, KernelKind kind) {
  double flops = 0;
  for (const Cost& kernel : kernels)
    if (kernel.kind == kind) flops += kernel.flops;
  return flops;
}

TEST(ComputeCost, ABlockMoves54BytesForEachElementOfATokenAndTwiceThatBack) {
  const Job job = block_job();
  const double elements = 2.0 * 2048 * 1024;
  EXPECT_DOUBLE_EQ(bytes_of(costs_of(job, {}, 1, Op::forward)), 54 * elements);
  EXPECT_DOUBLE_EQ(bytes_of(costs_of(job, {}, 1, Op::backward)), 108 * elements);
}

TEST(ComputeCost, TensorRanksDivideAllButNormsAndSums) {
  Job job = block_job();
  job.world = job.tensor_degree = 4;
  const double elements = 2.0 * 2048 * 1024;
  EXPECT_DOUBLE_EQ(bytes_of(costs_of(job, {}, 1, Op::forward)), (22 + 32 / 4) * elements);
  job.divides_rows = true;
  EXPECT_DOUBLE_EQ(bytes_of(costs_of(job, {}, 1, Op::forward)), 54.0 / 4 * elements);
}

/// GPT-2 has a residual with the norm behind it and a product with GELU, and back a product with GELU's
/// derivative and, with dropout, a norm's with the dropout behind it.
TEST(ComputeCost, FusedStepsAreOneKernel) {
  Job job = block_job();
  job.spec.residual_dropout = 0.1f;
  const auto apart = [&](Op op) { return costs_of(job, {}, 1, op); };
  const auto fused = [&](Op op) {
    Job on_gpu = job;
    on_gpu.table.of_gpu = true;
    return costs_of(on_gpu, {}, 1, op);
  };
  const auto operand_bytes = [](const std::vector<Cost>& kernels) {
    double bytes = 0;
    for (const Cost& kernel : kernels) bytes += kernel.operand_bytes;
    return bytes;
  };
  const double elements = 2.0 * 2048 * 1024;
  EXPECT_EQ(fused(Op::forward).size(), apart(Op::forward).size() - 2);
  EXPECT_EQ(fused(Op::backward).size(), apart(Op::backward).size() - 2);
  // Without reading the sum, and without GELU's pass over four times the width.
  EXPECT_DOUBLE_EQ(bytes_of(fused(Op::forward)), (54 - 2 - 16) * elements);
  EXPECT_DOUBLE_EQ(bytes_of(fused(Op::backward)), (108 - 2 - 32) * elements);
  for (const Op op : {Op::forward, Op::backward})
    EXPECT_DOUBLE_EQ(operand_bytes(fused(op)), operand_bytes(apart(op)) + 8 * elements);
  job.precision = Precision::fp32;  // no product of fp32 has a GELU
  EXPECT_EQ(fused(Op::forward).size(), apart(Op::forward).size() - 1);
}

constexpr KernelKind kProducts[] = {KernelKind::product, KernelKind::input_gradient,
                                    KernelKind::weight_gradient};

TEST(ComputeCost, StepsAreTheWhole) {
  const Job job = block_job();
  for (const AttentionKind attention : {AttentionKind::fused, AttentionKind::standard})
    for (const Op op : {Op::forward, Op::backward}) {
      const Device device{.attention = attention, .fused_flops = 1e12};
      double bytes = 0, flops = 0;
      const model::Recipe recipe = model::block_recipe(job.spec, job.recipe_sizes());
      const int steps = static_cast<int>(steps_of(recipe, op).size());
      for (int step = 0; step < steps; ++step) {
        const std::vector<Cost> kernels = costs_of(job, device, 1, op, {step, step + 1});
        bytes += bytes_of(kernels);
        for (const KernelKind kind : kProducts) flops += flops_of(kernels, kind);
      }
      const std::vector<Cost> all = costs_of(job, device, 1, op);
      EXPECT_DOUBLE_EQ(bytes, bytes_of(all));
      double whole = 0;
      for (const KernelKind kind : kProducts) whole += flops_of(all, kind);
      EXPECT_GT(whole, 0);
      EXPECT_DOUBLE_EQ(flops, whole);
    }
}

TEST(ComputeCost, StandardAttentionMovesItsScores) {
  const Job job = block_job();
  const Device standard{.attention = AttentionKind::standard};
  const double pairs = 2.0 * 2048 * 2048 * 8;
  const auto more = [&](Op op) {
    return bytes_of(costs_of(job, standard, 1, op)) - bytes_of(costs_of(job, {}, 1, op));
  };
  EXPECT_DOUBLE_EQ(more(Op::forward), 13 * pairs);
  EXPECT_DOUBLE_EQ(more(Op::backward), 19 * pairs);
  EXPECT_DOUBLE_EQ(flops_of(costs_of(job, standard, 1, Op::forward), KernelKind::batched),
                   2 * flops_of(costs_of(job, {}, 1, Op::forward), KernelKind::attention))
      << "fused attention leaves out the pairs that are masked";
  EXPECT_EQ(score_bytes(job, AttentionKind::fused), 0);
  EXPECT_DOUBLE_EQ(score_bytes(job, AttentionKind::standard), 7 * pairs);
}

/// 109 tiles of 256 x 128 on 108 multiprocessors take two waves.
TEST(ComputeCost, AProductTakesWholeWavesOfTiles) {
  Machine machine;
  machine.flops = 1e12;
  Cost product{KernelKind::product, 1e9, 0, 256 * 108, 128};
  machine.device.multiprocessors = 108;
  EXPECT_DOUBLE_EQ(cost_us(machine, product), 1000);
  product.rows = 256 * 109;
  EXPECT_DOUBLE_EQ(cost_us(machine, product), 1000.0 * 216 / 109);
  machine.device.multiprocessors = 0;
  EXPECT_DOUBLE_EQ(cost_us(machine, product), 1000);
}

TEST(ComputeCost, NoKernelIsShorterThanALaunch) {
  Machine machine;
  machine.device.launch_us = 4;
  EXPECT_EQ(cost_us(machine, {KernelKind::product, 1000}), 4);
  EXPECT_EQ(cost_us(machine, {KernelKind::product, 0}), 0) << "there is none";
}

TEST(ComputeCost, MemoryPassesCountWhereTheirRateIsKnown) {
  Machine machine;
  const Job job = block_job();
  EXPECT_EQ(compute_time(job, machine, 1, Op::forward).pass_us, 0);
  machine.device.pass_bandwidth = 1e9;
  EXPECT_DOUBLE_EQ(compute_time(job, machine, 1, Op::forward).pass_us, 54.0 * 2 * 2048 * 1024 / 1e3);
}

/// A step's predictions were 15 to 22 % too short on CPUs: an activation took its bytes alone.
TEST(ComputeCost, MeasuredKernelsHaveARateEach) {
  Machine machine;
  machine.flops = 1e12;
  machine.device.pass_bandwidth = 1e9;
  const auto rate = [&](KernelKind kind) -> double& {
    return machine.device.rates[static_cast<size_t>(kind)];
  };
  rate(KernelKind::activation) = 1e8;
  rate(KernelKind::weight_gradient) = 1e11;
  rate(KernelKind::heads) = std::numeric_limits<double>::infinity();
  EXPECT_DOUBLE_EQ(cost_us(machine, {KernelKind::activation, 0, 1e6}), 1e4);
  EXPECT_DOUBLE_EQ(cost_us(machine, {KernelKind::norm, 0, 1e6}), 1e3);
  EXPECT_DOUBLE_EQ(cost_us(machine, {KernelKind::product, 1e9}), 1e3);
  EXPECT_DOUBLE_EQ(cost_us(machine, {KernelKind::weight_gradient, 1e9}), 1e4);
  EXPECT_EQ(cost_us(machine, {KernelKind::heads, 0, 1e6}), 0) << "there is none";
  machine.device.operand_bandwidth = 1e9;
  EXPECT_DOUBLE_EQ(cost_us(machine, {KernelKind::product, 1e9, 0, 0, 0, 1e6}), 2e3);
}

TEST(ComputeCost, BackwardHasAnInputsAndAWeightsGradientOfEachProduct) {
  const Job job = block_job();
  const std::vector<Cost> back = costs_of(job, {}, 1, Op::backward);
  const double forward = flops_of(costs_of(job, {}, 1, Op::forward), KernelKind::product);
  EXPECT_DOUBLE_EQ(flops_of(back, KernelKind::input_gradient), forward);
  EXPECT_DOUBLE_EQ(flops_of(back, KernelKind::weight_gradient), forward);
  EXPECT_EQ(flops_of(back, KernelKind::product), 0);
}

}  // namespace
}  // namespace loom::testing
