// Programs: all that the generator and the passes make is right, and what is broken is called by its name.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "program/generate.h"
#include "program/simulate.h"
#include "program/step_instructions.h"
#include "program/verify.h"
#include "support.h"

namespace loom::testing::program_test {
namespace {

using namespace loom::program;  // everything here is about it

Job small_job() {
  Job job;
  job.spec.vocabulary = 50;
  job.spec.context = 16;
  job.spec.width = 64;
  job.spec.layers = 5;
  job.spec.heads = 2;
  job.spec.feed_forward = 256;
  job.batch = 4;
  job.tokens = 16;
  return job;
}

Job sharded_job() {
  Job job = small_job();
  job.world = 4;
  job.degree = 2;
  job.microbatches = 3;
  return job;
}

Status verified(const Job& job) {
  const Result<Program> program = make_program(job);
  LOOM_TRY(program.status());
  return verify(job, *program, plan_memory(*program));
}

TEST(Program, EveryLayoutIsRight) {
  int checked = 0;
  for (const auto& [world, degree] : {std::pair{1, 1}, {2, 1}, {2, 2}, {6, 3}, {8, 4}, {8, 8}, {512, 64}})
    for (const int microbatches : {1, 2, 5})
      for (const int group : {0, 1, 2, 9})
        for (const int overlap : {0, 1, 3})
          for (const bool flag : {false, true}) {
            Job job = small_job();
            job.world = world;
            job.degree = degree;
            job.microbatches = microbatches;
            job.checkpoint_group = group;
            job.prefetch = overlap;
            job.in_flight = overlap + 1;
            job.strict = flag;
            job.spec.tied = flag;
            job.precision = flag ? Precision::fp32 : Precision::bf16;
            job.live_elements = overlap * 100000;
            job.offload = overlap != 1;
            job.loading_horizon = overlap;
            const Status status = verified(job);
            ASSERT_TRUE(status.ok()) << status.message() << "\nworld " << world << " degree " << degree
                                     << " microbatches " << microbatches << " group " << group << " overlap "
                                     << overlap << " flag " << flag;
            const Program evaluation = *make_evaluation(job);
            ASSERT_TRUE(verify(job, evaluation, plan_memory(evaluation)).ok());
            ++checked;
          }
  EXPECT_EQ(checked, 7 * 3 * 4 * 3 * 2);
}

/// Applies a change to a right program, and gives what the verifier says of it.
template <typename F>
Status broken(F&& change, const Job& job = sharded_job()) {
  Program program = *make_program(job);
  change(program);
  return verify(job, program, plan_memory(program));
}

size_t find(const Program& program, Op op, int unit, int microbatch) {
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.op == op && instruction.unit == unit && instruction.microbatch == microbatch) return i;
  }
  ADD_FAILURE() << "no " << op_name(op) << " of unit " << unit;
  return 0;
}

TEST(Verifier, ALostReductionIsFound) {
  const Status status = broken([](Program& program) {
    program.instructions.erase(program.instructions.begin() +
                               static_cast<ptrdiff_t>(find(program, Op::accumulate, 3, 1)));
    connect(2, program);
  });
  EXPECT_TRUE(fails_with(status, Code::internal_error, "the gradient of unit 3 has microbatch 1 0 times"));
}

TEST(Verifier, AReductionTwiceIsFound) {
  const Status status = broken([](Program& program) {
    const size_t at = find(program, Op::accumulate, 2, 2);
    program.instructions.insert(program.instructions.begin() + static_cast<ptrdiff_t>(at),
                                program.instructions[at]);
    connect(2, program);
  });
  EXPECT_TRUE(fails_with(status, Code::internal_error, "the gradient of unit 2 has microbatch 2 2 times"));
}

TEST(Verifier, AMissingBoundaryIsFound) {
  const Status status = broken([](Program& program) {
    program.instructions.erase(program.instructions.begin() +
                               static_cast<ptrdiff_t>(find(program, Op::all_reduce, 1, -1)));
    connect(2, program);
  });
  EXPECT_TRUE(
      fails_with(status, Code::internal_error, "the gradient of unit 1 is not reduced over the replicas"));
}

