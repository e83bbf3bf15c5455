// The vocabulary divided over ranks: together they give what one rank gives.
#include <cstring>

#include "base/workers.h"
#include "ops/arrays.h"

namespace loom::testing::split_vocabulary_test {
namespace {

constexpr int64_t kRows = 7, kVocabulary = 37, kWidth = 6;
const std::vector<int32_t> kTokens = {0, 36, 5, 12, 13, 24, 25};

ops::VocabularyRange part_of(int ranks, int rank) {
  const int64_t part = (kVocabulary + ranks - 1) / ranks, first = rank * part;
  return {first, std::min(part, kVocabulary - first)};
}

/// Columns `own` of values[kRows, kVocabulary].
Doubles columns(const Doubles& values, ops::VocabularyRange own) {
  Doubles part;
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t v = 0; v < own.count; ++v) part.push_back(values[row * kVocabulary + own.first + v]);
  return part;
}

struct Outcome {
  Doubles loss, gradient;
};

template <typename A>
Outcome whole(const Doubles& logits, const std::vector<int32_t>& target, double scale) {
  Workers workers(1);
  std::vector<A> values = as<A>(logits);
  Outcome outcome{Doubles(kRows, -1), {}};
  table<A>().cross_entropy(workers, values.data(), target.data(), outcome.loss.data(), kRows, kVocabulary,
                           A(scale));
  outcome.gradient = doubles(values);
  return outcome;
}

/// What all ranks make of their columns, put together again; each must find the same losses.
template <typename A>
Outcome divided(int ranks, const Doubles& logits, const std::vector<int32_t>& target, double scale) {
  Workers workers(2);
  const ops::Operators<A>& op = table<A>();
  std::vector<std::vector<A>> values;
  std::vector<A> numbers(ranks * kRows * 3);
  for (int rank = 0; rank < ranks; ++rank) {
    values.push_back(as<A>(columns(logits, part_of(ranks, rank))));
    op.split_cross_entropy_begin(workers, values[rank].data(), target.data(), part_of(ranks, rank),
                                 numbers.data() + rank * kRows * 3, kRows);
  }
  Outcome outcome{{}, Doubles(kRows * kVocabulary)};
  for (int rank = 0; rank < ranks; ++rank) {
    const ops::VocabularyRange own = part_of(ranks, rank);
    Doubles loss(kRows, -1);
    op.split_cross_entropy_finish(workers, values[rank].data(), target.data(), own, numbers.data(), ranks,
                                  rank, loss.data(), kRows, A(scale));
    if (rank == 0) outcome.loss = loss;
    // Bits, not values: a NaN must be everywhere, too.
    EXPECT_EQ(std::memcmp(loss.data(), outcome.loss.data(), loss.size() * sizeof(double)), 0) << rank;
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t v = 0; v < own.count; ++v)
        outcome.gradient[row * kVocabulary + own.first + v] = load(values[rank][row * own.count + v]);
  }
  return outcome;
}

LOOM_ON_EVERY_TABLE(SplitVocabulary);

constexpr int kRanks[] = {1, 2, 3, 4};

TEST_P(SplitVocabulary, CrossEntropyIsThatOfWholeLogits) {
  std::vector<int32_t> target = kTokens;
  target[3] = -1;
  const Doubles logits = random_values(kRows * kVocabulary, 1, 3);
  const Outcome wanted = whole<double>(logits, target, 0.25);
  for (const int ranks : kRanks) {
    const Outcome got = divided<double>(ranks, logits, target, 0.25);
    EXPECT_LT(error_of(got.loss, wanted.loss), 1e-14);
    EXPECT_LT(error_of(got.gradient, wanted.gradient), 1e-14);
    const Outcome got32 = divided<float>(ranks, rounded<float>(logits), target, 0.25);
    EXPECT_LT(error_of(got32.loss, wanted.loss), 1e-6);
    EXPECT_LT(error_of(got32.gradient, wanted.gradient), 1e-6);
  }
}

TEST_P(SplitVocabulary, ARankWithoutLargeLogitsDoesNotMatterAndANaNIsSeen) {
  Doubles logits(kRows * kVocabulary, -2e4);
  logits[0] = 3e4;
  Doubles with_nan = logits;
  with_nan[kVocabulary + 3] = NAN;
  for (const int ranks : kRanks) {
    Outcome got = divided<float>(ranks, logits, kTokens, 1);
    EXPECT_EQ(got.loss[0], 0);
    EXPECT_NEAR(got.loss[1], std::log(37.0), 1e-6);
    EXPECT_EQ(got.gradient[0], 0);
    got = divided<float>(ranks, with_nan, kTokens, 1);
    EXPECT_TRUE(std::isnan(got.loss[1]));
    EXPECT_FALSE(std::isnan(got.loss[2]));
  }
}

TEST_P(SplitVocabulary, EmbeddingsAddUpToTheWhole) {
  Workers workers(2);
  const ops::Operators<double>& op = table<double>();
  const Doubles wte = random_values(kVocabulary * kWidth, 2), dy = random_values(kRows * kWidth, 3);
  Doubles y(kRows * kWidth), dwte(kVocabulary * kWidth);
  op.embedding_forward(workers, kTokens.data(), nullptr, wte.data(), nullptr, nullptr, y.data(), kRows, kRows,
                       kVocabulary, kWidth);
  op.embedding_backward(workers, kTokens.data(), nullptr, dy.data(), dwte.data(), nullptr, nullptr, kRows,
                        kRows, kVocabulary, kWidth);
  for (const int ranks : kRanks) {
    Doubles sum(kRows * kWidth), gradient(kVocabulary * kWidth);
    for (int rank = 0; rank < ranks; ++rank) {
      const ops::VocabularyRange own = part_of(ranks, rank);
      Doubles part(kRows * kWidth, 7);
      op.split_embedding_forward(workers, kTokens.data(), wte.data() + own.first * kWidth, own, part.data(),
                                 kRows, kWidth);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
      op.split_embedding_backward(workers, kTokens.data(), nullptr, dy.data(), own,
                                  gradient.data() + own.first * kWidth, kRows, kWidth);
    }
    EXPECT_EQ(sum, y);
    EXPECT_EQ(gradient, dwte);
  }
}

}  // namespace
}  // namespace loom::testing::split_vocabulary_test
