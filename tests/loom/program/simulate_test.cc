// What the simulator makes of single collectives, against the formulas that it says it uses.
#include "program/simulate.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "program/collective_cost.h"
#include "program/generate.h"

namespace loom::testing {
namespace {

using namespace program;

Job sharded_job() {
  Job job;
  job.spec.vocabulary = 50;
  job.spec.context = job.tokens = 16;
  job.spec.width = 64;
  job.spec.layers = 3;
  job.spec.heads = 2;
  job.spec.feed_forward = 256;
  job.world = 4;
  job.degree = 2;
  job.microbatches = 2;
  return job;
}

struct Spread {
  int world, degree, ranks_per_node;
  int nodes;    // of the replicas of rank 0
  int sharing;  // groups that share its node's link
};

/// The number of nodes was members over members of this node, rounded down: with more than half of a group
/// on one node that was 1, and the collective had no bytes.
TEST(SimulatedAllReduce, GoesOverAsManyNodesAsItsGroupLiesOn) {
  for (const Spread& spread :
       {Spread{4, 1, 2, 2, 1}, {8, 2, 4, 2, 2}, {3, 1, 2, 2, 1}, {12, 1, 8, 2, 1}, {7, 1, 3, 3, 1}}) {
    Job job;
    job.spec.vocabulary = 50;
    job.spec.context = job.tokens = 16;
    job.spec.width = 64;
    job.spec.layers = 2;
    job.spec.heads = 2;
    job.spec.feed_forward = 256;
    job.world = spread.world;
    job.degree = spread.degree;
    Program one;
    one.instructions.push_back({Op::all_reduce, 0, -1, 1, {}, {}});
    Machine machine;
    machine.ranks_per_node = spread.ranks_per_node;
    const double bytes = 4.0 * static_cast<double>(job.shard(job.held_units()[0]));
    const double sent = spread.sharing * volume(Op::all_reduce, bytes, spread.nodes);
    EXPECT_DOUBLE_EQ(simulate(job, one, machine).intervals[0].end_us,
                     2 * machine.inter_latency_us + sent / machine.inter_bandwidth * 1e6)
        << spread.world << " ranks, " << spread.ranks_per_node << " a node, p " << spread.degree;
  }
}

/// Each rank of a tensor group over nodes was charged with all that it sends, at its share of the node's
/// link, as if nothing stayed inside.
TEST(SimulatedExchange, OverNodesIsChargedWhatLeavesANode) {
  Job job = sharded_job();
  job.world = job.tensor_degree = 4;
  job.degree = 1;
  Program one;
  constexpr double kBytes = 1 << 20;
  const BufferId rows = one.add("rows", Category::activations, static_cast<int64_t>(kBytes));
  one.instructions.push_back({Op::tensor_all_reduce, 1, -1, 1, {{Role::output, rows, true, true}}, {}});
  Machine machine;
  machine.ranks_per_node = 2;
  const auto us = [&] { return simulate(job, one, machine).intervals[0].end_us; };
  // One copy of the sum leaves each of the two nodes and one comes in: 2 · (2-1)/2 of the bytes.
  EXPECT_DOUBLE_EQ(us(), 2 * machine.inter_latency_us + kBytes / machine.inter_bandwidth * 1e6);
  one.instructions[0].op = Op::tensor_gather;  // half of the rows come from the other node
  EXPECT_DOUBLE_EQ(us(), machine.inter_latency_us + kBytes / 2 / machine.inter_bandwidth * 1e6);
}

/// Collectives took bytes over a rate, whatever plan would carry them out.
TEST(SimulatedCollectives, TakeWhatThePlansTake) {
  Job job = sharded_job();
  Program one;
  one.instructions.push_back({Op::gather, 1, -1, 1, {}, {}});
  Machine machine;
  CollectiveShape asked;
  machine.plans = [&](const CollectiveShape& shape) {
    asked = shape;
    return 1234.0;
  };
  EXPECT_DOUBLE_EQ(simulate(job, one, machine).intervals[0].end_us, 1234);
  EXPECT_EQ(asked.nodes, 2);
  EXPECT_EQ(asked.ranks_per_node, 1);
  EXPECT_DOUBLE_EQ(asked.bytes, 4.0 * static_cast<double>(job.padded(job.held_units()[1])));
  machine.plans = [](const CollectiveShape&) { return -1.0; };  // not known: by the formula
  EXPECT_DOUBLE_EQ(simulate(job, one, machine).intervals[0].end_us,
                   machine.inter_latency_us + asked.bytes / 2 / machine.inter_bandwidth * 1e6);
}

/// Gradients travelled as fp32 whatever the engine sends.
TEST(SimulatedGradients, HaveTheBytesThatTheEngineSends) {
  Job job = sharded_job();
  job.precision = Precision::fp16;
  Program one;
  one.instructions.push_back({Op::reduce_scatter, 1, -1, 1, {}, {}});
  Machine machine;
  machine.inter_latency_us = 0;
  const double of_fp32 = simulate(job, one, machine).intervals[0].end_us;
  machine.traffic.gradient_bytes = 2;
  EXPECT_DOUBLE_EQ(simulate(job, one, machine).intervals[0].end_us, of_fp32 / 2);
}

/// What an engine does not hide, its ranks wait for where they call it.
TEST(SimulatedEngine, ThatHidesNothingAddsItsCollectivesToTheStep) {
  const Job job = sharded_job();
  const Program program = *make_program(job);
  Machine machine;
  machine.traffic.hidden = 0;
  const Forecast forecast = simulate(job, program, machine);
  double held_us = 0;
  for (const double us : forecast.held_us) held_us += us;
  EXPECT_GT(held_us, 0);
  EXPECT_NEAR(forecast.step_us, forecast.compute_us + held_us, 1e-6 * forecast.step_us);
  machine.traffic.hidden = 1;
  EXPECT_LT(simulate(job, program, machine).step_us, forecast.step_us);
}

/// Tensor ranks that scatter a stage's output send it once, not once each.
TEST(SimulatedEngine, ThatScattersTransfersSendsAnOutputOnce) {
  Job job = sharded_job();
  job.world = 8;
  job.degree = 1;
  job.pipeline_degree = 2;
  job.tensor_degree = 4;
  std::vector<Program> programs(2);
  programs[1].stage = 1;
  programs[0].instructions.push_back({Op::send, 1, 0, 1, {}, {}, 1});
  programs[1].instructions.push_back({Op::receive, 1, 0, 1, {}, {}, 0});
  Machine machine;
  machine.ranks_per_node = 4;
  machine.inter_latency_us = 0;
  machine.intra_bandwidth = 1e30;
  const auto us = [&] { return simulate(job, programs, machine).stages[0].intervals[0].end_us; };
  const double of_all = us();
  machine.traffic.scatters_transfers = true;
  EXPECT_NEAR(us(), of_all / 4, 1e-9 * of_all);
}

TEST(SimulatedEngine, ThatFusesSumsOfGradientsDoesNotTakeTimeForThem) {
  const Job job = sharded_job();
  const Program program = *make_program(job);
  Machine machine;
  machine.memory_bandwidth = 1e6;
  const double apart_us = simulate(job, program, machine).compute_us;
  machine.traffic.fuses_sums = true;
  EXPECT_LT(simulate(job, program, machine).compute_us, apart_us);
}

/// A library that pipelines segments: the least over their length of its latency and bytes.
TEST(SimulatedEngine, AllReducesByItsRateOverSize) {
  EXPECT_DOUBLE_EQ(pipelined_us(0, 50e9, 100), 100);
  EXPECT_DOUBLE_EQ(pipelined_us(1e9, 1e9, 0), 1e6);
  EXPECT_DOUBLE_EQ(pipelined_us(9e6, 1e9, 1600), (40 + 94.868329805051381) * (40 + 94.868329805051381));
}

/// Links that cost nothing: nobody waits, and calls are all that is left beside computing.
TEST(SimulatedCalls, HoldTheirCaller) {
  Job job = sharded_job();
  Machine machine;
  machine.intra_bandwidth = machine.inter_bandwidth = 1e18;
  machine.intra_latency_us = machine.inter_latency_us = 0;
  const Program program = *make_program(job);
  const auto calls = std::count_if(program.instructions.begin(), program.instructions.end(),
                                   [](const Instruction& instruction) { return instruction.lane > 0; });
  const double without_us = simulate(job, program, machine).step_us;
  machine.call_us = 1000;
  const Forecast forecast = simulate(job, program, machine);
  EXPECT_GT(calls, 20);
  EXPECT_NEAR(forecast.step_us - without_us, 1000.0 * static_cast<double>(calls), 1);
  EXPECT_NEAR(forecast.exposed_us, 0, 1);
  for (size_t i = 1; i < program.instructions.size(); ++i) {
    if (program.instructions[i].lane == 0) continue;
    EXPECT_GE(forecast.intervals[i].begin_us, forecast.intervals[i - 1].begin_us + 1000) << i;
  }
}

}  // namespace
}  // namespace loom::testing
