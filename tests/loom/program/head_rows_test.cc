// A masked model's head computes the rows that have targets, 15 % of them, and is charged with no more: in
// time, in partitions, and as the work that a model asks for.
#include <gtest/gtest.h>

#include <algorithm>

#include "program/generate.h"
#include "program/partition.h"
#include "program/simulate.h"
#include "program/step_instructions.h"
#include "program/verify.h"
#include "train/throughput.h"

namespace loom::program {
namespace {

constexpr int64_t kBatch = 4, kTokens = 20, kTargets = 3, kWidth = 32, kVocabulary = 100, kLayers = 2;

/// A small BERT: of each sequence of 20 tokens 3 have targets.
Job masked_job() {
  Job job;
  job.spec.family = model::Family::bert;
  job.spec.task = model::Task::masked;
  job.spec.head_transform = true;
  job.spec.causal = false;
  job.spec.norms = model::NormPlacement::post;
  job.spec.vocabulary = kVocabulary;
  job.spec.context = kTokens;
  job.spec.width = kWidth;
  job.spec.layers = kLayers;
  job.spec.heads = 4;
  job.spec.feed_forward = 4 * kWidth;
  job.batch = kBatch;
  job.tokens = kTokens;
  job.targets = kTargets;
  return job;
}

/// Forward and backward of a row of the head: three products with each weight of logits and dense layer.
constexpr double kRowFlops = 3 * 2.0 * kWidth * (kVocabulary + kWidth);

double head_flops(const Job& job) {
  Machine machine;
  machine.flops = 1e6;
  return compute_us(job, machine, job.units() - 1, Op::loss);
}

TEST(HeadRows, AreThoseWithTargets) {
  Job job = masked_job();
  EXPECT_DOUBLE_EQ(head_flops(job), kBatch * kTargets * kRowFlops);
  job.targets = 0;  // all have one
  EXPECT_DOUBLE_EQ(head_flops(job), kBatch * kTokens * kRowFlops);
}

/// What the instructions of a job's head compute, the bytes that they exchange, and the arena of a step.
struct HeadCosts {
  double flops = 0, exchanged = 0, arena = 0;
};

HeadCosts head_costs(const Job& job) {
  HeadCosts costs;
  Machine machine;
  machine.flops = 1e6;
  const Result<Program> program = make_program(job);
  EXPECT_TRUE(program.ok()) << program.status().message();
  const MemoryPlan memory = plan_memory(*program);
  const Status verified = verify(job, *program, memory);
  EXPECT_TRUE(verified.ok()) << verified.message();
  costs.arena = static_cast<double>(memory.bytes);
  for (const Instruction& i : program->instructions) {
    if (i.unit + 1 != job.units()) continue;
    if (i.op == Op::loss) costs.flops += compute_us(job, machine, i);
    if (is_exchange(i.op) && i.op != Op::tensor_gradients)
      costs.exchanged += static_cast<double>(program->buffers[i.buffer(Role::output)].bytes);
  }
  return costs;
}

TEST(HeadRows, OfTensorRanksAreThoseWithTargets) {
  constexpr int64_t kManyTokens = 4000;  // so that a step needs most memory in the head
  const auto flops = [](int64_t rows, int degree,
                        bool divides_rows) {  // dense is of the rows that a rank has
    const double dense = divides_rows ? static_cast<double>(kWidth) / degree : kWidth;
    return static_cast<double>(rows) * 3 * 2.0 * kWidth * (static_cast<double>(kManyTokens) / degree + dense);
  };
  for (const int degree : {2, 4})
    for (const bool divides_rows : {false, true})
      for (const int64_t checkpoint_group : {0, 1}) {
        Job job = masked_job();
        job.spec.vocabulary = kManyTokens;
        job.tensor_degree = job.world = degree;
        job.divides_rows = divides_rows;
        job.checkpoint_group = static_cast<int>(checkpoint_group);
        const HeadCosts some = head_costs(job);
        job.targets = 0;
        const HeadCosts all = head_costs(job);
        EXPECT_DOUBLE_EQ(some.flops, flops(kBatch * kTargets, degree, divides_rows));
        EXPECT_DOUBLE_EQ(all.flops, flops(kBatch * kTokens, degree, divides_rows));
        EXPECT_LT(some.exchanged, all.exchanged / 2) << degree << divides_rows;
        EXPECT_LT(some.arena, all.arena) << degree << divides_rows;
      }
}

TEST(HeadRows, OfOneTensorRankAloneAreNamed) {
  Job job = masked_job();
  job.tensor_degree = job.world = 2;
  job.divides_rows = true;
  const Program right = *make_program(job);
  using model::Kernel;
  const auto with = [&](Program& program, Kernel kernel) -> Instruction& {
    return program.instructions[testing::find_step(job, program, Op::loss, job.units() - 1, kernel)];
  };
  // A step reads what an earlier one has made, and not what the ranks exchange of it.
  const auto reads = [&](Kernel reader, Kernel exchange, Kernel maker) {
    Program program = right;
    const BufferId all = with(program, exchange).buffer(Role::output),
                   own = with(program, maker).buffer(Role::exchanged);
    for (Use& use : with(program, reader).uses)
      if (use.buffer == all) use.buffer = own;
    connect(job.in_flight, program);
    return verify(job, program, plan_memory(program)).message();
  };
  const std::string picked = reads(Kernel::linear, Kernel::reduce_scatter, Kernel::pick);
  EXPECT_NE(picked.find("does not see \"sum\""), std::string::npos) << picked;
  const std::string logits = reads(Kernel::logits, Kernel::gather, Kernel::linear);
  EXPECT_NE(logits.find("does not see \"gathered rows\""), std::string::npos) << logits;
}

TEST(HeadRows, OfAClassificationAreOneASequence) {
  Job job = masked_job();
  job.spec.task = model::Task::classification;
  job.spec.head_transform = false;
  job.spec.pooler = true;
  job.spec.labels = 5;
  job.targets = 1;
  EXPECT_DOUBLE_EQ(head_flops(job), kBatch * 3 * 2.0 * kWidth * (5 + kWidth));
}

TEST(HeadRows, CountInPartitions) {
  Job job = masked_job();
  Machine machine;
  machine.flops = 1e6;
  EXPECT_DOUBLE_EQ(partition_request(job, machine).units.back().time_us, kBatch * kTargets * kRowFlops);
}

TEST(HeadRows, CountInWhatTheModelAsksFor) {
  Job job = masked_job();
  const double blocks = 6.0 * kLayers * (4 * kWidth * kWidth + 2 * kWidth * 4 * kWidth);
  const double squares = 12.0 * kLayers * kWidth * kTokens;
  const double wanted = blocks + squares + kRowFlops * kTargets / kTokens;
  EXPECT_DOUBLE_EQ(job.flops_per_token(), wanted);
  EXPECT_DOUBLE_EQ(train::utilization(job, 2.0, 1e6), kBatch * kTokens * wanted / 2e6);
  job.tensor_degree = job.world = 2;
  EXPECT_DOUBLE_EQ(job.flops_per_token(), wanted);
  job.spec.task = model::Task::causal;
  job.spec.head_transform = false;
  job.targets = 0;
  EXPECT_DOUBLE_EQ(job.flops_per_token(), blocks + squares + 6.0 * kWidth * kVocabulary);
}

/// Attention's products are of pairs of tokens: half of all pairs where a token sees only those before it.
TEST(BlockFlops, AreThoseOfTheModelCausalOrNot) {
  Machine machine;
  machine.flops = 1e6;
  for (const bool causal : {true, false}) {
    Job job = masked_job();
    job.spec.causal = causal;
    double flops = 0;
    for (int unit = 0; unit < job.units() - 1; ++unit)
      flops += compute_us(job, machine, unit, Op::forward) + compute_us(job, machine, unit, Op::backward);
    flops += compute_us(job, machine, job.units() - 1, Op::loss);
    EXPECT_DOUBLE_EQ(flops, job.flops_per_token() * kBatch * kTokens) << causal;
  }
}

/// The same in the plan and in what the model asks for.
TEST(BlockFlops, AWindowCountsWhatIsInIt) {
  Machine machine;
  machine.flops = 1e6;
  Job job = masked_job(), all;
  job.spec.causal = true;
  job.spec.task = model::Task::causal;
  job.spec.head_transform = false;
  job.targets = 0;
  all = job;
  job.spec.window = kTokens / 4;
  job.spec.local.assign(kLayers, true);
  const double less = all.flops_per_token() - job.flops_per_token();
  const double seen = kTokens / 2.0 - (kTokens / 4.0 - kTokens / 32.0);
  EXPECT_DOUBLE_EQ(less, 12.0 * kLayers * kWidth * seen);
  double us = 0, of_all = 0;
  for (int unit = 1; unit <= kLayers; ++unit)
    for (const Op op : {Op::forward, Op::backward})
      us += compute_us(job, machine, unit, op), of_all += compute_us(all, machine, unit, op);
  EXPECT_NEAR(of_all - us, less * kBatch * kTokens, 1e-6 * of_all);
}

TEST(BlockFlops, StepsOfTensorRanksShareAsTheirProductsDo) {
  Machine machine;
  machine.flops = 1e6;
  for (const bool causal : {true, false}) {
    Job job = masked_job();
    job.spec.causal = causal;
    job.tensor_degree = job.world = 2;
    const model::Recipe block = model::block_recipe(job.spec, job.recipe_sizes());
    Instruction attention;
    attention.op = Op::forward;
    attention.unit = 1;
    for (int k = 0; k < static_cast<int>(block.forward.size()) && attention.last < 0; ++k)
      if (block.forward[static_cast<size_t>(k)].kernel == model::Kernel::all_reduce) attention.last = k;
    attention.first = 0;
    const double products = 8.0 * kWidth * kWidth + (causal ? 2.0 : 4.0) * kWidth * kTokens;
    EXPECT_DOUBLE_EQ(compute_us(job, machine, attention), kBatch * kTokens * products / 2) << causal;
  }
}

}  // namespace
}  // namespace loom::program