TEST(Verifier, AReductionOverReplicasBeforeTheBoundaryIsFound) {
  const Status status = broken([](Program& program) {
    Instruction early = program.instructions[find(program, Op::all_reduce, 1, -1)];
    const size_t at = find(program, Op::reduce_scatter, 1, 0) + 1;
    program.instructions.insert(program.instructions.begin() + static_cast<ptrdiff_t>(at), early);
    connect(2, program);
  });
  EXPECT_TRUE(fails_with(status, Code::internal_error, "reduced over the replicas already"));
}

/// Erases the first instruction of a kind.
auto without(Op op) {
  return [op](Program& program) {
    const auto found = std::ranges::find(program.instructions, op, &Instruction::op);
    ASSERT_NE(found, program.instructions.end());
    program.instructions.erase(found);
    connect(2, program);
  };
}

TEST(Verifier, AMicrobatchThatWasNotLoadedIsFound) {
  EXPECT_TRUE(fails_with(broken(without(Op::batch)), Code::internal_error,
                         "(forward of unit 0, microbatch 0): reads a microbatch that is not there"));
  const Status twice = broken([](Program& program) {
    program.instructions.insert(program.instructions.begin(),
                                program.instructions[find(program, Op::batch, -1, 1)]);
    connect(2, program);
  });
  EXPECT_TRUE(fails_with(twice, Code::internal_error, "copies a microbatch that is there already"));
}

TEST(Verifier, SquaresThatAreMissingAreFound) {
  EXPECT_TRUE(fails_with(broken(without(Op::squares)), Code::internal_error,
                         "(norm): does not see the squares of every unit's gradient"));
  const Status twice = broken([](Program& program) {
    const auto at = static_cast<ptrdiff_t>(find(program, Op::squares, 2, -1));
    program.instructions.insert(program.instructions.begin() + at,
                                program.instructions[static_cast<size_t>(at)]);
    connect(2, program);
  });
  EXPECT_TRUE(fails_with(twice, Code::internal_error, "that are counted already"));
}

TEST(Verifier, AStepWithoutNormOrLossIsFound) {
  for (const Op op : {Op::norm, Op::mean_loss}) EXPECT_FALSE(broken(without(op)).ok()) << op_name(op);
  EXPECT_TRUE(
      fails_with(broken(without(Op::mean_loss)), Code::internal_error, "norm and loss are not known"));
  const Status early = broken([](Program& program) {
    const auto norm = static_cast<ptrdiff_t>(find(program, Op::norm, -1, -1));
    std::swap(program.instructions[static_cast<size_t>(norm)],
              program.instructions[static_cast<size_t>(norm) + 1]);
    connect(2, program);
  });
  EXPECT_TRUE(fails_with(early, Code::internal_error, "(mean_loss): the norm is not known"));
  const Job job = sharded_job();
  Program evaluation = *make_evaluation(job);
  EXPECT_EQ(evaluation.instructions.back().op, Op::mean_loss);
  evaluation.instructions.pop_back();
  EXPECT_TRUE(fails_with(verify(job, evaluation, plan_memory(evaluation)), Code::internal_error,
                         "the mean loss is found 0 times"));
}

TEST(Verifier, AForgottenWaitIsFound) {
  const Status status =
      broken([](Program& program) { program.instructions[find(program, Op::forward, 2, 0)].after.clear(); });
  EXPECT_TRUE(fails_with(status, Code::internal_error, "(gather of unit 2) may still write it"));
}

