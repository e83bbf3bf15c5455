// Pipelines: schedules, programs of all stages, and what the verifier says of those that do not fit together.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "program/generate.h"
#include "program/schedule.h"
#include "program/simulate.h"
#include "program/verify.h"
#include "support.h"

namespace loom::testing {
namespace {

using namespace loom::program;  // everything here is about it

Job pipeline_job(int stages, int microbatches, Schedule schedule = Schedule::one_f_one_b, int parts = 1) {
  Job job;
  job.spec.vocabulary = 50;
  job.spec.context = 16;
  job.spec.width = 64;
  job.spec.layers = 14;
  job.spec.heads = 2;
  job.spec.feed_forward = 256;
  job.batch = 2;
  job.tokens = 16;
  job.world = job.pipeline_degree = stages;
  job.microbatches = microbatches;
  job.schedule = schedule;
  job.virtual_stages = parts;
  return job;
}

Status verified(const Job& job) {
  for (const bool trains : {true, false}) {
    const Result<std::vector<Program>> programs = make_programs(job, trains);
    LOOM_TRY(programs.status());
    for (const Program& program : *programs) LOOM_TRY(verify(job, program, plan_memory(program)));
    LOOM_TRY(verify_pipeline(*programs));
  }
  return {};
}

/// "F0 F1 B0", with the part behind a point where a stage has several.
std::string text_of(const std::vector<Pass>& passes, bool parts = false) {
  std::string text;
  for (const Pass& pass : passes) {
    text += fmt::format("{}{}{}", text.empty() ? "" : " ", pass.forward ? "F" : "B", pass.microbatch);
    if (parts) text += fmt::format(".{}", pass.part);
  }
  return text;
}

TEST(Schedule, SimpleIsAllForwardThenAllBackward) {
  Job job = pipeline_job(2, 4, Schedule::simple);
  EXPECT_EQ(text_of(simple_schedule(job, 0)), "F0 F1 F2 F3 B0 B1 B2 B3");
  EXPECT_EQ(most_active(job), 4);
  job.active_microbatches = 3;
  EXPECT_EQ(text_of(simple_schedule(job, 1)), "F0 F1 F2 B0 B1 B2 F3 B3");
  EXPECT_EQ(most_active(job), 3);
}

TEST(Schedule, OneForwardOneBackwardHoldsAStageLessEachStage) {
  Job job = pipeline_job(3, 4);
  EXPECT_EQ(text_of(one_f_one_b_schedule(job, 0)), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(text_of(one_f_one_b_schedule(job, 1)), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(text_of(one_f_one_b_schedule(job, 2)), "F0 B0 F1 B1 F2 B2 F3 B3");
  EXPECT_EQ(most_active(job), 3);
  job.active_microbatches = 2;
  EXPECT_EQ(text_of(one_f_one_b_schedule(job, 0)), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(most_active(job), 2);
}

TEST(Schedule, InterleavedGoesThroughAllPartsOfARank) {
  const Job job = pipeline_job(2, 4, Schedule::interleaved, 2);
  EXPECT_EQ(text_of(interleaved_schedule(job, 1), true),
            "F0.1 F1.1 F0.3 B0.3 F1.3 B1.3 F2.1 B0.1 F3.1 B1.1 F2.3 B2.3 F3.3 B3.3 B2.1 B3.1");
  EXPECT_DOUBLE_EQ(ideal_bubble(job), 1.0 / 9);
}

TEST(Schedule, EveryPassComesOnceAndBackwardInOrder) {
  for (const Schedule schedule : {Schedule::simple, Schedule::one_f_one_b, Schedule::interleaved})
    for (const int stages : {2, 3, 4})
      for (const int rounds : {1, 2, 3}) {
        const int parts = schedule == Schedule::interleaved ? 3 : 1;
        const Job job = pipeline_job(stages, stages * rounds, schedule, parts);
        for (int stage = 0; stage < stages; ++stage) {
          const std::vector<Pass> passes = schedule_of(job, stage);
          ASSERT_EQ(passes.size(), static_cast<size_t>(2 * parts * stages * rounds));
          std::vector<int> last(stages * parts, -1);  // backward microbatch of each part
          for (size_t i = 0; i < passes.size(); ++i) {
            EXPECT_EQ(std::count(passes.begin(), passes.end(), passes[i]), 1);
            EXPECT_EQ(passes[i].part % stages, stage);
            if (passes[i].forward) continue;
            EXPECT_EQ(passes[i].microbatch, ++last[passes[i].part]);
            const Pass forward{true, passes[i].part, passes[i].microbatch};
            EXPECT_LT(static_cast<size_t>(std::find(passes.begin(), passes.end(), forward) - passes.begin()),
                      i);
          }
        }
      }
}

TEST(Pipeline, EveryLayoutIsRight) {
  int checked = 0;
  for (const Schedule schedule : {Schedule::simple, Schedule::one_f_one_b, Schedule::interleaved})
    for (const int stages : {1, 2, 3, 4, 8})
      for (const int rounds : {1, 2})
        for (const int degree : {1, 2, 4})
          for (const bool flag : {false, true}) {
            if (schedule == Schedule::interleaved && stages == 1) continue;
            Job job = pipeline_job(stages, stages * rounds, schedule);
            job.virtual_stages = schedule == Schedule::interleaved ? 2 : 1;
            job.degree = degree;
            job.world = stages * degree * (flag ? 2 : 1);
            job.strict = flag;
            job.spec.tied = flag || degree == 2;
            job.checkpoint_group = degree - 1;
            job.prefetch = rounds - 1;
            job.shard_optimizer_only = degree == 4;
            job.placement = flag ? "spread" : "PDT";
            const Status status = verified(job);
            ASSERT_TRUE(status.ok()) << status.message() << "\n"
                                     << schedule_name(schedule) << ", stages " << stages << " rounds "
                                     << rounds << " degree " << degree << " flag " << flag;
            ++checked;
          }
  EXPECT_EQ(checked, (3 * 5 - 1) * 2 * 3 * 2);
}

int count_of(const Program& program, Op op, int unit) {
  return static_cast<int>(std::count_if(program.instructions.begin(), program.instructions.end(),
                                        [&](const Instruction& i) { return i.op == op && i.unit == unit; }));
}

TEST(Pipeline, RowsOfTheEmbeddingJoinTheSumWithoutAnAddition) {
  for (const bool shards_optimizer : {false, true})
    for (const bool tied : {false, true}) {
      Job job = pipeline_job(2, 4);
      job.spec.tied = tied;
      job.shard_optimizer_only = shards_optimizer;
      if (shards_optimizer) job.world = 4, job.degree = 2;
      LOOM_ASSERT_OK(verified(job));
      EXPECT_EQ(count_of(*make_program(job), Op::accumulate, 0), 0);
      EXPECT_EQ(count_of(*make_program(job), Op::accumulate, 1), 3);
      job.strict = true;
      LOOM_ASSERT_OK(verified(job));
      EXPECT_EQ(count_of(*make_program(job), Op::accumulate, 0), 3);
    }
  // A norm's gradient is overwritten, so the embedding's must be added up.
  Job job = pipeline_job(2, 4);
  job.spec.embedding_norm = true;
  LOOM_ASSERT_OK(verified(job));
  EXPECT_EQ(count_of(*make_program(job), Op::accumulate, 0), 3);
}

TEST(Pipeline, RowsOfTheEmbeddingThatOverwriteOrJoinAnotherSumAreFound) {
  const Job job = pipeline_job(2, 4);
  const auto with_gradient = [&](int microbatch, const auto& change) {
    Program program = *make_program(job);
    const BufferId of_block = program.instructions[program.instructions.size() - 1].buffer(Role::shard);
    for (Instruction& i : program.instructions)
      if (i.op == Op::backward && i.unit == 0 && i.microbatch == microbatch)
        for (Use& use : i.uses)
          if (use.role == Role::gradient) change(use, of_block);
    connect(job.in_flight, program);
    return verify(job, program, plan_memory(program));
  };
  EXPECT_TRUE(fails_with(with_gradient(2, [](Use& use, BufferId) { use.reads = false; }),
                         Code::internal_error, "the gradient of unit 0 has microbatch 0 0 times"));
  EXPECT_TRUE(fails_with(with_gradient(2, [](Use& use, BufferId of_block) { use.buffer = of_block; }),
                         Code::internal_error,
                         "adds to what is not the sum of this unit's gradients so far"));
}

TEST(Pipeline, RandomLayoutsUpTo512RanksAreRight) {
  std::mt19937 random(7);
  const auto pick = [&](std::initializer_list<int> choices) {
    return choices.begin()[random() % choices.size()];
  };
  for (int trial = 0; trial < 40; ++trial) {
    Job job = pipeline_job(pick({2, 4, 8, 16}), 1, static_cast<Schedule>(pick({0, 1, 2})));
    job.spec.layers = 30;
    job.virtual_stages = job.schedule == Schedule::interleaved ? 2 : 1;
    job.microbatches =
        job.schedule == Schedule::interleaved ? job.pipeline_degree * pick({1, 2}) : pick({1, 3, 6, 11});
    job.degree = pick({1, 2, 8});
    job.spec.heads = 8;
    job.tensor_degree = pick({1, 1, 2, 4});
    job.divides_rows = job.tensor_degree > 1 && pick({0, 1}) == 1;
    job.prescaled_batch = job.tensor_degree != 2 || pick({0, 1}) == 1;
    const int copy = job.pipeline_degree * job.degree * job.tensor_degree;
    job.world = copy * std::min(pick({1, 2, 4}), 512 / copy);
    job.offload = pick({0, 1, 2}) == 0;
    job.strict = pick({0, 1}) == 1;
    job.spec.tied = pick({0, 1}) == 1;
    job.checkpoint_group = pick({0, 1, 3});
    job.prefetch = pick({0, 1, 2});
    job.in_flight = pick({1, 3});
    job.active_microbatches = job.schedule == Schedule::interleaved ? 0 : pick({0, 1, 2, 5});
    job.spec.causal = trial % 2 == 0;
    job.spec.padding = 0;
    job.precision = pick({0, 1}) == 1 ? Precision::fp16 : Precision::fp32;
    job.live_elements = pick({0, 100000});
    job.shard_optimizer_only = job.degree > 1 && pick({0, 1, 2}) == 0;
    // Cuts anywhere, every part with at least one unit.
    std::vector<int> units;
    for (int unit = 1; unit < job.units(); ++unit) units.push_back(unit);
    std::shuffle(units.begin(), units.end(), random);
    units.resize(static_cast<size_t>(job.pipeline_degree * job.virtual_stages) - 1);
    units.push_back(0);
    std::sort(units.begin(), units.end());
    job.first_units = units;
    const Status status = verified(job);
    ASSERT_TRUE(status.ok()) << "trial " << trial << ": " << status.message();
  }
}

/// Applies a change to right programs, and gives what the verifier says of them together.
template <typename F>
Status broken(F&& change, Job job = pipeline_job(3, 4)) {
  std::vector<Program> programs = *make_programs(job);
  change(programs);
  for (const Program& program : programs) LOOM_TRY(verify(job, program, plan_memory(program)));
  return verify_pipeline(programs);
}

ptrdiff_t find(const Program& program, Op op, int microbatch) {
  for (size_t i = 0; i < program.instructions.size(); ++i)
    if (program.instructions[i].op == op && program.instructions[i].microbatch == microbatch)
      return static_cast<ptrdiff_t>(i);
  ADD_FAILURE() << "no " << op_name(op);
  return 0;
}

void erase(Program& program, ptrdiff_t at) {
  program.instructions.erase(program.instructions.begin() + at);
  connect(2, program);
}

TEST(PipelineVerifier, ALostSendIsFound) {
  EXPECT_TRUE(fails_with(broken([](auto& programs) { erase(programs[0], find(programs[0], Op::send, 2)); }),
                         Code::internal_error,
                         "(receive of unit 4, microbatch 2) waits for what stage 0 never sends"));
  EXPECT_TRUE(fails_with(
      broken([](auto& programs) { erase(programs[2], find(programs[2], Op::send_back, 1)); }),
      Code::internal_error, "(receive_back of unit 9, microbatch 1) waits for what stage 2 never sends"));
}

/// Blocks without a causal order must know where texts end, on stages without other use for tokens, too.
TEST(PipelineVerifier, BlocksThatDoNotKnowWhereTextsEndAreFound) {
  const auto without_batch = [](Op op, int tensor, bool exchanged) {
    Job job = pipeline_job(3, 4);
    job.spec.causal = false;
    job.spec.padding = 0;
    job.spec.heads = 4;
    job.world = job.pipeline_degree * tensor;
    job.tensor_degree = tensor;
    job.prescaled_batch = !exchanged;
    job.batch = 2;
    return broken(
        [&](auto& programs) {
          std::vector<Instruction>& list = programs[1].instructions;
          if (exchanged) {
            EXPECT_EQ(list[0].op, Op::tensor_gather);
            erase(programs[1], 0);
          }
          for (Instruction& i : list)
            if (i.op == op) std::erase_if(i.uses, [](const Use& use) { return use.role == Role::batch; });
        },
        job);
  };
  for (const int tensor : {1, 2})
    for (const Op op : {Op::forward, Op::backward})
      EXPECT_TRUE(fails_with(without_batch(op, tensor, false), Code::internal_error,
                             "does not know where texts end"));
  EXPECT_TRUE(fails_with(without_batch(Op::norm, 2, true), Code::internal_error,
                         "piece 1): reads the sequences that one tensor rank was given"));
}

TEST(PipelineVerifier, ALostReceiveIsFound) {
  const Status status = broken([](auto& programs) {
    // The value is taken from the microbatch before, which the verifier of one stage finds first.
    erase(programs[1], find(programs[1], Op::receive, 3));
  });
  EXPECT_TRUE(fails_with(status, Code::internal_error, "reads x 4.3, which nobody has written"));
}

TEST(PipelineVerifier, ASwappedPairIsFound) {
  const Status status = broken([](auto& programs) {
    std::vector<Instruction>& list = programs[0].instructions;
    std::swap(list[find(programs[0], Op::send, 0)], list[find(programs[0], Op::send, 1)]);
    // So that what is sent is there.
    std::rotate(list.begin() + find(programs[0], Op::send, 1),
                list.begin() + find(programs[0], Op::send, 1) + 1,
                list.begin() + find(programs[0], Op::send, 0));
    connect(2, programs[0]);
  });
  EXPECT_TRUE(
      fails_with(status, Code::internal_error, "would receive what is sent as number 0 between the two"))
      << status.message();
}

TEST(PipelineVerifier, ABufferReusedTooEarlyIsFound) {
  const Status status = broken([](auto& programs) {
    // The next microbatch is computed into what is still being sent.
    Program& program = programs[0];
    const BufferId first = program.instructions[find(program, Op::send, 0)].uses[0].buffer;
    const BufferId second = program.instructions[find(program, Op::send, 1)].uses[0].buffer;
    for (Instruction& instruction : program.instructions)
      for (Use& use : instruction.uses)
        if (use.buffer == second) use.buffer = first;
  });
  EXPECT_TRUE(fails_with(status, Code::internal_error, "(send of unit 4, microbatch 0) may still read it"))
      << status.message();
}

TEST(PipelineVerifier, AnotherValueThanSaidIsFound) {
  const Status status = broken([](auto& programs) {
    Program& program = programs[0];
    program.instructions[find(program, Op::send, 1)].uses[0].buffer =
        program.instructions[find(program, Op::send, 0)].uses[0].buffer;
  });
  EXPECT_TRUE(fails_with(status, Code::internal_error, "sends another value than it says"));
}

TEST(PipelineVerifier, WaitingForEachOtherIsFound) {
  const Status status = broken(
      [](auto& programs) {
        // The first stage wants the derivative before it sends the output.
        std::vector<Instruction>& list = programs[0].instructions;
        const ptrdiff_t send = find(programs[0], Op::send, 0), wait = find(programs[0], Op::backward, 0);
        std::rotate(list.begin() + send, list.begin() + send + 1, list.begin() + wait + 1);
        connect(2, programs[0]);
      },
      pipeline_job(2, 1));
  EXPECT_TRUE(fails_with(status, Code::internal_error, "no stage can go on: stage 0, instruction"));
}

TEST(PipelineVerifier, ATieOnOneEndAloneIsFound) {
  Job job = pipeline_job(2, 2);
  const Status status = broken(
      [](auto& programs) {
        for (size_t i = 0; i < programs[1].instructions.size(); ++i)
          if (programs[1].instructions[i].op == Op::tie) erase(programs[1], static_cast<ptrdiff_t>(i));
      },
      job);
  EXPECT_TRUE(fails_with(status, Code::internal_error, "the gradient of unit 0 is only one half of it"))
      << status.message();
}

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

/// The middle one of three stages sends to both others at once.
TEST(PipelineSimulator, BothDirectionsShareANodesLink) {
  const Job job = pipeline_job(3, 1);
  std::vector<Program> programs(3);
  const auto add = [&](int stage, Op op, int unit, int lane, int peer) {
    programs[static_cast<size_t>(stage)].stage = stage;
    programs[static_cast<size_t>(stage)].instructions.push_back({op, unit, 0, lane, {}, {}, -1, peer});
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
  EXPECT_DOUBLE_EQ(std::min(on, back), one_us);
  EXPECT_DOUBLE_EQ(std::max(on, back), 2 * one_us);
  machine.ranks_per_node = 3;  // of one node's ranks none has to wait for the other
  EXPECT_DOUBLE_EQ(ends().first, ends().second);
}

/// Both stages have a gather on the way when the first one sends: its link is taken.
TEST(PipelineSimulator, TransfersAndCollectivesShareANodesLink) {
  Job job = pipeline_job(2, 1);
  job.world = 4;
  job.degree = 2;
  std::vector<Program> programs(2);
  programs[1].stage = 1;
  for (const int stage : {0, 1}) {
    std::vector<Instruction>& list = programs[static_cast<size_t>(stage)].instructions;
    list.push_back({Op::gather, 8 * stage + 1, -1, 1, {}, {}});
    list.push_back({stage == 0 ? Op::send : Op::receive, 7, 0, 2, {}, {}, -1, 1 - stage});
  }
  Machine machine;
  machine.intra_latency_us = machine.inter_latency_us = 0;
  const auto intervals = [&] { return simulate(job, programs, machine).stages[1].intervals; };
  const double message_us = 32.0 * 64 * 4 / machine.inter_bandwidth * 1e6;
  EXPECT_GT(intervals()[0].end_us, 0);
  EXPECT_DOUBLE_EQ(intervals()[1].begin_us, intervals()[0].end_us);
  EXPECT_DOUBLE_EQ(intervals()[1].end_us, intervals()[0].end_us + message_us);
  job.placement = "spread";
  machine.ranks_per_node = 2;  // a stage is a node: gathers stay inside
  EXPECT_EQ(intervals()[1].begin_us, 0);
}

TEST(Pipeline, OptimizerShardsAloneMoveAStepsTrafficNotAMicrobatchs) {
  Job job = pipeline_job(2, 4);
  job.world = 4;
  job.degree = 2;
  const auto count = [&](Op op) {
    const Program program = *make_program(job, 0);
    return std::count_if(program.instructions.begin(), program.instructions.end(),
                         [&](const Instruction& instruction) { return instruction.op == op; });
  };
  EXPECT_EQ(count(Op::reduce_scatter), 8 * 4);
  job.shard_optimizer_only = true;
  EXPECT_EQ(count(Op::reduce_scatter), 8);
  EXPECT_EQ(count(Op::gather), 8);
}

TEST(PipelineMemory, OneForwardOneBackwardKeepsFewerActivations) {
  const auto activations = [](Schedule schedule, int active) {
    Job job = pipeline_job(2, 16, schedule);
    job.active_microbatches = active;
    return plan_memory(*make_program(job, 0)).peak[static_cast<int>(Category::activations)];
  };
  EXPECT_LT(activations(Schedule::one_f_one_b, 0), activations(Schedule::simple, 0) / 4);
  EXPECT_LT(activations(Schedule::simple, 4), activations(Schedule::simple, 0) / 2);
  EXPECT_LT(activations(Schedule::one_f_one_b, 1), activations(Schedule::one_f_one_b, 0));
}

TEST(PipelineJob, SaysWhatCannotBe) {
  Job job = pipeline_job(32, 4);
  EXPECT_TRUE(fails_with(make_program(job), Code::invalid_argument,
                         "32 stages of a model of 16 units (the embedding, 14 blocks, the head) leave a "
                         "stage without units: must be at most 16 stages"));
  job = pipeline_job(2, 3, Schedule::interleaved, 2);
  EXPECT_TRUE(fails_with(make_program(job), Code::invalid_argument,
                         "microbatches is 3, must be a multiple of pipeline_degree, 2"));
  job = pipeline_job(2, 2, Schedule::one_f_one_b, 2);
  EXPECT_TRUE(fails_with(make_program(job), Code::invalid_argument, "virtual_stages is 2, must be 1"));
  job = pipeline_job(2, 2);
  job.shard_optimizer_only = true;
  EXPECT_TRUE(fails_with(make_program(job), Code::invalid_argument, "shard_optimizer_state needs a sharded"));
  job = pipeline_job(2, 2);
  job.first_units = {0, 0};
  EXPECT_TRUE(fails_with(make_program(job), Code::invalid_argument, "part 0 of the partition has no units"));
  job.first_units = {0, 16};
  EXPECT_TRUE(fails_with(make_program(job), Code::invalid_argument, "below 16"));
  job = pipeline_job(4, 8, Schedule::interleaved, 2);
  job.active_microbatches = 2;
  EXPECT_TRUE(
      fails_with(make_program(job), Code::invalid_argument, "active_microbatches is 2, must be at least"));
  EXPECT_TRUE(
      fails_with(make_program(pipeline_job(2, 2), 2), Code::invalid_argument, "there is no stage 2 of 2"));
}

}  // namespace
}  // namespace loom::testing
