// Pipelines: schedules, programs of all stages, and what the verifier says of those that do not fit together.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "program/pipelines.h"
#include "program/schedule.h"

namespace loom::testing {
namespace {

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

// What was allowed beyond the number of stages used to change nothing, without a word.
TEST(Schedule, OneForwardOneBackwardBeginsTheSpareMicrobatchesThatItMay) {
  Job job = pipeline_job(3, 7);
  job.active_microbatches = 5;
  EXPECT_EQ(text_of(one_f_one_b_schedule(job, 0)), "F0 F1 F2 F3 F4 B0 F5 B1 F6 B2 B3 B4 B5 B6");
  EXPECT_EQ(text_of(one_f_one_b_schedule(job, 1)), "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 B5 B6");
  EXPECT_EQ(text_of(one_f_one_b_schedule(job, 2)), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6");
  EXPECT_EQ(most_active(job), 5);
  // As many as there are stages is the usual, and there are no more than there are.
  const auto all = [&](int active, int microbatches) {
    job.active_microbatches = active;
    job.microbatches = microbatches;
    std::string text;
    for (int stage = 0; stage < 3; ++stage) text += text_of(one_f_one_b_schedule(job, stage)) + "; ";
    return text;
  };
  EXPECT_EQ(all(3, 7), all(0, 7));
  EXPECT_EQ(all(9, 2), all(2, 2));
  EXPECT_EQ(all(9, 5), all(5, 5));
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
  int largest = 0, deep = 0;
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
    largest = std::max(largest, job.world);
    job.offload = pick({0, 1, 2}) == 0;
    job.strict = pick({0, 1}) == 1;
    job.spec.tied = pick({0, 1}) == 1;
    job.checkpoint_group = pick({0, 1, 3});
    job.prefetch = pick({0, 1, 2});
    job.in_flight = pick({1, 3});
    job.active_microbatches = job.schedule == Schedule::interleaved ? 0 : pick({0, 1, 2, 5, 20});
    deep += job.schedule == Schedule::one_f_one_b &&
            std::min(job.active_microbatches, job.microbatches) > job.pipeline_degree;
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
  EXPECT_EQ(largest, 512);
  EXPECT_GT(deep, 0) << "no trial had spare microbatches";
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
                         "(batch, microbatch 0): reads the sequences that one tensor rank was given"));
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

/// Of each stage, for every microbatch that is begun besides: what its units read and what its blocks save.
/// What it sends on is gone by then.
TEST(PipelineMemory, SpareMicrobatchesTakeTheirActivationsAndNothingElse) {
  Job job = pipeline_job(3, 16);
  const model::BufferSizes sizes = sizes_of(job);
  for (int stage = 0; stage < 3; ++stage) {
    job.active_microbatches = 0;
    const MemoryPlan usual = plan_memory(*make_program(job, stage));
    job.active_microbatches = 5;
    const MemoryPlan spare = plan_memory(*make_program(job, stage));
    const int more = std::array{2, 1, 0}[static_cast<size_t>(stage)];
    const Part part = parts_of(job)[static_cast<size_t>(stage)];
    int64_t each = 0;
    for (int unit = std::max(1, part.begin); unit < part.end; ++unit) each += sizes.activation;
    for (int unit = std::max(1, part.begin); unit < std::min(part.end, job.units() - 1); ++unit)
      each += sizes.saved;
    for (int category = 0; category < kCategories; ++category)
      EXPECT_EQ(spare.peak[category] - usual.peak[category],
                category == static_cast<int>(Category::activations) ? more * each : 0)
          << "stage " << stage << ", " << category_name(static_cast<Category>(category));
  }
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
