// Tensor parallelism: the losses of one rank, whatever is divided and however; the bytes that it costs.
#include <cmath>

#include "engine/ranks.h"
#include "program/generate.h"

namespace loom::testing {
namespace {

constexpr int kSteps = 10;

program::Job tensor_job(int tensor, int data, int shard, bool divides_rows, bool drops = false) {
  program::Job job = small_job(tensor * data, shard, 1, kSequences / data);
  job.spec.vocabulary = 41;  // the last rank has fewer tokens
  job.tensor_degree = tensor;
  job.divides_rows = divides_rows;
  if (drops) job.spec.residual_dropout = job.spec.embedding_dropout = job.spec.attention_dropout = 0.1f;
  return job;
}

const std::vector<double>& reference(bool drops) {
  static const std::vector<double> plain = train(tensor_job(1, 1, 1, false), 0, kSteps);
  static const std::vector<double> dropped = train(tensor_job(1, 1, 1, false, true), 0, kSteps);
  return drops ? dropped : plain;
}

void expect_equal_losses(const std::vector<double>& got, const std::vector<double>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t step = 0; step < got.size(); ++step)
    EXPECT_NEAR(got[step], wanted[step], 1e-5 * wanted[step]) << "step " << step;
}

struct Division {
  int tensor, data, shard;
  bool divides_rows;
};

class Tensor : public ::testing::TestWithParam<Division> {};

TEST_P(Tensor, HasTheLossesOfOneRank) {
  const auto [tensor, data, shard, divides_rows] = GetParam();
  expect_equal_losses(train(tensor_job(tensor, data, shard, divides_rows), 0, kSteps), reference(false));
}

TEST_P(Tensor, DropsWhatOneRankDrops) {
  const auto [tensor, data, shard, divides_rows] = GetParam();
  program::Job job = tensor_job(tensor, data, shard, divides_rows, true);
  job.microbatches = 2;
  job.batch /= 2;
  job.checkpoint_group = 2;
  expect_equal_losses(train(job, 0, kSteps), reference(true));
}

INSTANTIATE_TEST_SUITE_P(Training, Tensor,
                         ::testing::Values(Division{2, 1, 1, false}, Division{2, 1, 1, true},
                                           Division{4, 1, 1, false}, Division{4, 1, 1, true},
                                           Division{2, 2, 1, true}, Division{2, 2, 2, false},
                                           Division{2, 2, 2, true}, Division{2, 4, 2, true},
                                           Division{4, 2, 2, false}),
                         [](const auto& info) {
                           return fmt::format("T{}D{}p{}{}", info.param.tensor, info.param.data,
                                              info.param.shard, info.param.divides_rows ? "memory" : "speed");
                         });

TEST(TensorParallel, AnUntiedHeadAndManyRowsHaveTheLossesOfOneRank) {
  for (const bool divides_rows : {false, true}) {
    program::Job job = tensor_job(1, 1, 1, false);
    job.spec.tied = false;
    job.spec.context = job.tokens = 150;  // more rows than the head computes at a time
    const std::vector<double> one = train(job, 0, 3);
    job.world = job.tensor_degree = 2;
    job.divides_rows = divides_rows;
    expect_equal_losses(train(job, 0, 3), one);
  }
}

TEST(TensorParallel, PlacementsChangeNothing) {
  for (const char* placement : {"DTP", "TDP"}) {
    program::Job job = tensor_job(2, 2, 2, true);
    job.placement = placement;
    expect_equal_losses(train(job, 0, 3), {reference(false).begin(), reference(false).begin() + 3});
  }
}

TEST(TensorParallel, StrictOrderGivesTheSameBitsForOneDegree) {
  const auto losses = [](int data, int shard, bool divides_rows) {
    program::Job job = tensor_job(2, data, shard, divides_rows, true);
    job.strict = true;
    job.microbatches = kSequences / data;
    job.batch = 1;
    return train(job, 0, 5);
  };
  for (const bool divides_rows : {false, true}) {
    const std::vector<double> one = losses(1, 1, divides_rows);
    EXPECT_EQ(losses(2, 1, divides_rows), one);
    EXPECT_EQ(losses(2, 2, divides_rows), one);
  }
}

TEST(TensorParallel, SmallerTypesLearn) {
  for (const bool divides_rows : {false, true})
    for (const program::Precision precision : {program::Precision::bf16, program::Precision::fp16}) {
      program::Job job = tensor_job(2, 1, 1, divides_rows);
      job.precision = precision;
      const std::vector<double> losses = train(job, 0, kSteps);
      const bool fine = precision == program::Precision::fp16;
      EXPECT_NEAR(losses.front(), reference(false).front(), fine ? 1e-3 : 1e-2);
      EXPECT_NEAR(losses.back(), reference(false).back(), fine ? 0.05 : 0.1);
    }
}

TEST(TensorParallel, EvaluationAndLogitsAreThoseOfOneRank) {
  std::mutex mutex;
  std::vector<std::vector<float>> logits;
  std::vector<double> losses;
  const auto look = [&](engine::Engine& engine, const engine::Groups& groups) -> Status {
    fill_batch(engine, groups, 5);
    const Result<double> loss = engine.evaluate();
    LOOM_TRY(loss.status());
    const Result<std::vector<float>> row = engine.logits(5);
    LOOM_TRY(row.status());
    const std::lock_guard lock(mutex);
    losses.push_back(*loss);
    logits.push_back(*row);
    return {};
  };
  train(tensor_job(1, 1, 1, false), 0, 3, {}, look);
  train(tensor_job(2, 1, 1, false), 0, 3, {}, look);
  train(tensor_job(4, 1, 1, true), 0, 3, {}, look);
  ASSERT_EQ(logits.size(), 7u);
  for (size_t other = 1; other < logits.size(); ++other) {
    EXPECT_NEAR(losses[other], losses[0], 1e-5 * losses[0]);
    ASSERT_EQ(logits[other].size(), 41u);
    for (size_t token = 0; token < 41; ++token)
      EXPECT_NEAR(logits[other][token], logits[0][token], 2e-4) << token;
  }
}

TEST(TensorParallel, BytesAreThoseOfTheFormula) {
  for (const int tensor : {2, 4})
    for (const bool divides_rows : {false, true}) {
      program::Job job = tensor_job(tensor, 1, 1, divides_rows);
      job.spec.width = 256;
      job.spec.layers = 2;
      job.spec.context = job.tokens = 64;
      const double rows = static_cast<double>(job.batch * job.tokens), whole = 4 * rows * 256;
      // An AllReduce is a reduce-scatter and a gather: (T - 1) · bytes each, over all ranks.
      const double once = (tensor - 1) * whole;
      // Whole rows: two all-reduces a block and direction, one for the embedding, one for the head. Divided:
      // the same in two halves, but that backward gathers again what each sublayer read, and the embedding
      // and the head need the other halves as well.
      double wanted = divides_rows ? (2 * (4 + 6) + 2 + 2) * once : (2 * (4 + 4) + 2 + 2) * once;
      wanted += (tensor - 1) * tensor * 12 * rows;  // three numbers a row and rank
      const double norms = 4.0 * (256 * (2 * 4 + 2) + 64 * 256);
      if (divides_rows) wanted += 2 * (tensor - 1) * norms;
      EXPECT_NEAR(bytes_between_nodes(job, job.world), wanted, 0.02 * wanted) << tensor << divides_rows;
    }
}

TEST(TensorParallel, SaysWhatCannotBe) {
  program::Job job = tensor_job(3, 1, 1, false);
  EXPECT_EQ(program::make_program(job).status().message(),
            "tensor_degree is 3, must divide model.heads, 4; this model can have 1, 2, 4");
  job = tensor_job(4, 1, 1, false);
  job.spec.feed_forward = 6;  // 2, 2, 2 and none
  EXPECT_EQ(
      program::make_program(job).status().message(),
      "tensor_degree is 4, which leaves a rank without any of model.feed_forward's 6 columns; take less");
  job = tensor_job(4, 1, 1, false);
  job.spec.vocabulary = 5;
  EXPECT_TRUE(fails_with(program::make_program(job), Code::invalid_argument,
                         "leaves a rank without any of the vocabulary's 5 tokens"));
  job = tensor_job(2, 1, 1, true);
  job.batch = 1;
  job.tokens = 11;
  EXPECT_TRUE(fails_with(program::make_program(job), Code::invalid_argument,
                         "a microbatch has 1 · 11 tokens, must be a multiple of tensor_degree, 2"));
}

}  // namespace
}  // namespace loom::testing