TEST(Verifier, AGradientOverwrittenInFlightIsFound) {
  const Status status = broken([](Program& program) {
    const BufferId first =
        program.instructions[find(program, Op::reduce_scatter, 5, 0)].buffer(Role::gradient);
    for (const Op op : {Op::backward, Op::reduce_scatter})
      for (Use& use : program.instructions[find(program, op, 4, 0)].uses)
        if (use.role == Role::gradient) use.buffer = first;
  });
  EXPECT_TRUE(fails_with(status, Code::internal_error, "writes whole gradient 5.0 while"));
}

TEST(Verifier, AnotherUnitsParametersAreFound) {
  const Status status = broken([](Program& program) {
    const BufferId other = program.instructions[find(program, Op::forward, 1, 0)].buffer(Role::parameters);
    for (Use& use : program.instructions[find(program, Op::forward, 3, 0)].uses)
      if (use.role == Role::parameters) use.buffer = other;
  });
  EXPECT_TRUE(fails_with(status, Code::internal_error,
                         "(forward of unit 3, microbatch 0): computes with another unit's parameters"));
}

TEST(Verifier, SharedMemoryInUseIsFound) {
  const Job job = sharded_job();
  const Program program = *make_program(job);
  MemoryPlan memory = plan_memory(program);
  memory.offset[program.instructions[find(program, Op::forward, 1, 0)].buffer(Role::output)] =
      memory.offset[program.instructions[find(program, Op::forward, 1, 0)].buffer(Role::input)];
  EXPECT_TRUE(
      fails_with(verify(job, program, memory), Code::internal_error, "share memory and are in use together"));
}

Job divided_job(bool divides_rows) {
  Job job = small_job();
  job.spec.heads = 4;
  job.world = 8;
  job.degree = 2;
  job.tensor_degree = 2;
  job.microbatches = 2;
  job.divides_rows = divides_rows;
  job.prescaled_batch = !divides_rows;
  return job;
}

TEST(Verifier, DividedLayoutsAreRight) {
  int checked = 0;
  for (const int tensor : {2, 4})
    for (const int data : {1, 2, 64})
      for (const int shard : {1, 2})
        for (const bool divides_rows : {false, true})
          for (const int group : {0, 2}) {
            if (data % shard != 0) continue;
            Job job = divided_job(divides_rows);
            job.world = tensor * data;
            job.degree = shard;
            job.tensor_degree = tensor;
            job.checkpoint_group = group;
            job.spec.tied = group == 0;
            const Status status = verified(job);
            ASSERT_TRUE(status.ok()) << status.message() << "\n" << tensor << data << shard << divides_rows;
            const Program evaluation = *make_evaluation(job);
            ASSERT_TRUE(verify(job, evaluation, plan_memory(evaluation)).ok());
            ++checked;
          }
  EXPECT_EQ(checked, 2 * 5 * 2 * 2);
}

Status broken_exchange(bool divides_rows, const std::function<void(Program&)>& change) {
  return broken(
      [&](Program& program) {
        change(program);
        connect(2, program);
      },
      divided_job(divides_rows));
}

void erase(Program& program, size_t at) {
  program.instructions.erase(program.instructions.begin() + static_cast<ptrdiff_t>(at));
}

TEST(Verifier, ALostExchangeIsFound) {
  using model::Kernel;
  const Job whole = divided_job(false), divided = divided_job(true);
  EXPECT_TRUE(fails_with(broken_exchange(false,
                                         [&](Program& program) {
                                           erase(program, find_step(whole, program, Op::forward, 2,
                                                                    Kernel::all_reduce));
                                         }),
                         Code::internal_error, "comes when step"));
  // What is gathered without its exchange was never written; pointing at the rank's own rows is worse.
  EXPECT_TRUE(fails_with(
      broken_exchange(
          true,
          [&](Program& program) {
            const size_t at = find_step(divided, program, Op::forward, 2, Kernel::gather);
            const BufferId own = program.instructions[at].buffer(Role::input),
                           all = program.instructions[at].buffer(Role::output);
            for (Use& use :
                 program.instructions[find_step(divided, program, Op::forward, 2, Kernel::linear)].uses)
              if (use.buffer == all) use.buffer = own;
          }),
      Code::internal_error, "does not see \"gathered rows\""));
  EXPECT_TRUE(fails_with(
      broken_exchange(true,
                      [](Program& program) { erase(program, find(program, Op::tensor_gradients, 3, -1)); }),
      Code::internal_error, "gradient of block 2 was not summed over the tensor ranks"));
  EXPECT_TRUE(fails_with(broken_exchange(true, [](Program& program) { erase(program, 0); }),
                         Code::internal_error, "reads the sequences that one tensor rank was given"));
}

