// What the simulator makes of single collectives, against the formulas that it says it uses.
#include "program/simulate.h"

#include <gtest/gtest.h>

#include <algorithm>

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
