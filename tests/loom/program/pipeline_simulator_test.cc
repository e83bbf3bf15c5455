// What the simulator says of pipelines: bubbles, and transfers beside computing and collectives.
#include <algorithm>

#include "program/pipelines.h"
#include "program/schedule.h"
#include "program/simulate.h"

namespace loom::testing {
namespace {

/// A machine on which every unit but the ends costs something, and links nothing.
Machine fast_links() {
  Machine machine;
  machine.flops = 1e9;
  machine.intra_bandwidth = machine.memory_bandwidth = 1e15;
  machine.intra_latency_us = 0;
  machine.ranks_per_node = 1024;
  return machine;
}

TEST(PipelineSimulator, TheBubbleOfEqualStagesIsTheFormulas) {
  for (const int stages : {2, 4})
    for (const int microbatches : {4, 8}) {
      for (const Schedule schedule : {Schedule::simple, Schedule::one_f_one_b, Schedule::interleaved}) {
        Job job = pipeline_job(stages, microbatches, schedule);
        job.virtual_stages = schedule == Schedule::interleaved ? 2 : 1;
        job.spec.vocabulary = 1;  // a head that costs nothing
        job.spec.layers = 8;
        job.first_units.clear();
        const int parts = stages * job.virtual_stages;
        for (int part = 0; part < parts; ++part)
          job.first_units.push_back(part == 0 ? 0 : part * 8 / parts + 1);
        const PipelineForecast forecast = simulate(job, *make_programs(job), fast_links());
        EXPECT_NEAR(forecast.bubble, ideal_bubble(job), 0.01 * ideal_bubble(job) + 0.002)
            << schedule_name(schedule) << " " << stages << " " << microbatches;
      }
    }
}

TEST(PipelineSimulator, TransfersHideBehindComputing) {
  Job job = pipeline_job(4, 16);
  Machine machine = fast_links();
  const double free = simulate(job, *make_programs(job), machine).step_us;
  // A transfer takes a fifth of a stage's forward pass.
  machine.intra_bandwidth = job.batch * job.tokens * job.spec.width * 4.0 /
                            (0.2 * 4 * compute_us(job, machine, 1, Op::forward) * 1e-6);
  const double slow = simulate(job, *make_programs(job), machine).step_us;
  EXPECT_LT(slow, 1.1 * free);
  job.prefetch = 0;
  EXPECT_GE(simulate(job, *make_programs(job), machine).step_us, slow);
}

/// Where a transfer takes half a forward pass, 1F1B waits for each; two spare microbatches hide nearly all.
TEST(PipelineSimulator, SpareMicrobatchesHideSlowTransfers) {
  Job job = pipeline_job(4, 16);
  job.spec.vocabulary = 1;  // a head that costs nothing
  job.spec.layers = 8;
  job.first_units = {0, 3, 5, 7};
  Machine machine = fast_links();
  machine.intra_bandwidth = job.batch * job.tokens * job.spec.width * 4.0 /
                            (0.5 * 2 * compute_us(job, machine, 1, Op::forward) * 1e-6);
  const auto bubble = [&](int active) {
    job.active_microbatches = active;
    EXPECT_TRUE(verified(job).ok());
    return simulate(job, *make_programs(job), machine).bubble;
  };
  const double usual = bubble(0), ideal = ideal_bubble(job);
  EXPECT_EQ(bubble(4), usual);
  EXPECT_GT(usual, 1.8 * ideal);
  EXPECT_LT(bubble(4 + 2), 1.5 * ideal);
  EXPECT_LT(bubble(2 * 4 - 1), bubble(4 + 2));
}

/// The middle one of three stages sends to both others at once.
TEST(PipelineSimulator, BothDirectionsShareANodesLink) {
  const Job job = pipeline_job(3, 1);
  std::vector<Program> programs(3);
  const auto add = [&](int stage, Op op, int unit, int lane, int peer) {
    programs[static_cast<size_t>(stage)].stage = stage;
    programs[static_cast<size_t>(stage)].instructions.push_back({op, unit, 0, lane, {}, {}, peer});
  };
  add(0, Op::receive_back, 4, 1, 1);
  add(1, Op::send, 9, 1, 2);
  add(1, Op::send_back, 4, 2, 0);
  add(2, Op::receive, 9, 1, 1);
  Machine machine;
  machine.intra_latency_us = machine.inter_latency_us = 0;
  const auto ends = [&] {
    const PipelineForecast forecast = simulate(job, programs, machine);
    return std::pair{forecast.stages[1].intervals[0].end_us, forecast.stages[1].intervals[1].end_us};
  };
  const double one_us = 32.0 * 64 * 4 / machine.inter_bandwidth * 1e6;
  const auto [on, back] = ends();
  EXPECT_DOUBLE_EQ(on, 2 * one_us);
  EXPECT_DOUBLE_EQ(back, 2 * one_us);
  machine.ranks_per_node = 3;  // of one node's ranks none has to wait for the other
  EXPECT_DOUBLE_EQ(ends().first, 32.0 * 64 * 4 / machine.intra_bandwidth * 1e6);
  EXPECT_DOUBLE_EQ(ends().first, ends().second);
}

/// A link served what was issued first to its end: a transfer waited for all gradients that were on their
/// way, and a pipeline of eight stages for the gradients of each stage in turn.
TEST(PipelineSimulator, TransfersShareALinkAndDoNotQueueBehindGradients) {
  Job job = pipeline_job(2, 1);
  job.world = 4;
  job.degree = 2;
  std::vector<Program> programs(2);
  programs[1].stage = 1;
  for (const int stage : {0, 1}) {
    std::vector<Instruction>& list = programs[static_cast<size_t>(stage)].instructions;
    list.push_back({Op::reduce_scatter, 8 * stage + 1, -1, 1, {}, {}});
    list.push_back({stage == 0 ? Op::send : Op::receive, 7, 0, 2, {}, {}, 1 - stage});
  }
  Machine machine;
  machine.intra_latency_us = machine.inter_latency_us = 0;
  const auto intervals = [&] { return simulate(job, programs, machine).stages[1].intervals; };
  const double message_us = 32.0 * 64 * 4 / machine.inter_bandwidth * 1e6;
  const double gradients_us =
      4.0 * static_cast<double>(job.shard(job.held_units()[9])) / machine.inter_bandwidth * 1e6;
  ASSERT_GT(gradients_us, 2 * message_us);
  EXPECT_EQ(intervals()[1].begin_us, 0);
  EXPECT_DOUBLE_EQ(intervals()[1].end_us, 2 * message_us) << "at half the rate";
  EXPECT_NEAR(intervals()[0].end_us, gradients_us + message_us, 1e-6) << "no byte is lost";
  job.placement = "spread";
  machine.ranks_per_node = 2;  // a stage is a node: gradients stay inside
  EXPECT_DOUBLE_EQ(intervals()[1].end_us, 2 * message_us) << "two ranks send";
  EXPECT_LT(intervals()[0].end_us, gradients_us);
}

/// … and with it the fixed part of a step, which grew with the number of stages.
TEST(PipelineSimulator, GradientsOfOtherStagesDoNotHoldUpAPipeline) {
  Job job = pipeline_job(4, 8);
  job.world = 8;  // two replicas
  Machine machine = fast_links();
  machine.ranks_per_node = 1;
  machine.inter_latency_us = 0;
  machine.inter_bandwidth = 1e30;
  const double free_us = simulate(job, *make_programs(job), machine).step_us;
  const double gradients = 4.0 * 4 * static_cast<double>(job.shard(job.held_units()[1]));  // of a stage
  machine.inter_bandwidth = gradients / (free_us / 8 * 1e-6);  // an eighth of a step
  EXPECT_LT(simulate(job, *make_programs(job), machine).step_us, 1.4 * free_us);
}

/// Ranks that share cores took as long as if each had its own.
TEST(SharedCores, RanksTakeAsLongAsTheirWorkOnAllCores) {
  Job job = pipeline_job(1, 2);
  job.world = 8;
  const std::vector<Program> programs = *make_programs(job);
  Machine machine = fast_links();
  machine.ranks_per_node = 8;
  const double alone_us = simulate(job, programs, machine).step_us;
  machine.shared = {8, 8, 1};
  EXPECT_DOUBLE_EQ(simulate(job, programs, machine).step_us, alone_us) << "each has a core";
  machine.shared = {8, 2, 1};
  const PipelineForecast crowded = simulate(job, programs, machine);
  EXPECT_NEAR(crowded.step_us, 4 * alone_us, 0.01 * alone_us);
  EXPECT_NEAR(crowded.stages[0].compute_us, 4 * alone_us, 0.01 * alone_us);
}

/// Two stages on one core compute in turns, and wait for nothing: there is no bubble in what the core does.
TEST(SharedCores, AStageThatWaitsLeavesItsCoreToOthers) {
  const Job job = pipeline_job(2, 4);
  const std::vector<Program> programs = *make_programs(job);
  Machine machine = fast_links();
  machine.ranks_per_node = 2;
  const PipelineForecast apart = simulate(job, programs, machine);
  machine.shared = {2, 1, 1};
  const PipelineForecast crowded = simulate(job, programs, machine);
  const double work_us = apart.stages[0].compute_us + apart.stages[1].compute_us;
  EXPECT_NEAR(crowded.step_us, work_us, 0.01 * work_us);
  EXPECT_LT(crowded.step_us, 2 * apart.step_us);
}

}  // namespace
}  // namespace loom::testing