TEST(Verifier, AMissingStepAndASumTwiceAreFound) {
  using model::Kernel;
  const Job whole = divided_job(false);
  EXPECT_TRUE(fails_with(broken_exchange(false,
                                         [&](Program& program) {
                                           erase(program, find_step(whole, program, Op::backward, 2,
                                                                    Kernel::norm_gradient, 1));
                                         }),
                         Code::internal_error, "backward of unit 2, microbatch 0, has"));
  EXPECT_TRUE(fails_with(
      broken_exchange(false,
                      [&](Program& program) {
                        const size_t at = find_step(whole, program, Op::forward, 2, Kernel::all_reduce);
                        program.instructions.insert(program.instructions.begin() + static_cast<ptrdiff_t>(at),
                                                    Instruction(program.instructions[at]));
                      }),
      Code::internal_error, "comes when step"));
  EXPECT_TRUE(fails_with(
      broken([](Program& program) { ++program.instructions[find(program, Op::backward, 2, 1)].first; }),
      Code::internal_error, "comes when step 0 is due"));
}

TEST(Verifier, AWorkspaceThatAnotherPassHasUsedMeanwhileIsFound) {
  const Job whole = divided_job(false);
  const Status status = broken_exchange(false, [&](Program& program) {
    // Goes on with what an exchange was put before; another block's backward comes between.
    const size_t at = find_step(whole, program, Op::backward, 2, model::Kernel::linear_weight);
    const auto other =
        program.instructions.begin() + static_cast<ptrdiff_t>(find(program, Op::backward, 1, 0));
    std::rotate(program.instructions.begin() + static_cast<ptrdiff_t>(at), other, other + 1);
  });
  EXPECT_TRUE(
      fails_with(status, Code::internal_error, "goes on with a workspace that another pass has used"));
}

TEST(Verifier, AGradientThatIsSummedOverTheTensorRanksTwiceIsFound) {
  const Status status = broken_exchange(true, [](Program& program) {
    const size_t at = find(program, Op::tensor_gradients, 3, -1);
    program.instructions.insert(program.instructions.begin() + static_cast<ptrdiff_t>(at),
                                Instruction(program.instructions[at]));
  });
  EXPECT_TRUE(fails_with(status, Code::internal_error, "sums a gradient over the tensor ranks twice"));
}

TEST(Verifier, AnExchangeOfAnotherKindIsFound) {
  const Job divided = divided_job(true);
  const Status status = broken_exchange(true, [&](Program& program) {
    program.instructions[find_step(divided, program, Op::forward, 2, model::Kernel::reduce_scatter)].op =
        Op::tensor_gather;
  });
  EXPECT_TRUE(fails_with(status, Code::internal_error, "stands where the recipe has no"));
}

TEST(Memory, StateFallsAsOneOverTheTensorDegree) {
  Job job = small_job();
  job.spec.heads = 4;
  std::vector<int64_t> state, activations;
  for (const int tensor : {1, 2, 4}) {
    job.world = job.tensor_degree = tensor;
    job.divides_rows = tensor > 1;
    const MemoryPlan plan = plan_memory(*make_program(job));
    state.push_back(plan.peak[static_cast<int>(Category::optimizer)]);
    activations.push_back(plan.peak[static_cast<int>(Category::activations)]);
  }
  // Norms and positions are held by all; the rest is padding.
  for (size_t i = 1; i < state.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(state[i]), static_cast<double>(state[0]) / (1 << i), 8.0 * 2048 * 7);
    EXPECT_LT(activations[i], activations[i - 1]);
  }
}

