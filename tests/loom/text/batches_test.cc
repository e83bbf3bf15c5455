// Every window once an epoch, shuffled by seed and epoch alone, the same for any number of ranks.
#include "text/batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "support.h"
#include "text/byte_tokenizer.h"
#include "text/permutation.h"
#include "text/tokenize_files.h"

namespace loom::text {
namespace {

using testing::fails_with;
using testing::put_file;
using testing::TemporaryFolder;

class PermutationOf : public ::testing::TestWithParam<uint64_t> {};

TEST_P(PermutationOf, TakesEachOnce) {
  for (const uint64_t seed : {0, 1, 7}) {
    const Permutation permutation(GetParam(), seed, 3);
    std::vector<bool> seen(GetParam());
    for (uint64_t i = 0; i < GetParam(); ++i) {
      const uint64_t image = permutation(i);
      ASSERT_LT(image, GetParam());
      ASSERT_FALSE(seen[image]);
      seen[image] = true;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, PermutationOf,
                         ::testing::Values(1, 2, 3, 4, 5, 7, 16, 17, 64, 65, 1000, 4097, 100'000));

TEST(Permutations, ShuffleWell) {
  // Where a window comes must not tell where the next one does: the mean distance of neighbours is a third of
  // the range, and the rank correlation of place and window is about 0.
  constexpr uint64_t kSize = 10'000;
  for (const uint64_t seed : {0, 1, 2, 3}) {
    const Permutation permutation(kSize, seed, 0);
    double distance = 0, product = 0;
    for (uint64_t i = 0; i < kSize; ++i) {
      const double here = static_cast<double>(permutation(i)),
                   next = static_cast<double>(permutation((i + 1) % kSize));
      distance += std::abs(next - here) / kSize / kSize;
      product += (here / kSize - 0.5) * (static_cast<double>(i) / kSize - 0.5) * 12 / kSize;
    }
    EXPECT_NEAR(distance, 1.0 / 3, 0.02);
    EXPECT_NEAR(product, 0, 0.05);
  }
}

TEST(Permutations, DifferByEpochAndSeed) {
  constexpr uint64_t kSize = 1000;
  const Permutation first(kSize, 5, 0), epoch(kSize, 5, 1), seed(kSize, 6, 0), again(kSize, 5, 0);
  int same_epoch = 0, same_seed = 0;
  for (uint64_t i = 0; i < kSize; ++i) {
    same_epoch += first(i) == epoch(i);
    same_seed += first(i) == seed(i);
    EXPECT_EQ(first(i), again(i));
  }
  EXPECT_LT(same_epoch, 12);  // one is expected by chance
  EXPECT_LT(same_seed, 12);
}

TEST(Permutations, HugeRangesWork) {
  const uint64_t size = (uint64_t{1} << 63) + 12345;
  const Permutation permutation(size, 1, 1);
  std::set<uint64_t> images;
  for (uint64_t i = 0; i < 1000; ++i) {
    images.insert(permutation(size - 1 - i));
    EXPECT_LT(permutation(i), size);
  }
  EXPECT_EQ(images.size(), 1000u);
}

class BatchesTest : public ::testing::Test {
 protected:
  BatchesTest() {
    std::string text;
    for (int i = 0; text.size() < 5000; ++i) text += fmt::format("line {}\n", i * i);
    put_file(folder_ / "text", text);
    TokenizeOptions options;
    options.validation_fraction = 0;
    options.tokens_a_file = 777;  // windows reach over files
    EXPECT_TRUE(tokenize_files({folder_ / "text"}, folder_ / "tokens", ByteTokenizer(), options).ok());
    dataset_ = TokenDataset::open(folder_ / "tokens", Split::train).take();
    tokens_.resize(dataset_->tokens());
    EXPECT_TRUE(dataset_->read(0, tokens_).ok());
  }
  Batches make(int64_t length, int64_t batch, uint64_t seed = 1, bool shuffle = true) {
    return Batches::create(dataset_, {length, batch, seed, shuffle}).take();
  }

  const TemporaryFolder folder_;
  std::shared_ptr<const TokenDataset> dataset_;
  std::vector<Token> tokens_;
};

TEST_F(BatchesTest, AnEpochHasEveryWindowOnce) {
  const Batches batches = make(16, 7);
  EXPECT_EQ(batches.windows(), (dataset_->tokens() - 1) / 16);
  std::vector<uint64_t> order;
  for (uint64_t step = 0; order.size() < 3 * batches.windows(); ++step) {
    for (int64_t row = 0; row < 7; ++row) order.push_back(batches.window(step, row));
  }
  std::vector<uint64_t> expected(batches.windows());
  std::iota(expected.begin(), expected.end(), uint64_t{0});
  for (int epoch = 0; epoch < 3; ++epoch) {
    const auto begin = order.begin() + epoch * static_cast<std::ptrdiff_t>(batches.windows());
    std::vector<uint64_t> windows(begin, begin + static_cast<std::ptrdiff_t>(batches.windows()));
    EXPECT_NE(windows, expected);
    std::sort(windows.begin(), windows.end());
    EXPECT_EQ(windows, expected);
  }
}

TEST_F(BatchesTest, TargetsAreTheInputsOneFurther) {
  const Batches batches = make(32, 4);
  std::vector<Token> inputs(4 * 32), targets(4 * 32);
  for (uint64_t step = 0; step < 100; ++step) {
    LOOM_ASSERT_OK(batches.read(step, {0, 4}, inputs, targets));
    for (int64_t row = 0; row < 4; ++row) {
      const size_t begin = batches.window(step, row) * 32;
      for (size_t i = 0; i < 32; ++i) {
        ASSERT_EQ(inputs[static_cast<size_t>(row) * 32 + i], tokens_[begin + i]);
        ASSERT_EQ(targets[static_cast<size_t>(row) * 32 + i], tokens_[begin + i + 1]);
      }
    }
  }
}

TEST_F(BatchesTest, TheSameBatchForAnyNumberOfRanks) {
  const Batches batches = make(8, 12);
  std::vector<Token> inputs(12 * 8), targets(12 * 8);
  for (const int ranks : {1, 2, 3, 4, 6, 12}) {
    for (const uint64_t step : {0, 1, 77, 1'000'000}) {
      LOOM_ASSERT_OK(batches.read(step, {0, 12}, inputs, targets));
      std::vector<Token> joined, joined_targets;
      for (int rank = 0; rank < ranks; ++rank) {
        const Rows rows{rank * 12 / ranks, 12 / ranks};
        std::vector<Token> part(static_cast<size_t>(rows.count) * 8), part_targets(part.size());
        LOOM_ASSERT_OK(batches.read(step, rows, part, part_targets));
        joined.insert(joined.end(), part.begin(), part.end());
        joined_targets.insert(joined_targets.end(), part_targets.begin(), part_targets.end());
      }
      EXPECT_EQ(joined, inputs);
      EXPECT_EQ(joined_targets, targets);
    }
  }
}

TEST_F(BatchesTest, WithoutShufflingInOrder) {
  const Batches batches = make(10, 3, 1, false);
  EXPECT_EQ(batches.window(0, 0), 0u);
  EXPECT_EQ(batches.window(2, 1), 7u);
  EXPECT_EQ(batches.window(batches.windows(), 0), 0u);  // after three epochs
}

TEST_F(BatchesTest, ALengthOfOneAndTheLongestWork) {
  std::vector<Token> input(1), target(1);
  LOOM_ASSERT_OK(make(1, 1).read(5, {0, 1}, input, target));
  const int64_t longest = static_cast<int64_t>(dataset_->tokens()) - 1;
  std::vector<Token> inputs(static_cast<size_t>(longest)), targets(static_cast<size_t>(longest));
  const Batches batches = make(longest, 1);
  EXPECT_EQ(batches.windows(), 1u);
  LOOM_ASSERT_OK(batches.read(9, {0, 1}, inputs, targets));
  EXPECT_EQ(targets.back(), ByteTokenizer::kEndOfText);
}

TEST_F(BatchesTest, MistakesAreTold) {
  EXPECT_TRUE(fails_with(Batches::create(dataset_, {0, 4, 1, true}), Code::invalid_argument,
                         "4 sequences of 0 tokens"));
  EXPECT_TRUE(fails_with(Batches::create(dataset_, {8, 0, 1, true}), Code::invalid_argument, "0 sequences"));
  EXPECT_TRUE(fails_with(Batches::create(dataset_, {9999, 4, 1, true}), Code::invalid_argument,
                         "must have at least 10000"));
  const Batches batches = make(8, 12);
  std::vector<Token> some(8 * 12);
  EXPECT_TRUE(fails_with(batches.read(0, {11, 2}, some, some), Code::invalid_argument,
                         "rows [11, 13), must be in [0, 12)"));
  EXPECT_TRUE(fails_with(batches.read(0, {0, 2}, some, some), Code::invalid_argument, "must be 16 each"));
}

}  // namespace
}  // namespace loom::text