TEST(Memory, StateFallsAsOneOverTheDegree) {
  Job job = small_job();
  job.world = 8;
  std::vector<int64_t> state;
  for (const int degree : {1, 2, 4, 8}) {
    job.degree = degree;
    const MemoryPlan plan = plan_memory(*make_program(job));
    int64_t bytes = 0;
    for (const Category category : {Category::parameters, Category::optimizer, Category::gradients})
      bytes += plan.peak[static_cast<int>(category)];
    state.push_back(bytes);
  }
  // Padding to whole chunks is all that is added.
  for (size_t i = 1; i < state.size(); ++i)
    EXPECT_NEAR(static_cast<double>(state[i]), static_cast<double>(state[0]) / (1 << i), 16.0 * 1024 * 7);
}

TEST(Memory, CheckpointingKeepsLessAndTheArenaIsTight) {
  Job job = small_job();
  const auto activations = [&](int group) {
    job.checkpoint_group = group;
    return plan_memory(*make_program(job)).peak[static_cast<int>(Category::activations)];
  };
  EXPECT_LT(activations(1), activations(0) / 2);
  EXPECT_LT(activations(2), activations(0));
  for (const int group : {0, 1, 2}) {
    Job sharded = sharded_job();
    sharded.checkpoint_group = group;
    const MemoryPlan plan = plan_memory(*make_program(sharded));
    EXPECT_LT(plan.bytes, plan.peak_bytes * 1.2) << group;
  }
}

TEST(Memory, TrainingAndEvaluationPlaceTheStateAlike) {
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    Job job = sharded_job();
    job.precision = precision;
    const Program training = *make_program(job), evaluation = *make_evaluation(job);
    const MemoryPlan one = plan_memory(training), other = plan_memory(evaluation);
    int persistent = 0;
    for (size_t b = 0; b < training.buffers.size() && training.buffers[b].persistent; ++b, ++persistent)
      EXPECT_EQ(one.offset[b], other.offset[b]) << training.buffers[b].name;
    EXPECT_EQ(training.buffers[persistent - 1].name, evaluation.buffers[persistent - 1].name);
  }
}

TEST(Memory, BothSmallerTypesNeedTheSame) {
  Job job = sharded_job();
  const auto plan = [&](Precision precision) {
    job.precision = precision;
    return plan_memory(*make_program(job));
  };
  const MemoryPlan whole = plan(Precision::fp32), brain = plan(Precision::bf16), half = plan(Precision::fp16);
  EXPECT_EQ(half.bytes, brain.bytes);
  const auto of = [](const MemoryPlan& plan, Category category) {
    return plan.peak[static_cast<int>(category)];
  };
  EXPECT_LT(of(half, Category::activations), 0.6 * of(whole, Category::activations));
  EXPECT_EQ(2 * of(half, Category::parameters), 3 * of(whole, Category::parameters));  // masters beside them
  EXPECT_EQ(of(half, Category::optimizer), of(whole, Category::optimizer));
}

TEST(Passes, GathersThatMayStayAreNotRepeated) {
  Job job = sharded_job();
  const auto gathers = [&](int64_t live) {
    job.live_elements = live;
    const Program program = *make_program(job);
    return std::count_if(program.instructions.begin(), program.instructions.end(),
                         [](const Instruction& instruction) { return instruction.op == Op::gather; });
  };
  // Each of 3 microbatches needs 7 units forward and 5 blocks backward, and the embedding again at the head.
  EXPECT_GT(gathers(0), 3 * 11);
  EXPECT_LT(gathers(200000), gathers(0));
  EXPECT_EQ(gathers(1 << 30), 7);
}

TEST(Passes, PrefetchIssuesBeforeTheUnitBefore) {
  Job job = sharded_job();
  job.prefetch = 2;
  const Program program = *make_program(job);
  EXPECT_LT(find(program, Op::gather, 3, -1), find(program, Op::forward, 1, 0));
}

/// It looks rows up: nothing hides behind that, and the block behind it was waited for in every microbatch.
TEST(Passes, PrefetchLooksPastTheEmbedding) {
  const Program program = *make_program(sharded_job());
  const int after = find(program, Op::backward, 2, 0), before = find(program, Op::backward, 1, 0);
  const auto& list = program.instructions;
  EXPECT_TRUE(std::any_of(list.begin() + after, list.begin() + before, [](const Instruction& instruction) {
    return instruction.op == Op::gather && instruction.unit == 0;
  })) << "of the next microbatch";
}

/// The last block behind the head, and the first one behind the embedding: their next gather would be issued
/// when the last use of what is there ends.
TEST(Passes, WhatPrefetchWouldAskForAgainAtOnceIsNotGatheredAgain) {
  for (const int prefetch : {0, 1, 2}) {
    Job job = sharded_job();
    job.prefetch = prefetch;
    const Program program = *make_program(job);
    std::vector<int> gathers(7);
    for (const Instruction& instruction : program.instructions)
      if (instruction.op == Op::gather) ++gathers[static_cast<size_t>(instruction.unit)];
    // Blocks are needed forward and backward in each of 3 microbatches.
    EXPECT_EQ(gathers[1], 2 * 3 - 2) << prefetch;
    EXPECT_EQ(gathers[2], prefetch < 2 ? 2 * 3 : 2 * 3 - 2) << prefetch;
    EXPECT_EQ(gathers[3], 2 * 3) << prefetch;
    EXPECT_EQ(gathers[5], prefetch < 1 ? 2 * 3 : 3) << prefetch;
  }
}

TEST(Passes, ReductionsOverReplicasAreAtTheBoundaryOnly) {
  const Job job = sharded_job();
  const Program program = *make_program(job);
  std::multiset<Op> counts;
  for (const Instruction& instruction : program.instructions) counts.insert(instruction.op);
  EXPECT_EQ(counts.count(Op::all_reduce), 7u);
  EXPECT_EQ(counts.count(Op::reduce_scatter), 7u * 3);
  EXPECT_EQ(counts.count(Op::accumulate), 7u * 2);
}

Job deep_job() {
  Job job = small_job();
  job.spec.layers = 24;
  job.offload = true;
  job.loading_horizon = 2;
  return job;
}

TEST(Passes, OffloadedActivationsDoNotGrowWithDepth) {
  Job kept = deep_job();
  kept.offload = false;
  const auto activations = [](const Job& job) {
    return plan_memory(*make_program(job)).peak[static_cast<int>(Category::activations)];
  };
  EXPECT_LT(activations(deep_job()), activations(kept) / 3);
  Job deeper = deep_job();
  deeper.spec.layers = 48;
  EXPECT_EQ(activations(deeper), activations(deep_job()));
  EXPECT_GT(plan_memory(*make_program(deeper)).tier_bytes, plan_memory(*make_program(deep_job())).tier_bytes);
  EXPECT_EQ(plan_memory(*make_program(kept)).tier_bytes, 0);
}

TEST(Passes, WithCheckpointingOnlyWhatIsKeptIsOffloaded) {
  Job job = deep_job();
  job.checkpoint_group = 2;
  const Program program = *make_program(job);
  int offloads = 0;
  for (const Instruction& instruction : program.instructions) {
    if (instruction.op != Op::offload) continue;
    EXPECT_EQ(program.buffers[instruction.buffer(Role::resident)].name[0], 'x');
    ++offloads;
  }
  EXPECT_GT(offloads, 8);
}

TEST(Passes, ActivationsAreLoadedAHorizonAhead) {
  for (const int horizon : {1, 2, 5}) {
    Job job = deep_job();
    job.loading_horizon = horizon;
    const Program program = *make_program(job);
    const size_t load = find(program, Op::load, 3, 0), use = find(program, Op::backward, 3, 0);
    int between = 0;
    for (size_t i = load; i < use; ++i) between += is_compute(program.instructions[i].op);
    EXPECT_EQ(between, horizon);
  }
}

TEST(Verifier, AWrongLoadIsFound) {
  const auto loads_another = [](Program& program) {
    const BufferId other = program.instructions[find(program, Op::load, 5, 0)].buffer(Role::stored);
    for (Use& use : program.instructions[find(program, Op::load, 3, 0)].uses)
      if (use.role == Role::stored) use.buffer = other;
  };
  EXPECT_TRUE(fails_with(broken(loads_another, deep_job()), Code::internal_error, "backward of unit 3"));
  const auto in_memory = [](Program& program) {
    program.buffers[program.instructions[find(program, Op::load, 3, 0)].buffer(Role::stored)].in_tier = false;
  };
  EXPECT_TRUE(fails_with(broken(in_memory, deep_job()), Code::internal_error, "in the wrong place"));
}

TEST(Simulator, CommunicationHidesBehindComputing) {
  Job job = sharded_job();
  Machine machine;
  machine.ranks_per_node = 1;
  machine.flops = 1e9;
  job.prefetch = 0;
  job.in_flight = 1;
  const Forecast plain = simulate(job, *make_program(job), machine);
  job.prefetch = 2;
  job.in_flight = 2;
  const Forecast overlapped = simulate(job, *make_program(job), machine);
  EXPECT_LT(overlapped.exposed_us, plain.exposed_us / 2);
  EXPECT_NEAR(overlapped.compute_us, plain.compute_us, 1e-6 * plain.compute_us);
  EXPECT_NEAR(plain.step_us, plain.compute_us + plain.exposed_us, 1e-6 * plain.step_us);
}

TEST(Simulator, SmallGroupsAreFasterOnSlowNetworks) {
  Job job = small_job();
  job.world = 4;
  job.microbatches = 4;
  Machine machine;
  machine.inter_bandwidth = 1e7;
  const auto step = [&](int degree) {
    job.degree = degree;
    return simulate(job, *make_program(job), machine).step_us;
  };
  EXPECT_GT(step(4), 1.4 * step(2));
}

TEST(Job, SaysWhatCannotBe) {
  Job job = sharded_job();
  job.degree = 3;
  EXPECT_EQ(make_program(job).status().message(),
            "parallel.sharded_data_parallel_degree is 3, must divide the number of data ranks, 4");
  job = sharded_job();
  job.tokens = 17;
  EXPECT_EQ(make_program(job).status().message(),
            "the sequence length (data.sequence_length) is 17, must be at most the model's context, 16");
  job = sharded_job();
  job.microbatches = 0;
  EXPECT_EQ(make_program(job).status().message(), "microbatches is 0, must be at least 1");
}

TEST(Job, MicrobatchesAreNumberedOnceForEveryLayout) {
  for (const int degree : {1, 2, 4}) {
    Job job = small_job();
    job.world = 4;
    job.degree = degree;
    job.microbatches = 2;
    std::set<int64_t> numbers;
    for (int group = 0; group < job.replicas(); ++group)
      for (int member = 0; member < degree; ++member)
        for (int index = 0; index < 2; ++index) numbers.insert(microbatch_number(job, group, member, index));
    EXPECT_EQ(numbers.size(), 8u);
    EXPECT_EQ(*numbers.rbegin(), 7);
  }
}

TEST(Print, HasALineForEachInstruction) {
  const Program program = *make_program(sharded_job());
  const std::string text = to_string(program);
  EXPECT_EQ(static_cast<size_t>(std::count(text.begin(), text.end(), '\n')), program.instructions.size());
  EXPECT_NE(text.find("reduce_scatter unit 3 microbatch 1: whole gradient 3.1 -> partial gradient 3.1"),
            std::string::npos);
}

}  // namespace
}  // namespace loom::testing::program_test
