// What the host derives from a microbatch: which rows the head reads on each rank, and which go back where.
#include "model/batch_layout.h"

#include <gtest/gtest.h>

#include <vector>

#include "model/sequence_parallel.h"
#include "model/split.h"
#include "model/whole_model.h"
#include "text/tokenizer.h"

namespace loom::testing {
namespace {

constexpr int64_t kLayoutBatch = 2, kLayoutTokens = 6;
constexpr int32_t kLayoutPadding = 9;
const std::vector<int32_t> kLayoutToken = {1, 2, 3, 4, kLayoutPadding, kLayoutPadding, 5, 6, 7, 8, 1, 2};
using Numbers = std::vector<int32_t>;

/// One rank's arrays of the batch, in memory of its own.
class Derived {
 public:
  Derived(const model::ModelSpec& spec, const Numbers& target, int64_t targets, model::TensorRank tensor = {},
          bool divides_rows = false, bool fixed = false, int64_t only_row = -1, bool packed = false)
      : sizes_(model::sizes_for<float>(model::share_of(spec, tensor, divides_rows), kLayoutBatch,
                                       kLayoutTokens, targets)) {
    sizes_.packed = packed;
    const model::BatchLayout layout(spec, sizes_, fixed);
    EXPECT_EQ(layout.bytes() % 64, 0);
    memory_.assign(static_cast<size_t>(layout.bytes() + kGuard), std::byte{0x5a});
    arrays = layout.fill(kLayoutToken.data(), target.data(), only_row, memory_.data(), memory_.data());
  }
  ~Derived() {
    for (size_t i = memory_.size() - kGuard; i < memory_.size(); ++i) EXPECT_EQ(memory_[i], std::byte{0x5a});
  }
  Numbers rows() const { return {arrays.rows, arrays.rows + arrays.count}; }
  Numbers targets() const { return {arrays.targets, arrays.targets + arrays.count}; }
  Numbers lengths() const { return {arrays.lengths, arrays.lengths + kLayoutBatch}; }
  Numbers back() const { return {arrays.back, arrays.back + model::own_rows(sizes_.share, sizes_.rows())}; }

  model::BatchArrays arrays;

 private:
  static constexpr int64_t kGuard = 64;
  model::RecipeSizes sizes_;
  std::vector<std::byte> memory_;
};

model::ModelSpec layout_spec(model::Task task) {
  model::ModelSpec spec = small_spec();
  spec.heads = 4;
  spec.task = task;
  spec.padding = kLayoutPadding;
  spec.labels = 3;
  return spec;
}

const Numbers kLayoutTargets = {-1, 4, -1, 7, -1, -1, -1, -1, 2, -1, -1, -1};

TEST(BatchLayout, RowsWithTargetsInTheirOrder) {
  const Derived one(layout_spec(model::Task::masked), kLayoutTargets, 0);
  EXPECT_EQ(one.rows(), (Numbers{1, 3, 8}));
  EXPECT_EQ(one.targets(), (Numbers{4, 7, 2}));
  EXPECT_EQ(one.back(), (Numbers{-1, 0, -1, 1, -1, -1, -1, -1, 2, -1, -1, -1}));
  EXPECT_EQ(one.lengths(), (Numbers{4, 6}));
  EXPECT_EQ(one.arrays.positions, nullptr);
}

/// Where targets say that a text ends. The logits of a row are those of one text.
TEST(BatchLayout, TextsOfASequence) {
  model::ModelSpec spec = layout_spec(model::Task::causal);
  spec.padding = -1;
  constexpr int32_t kEnd = text::kEndsText;
  const Numbers target = {2, kEnd, kEnd, 4, 5, -1, 6, 7, -1, 8, 1, kEnd};
  const auto numbers = [](const int32_t* at) { return Numbers(at, at + kLayoutBatch * kLayoutTokens); };
  for (const model::Position position : {model::Position::learned, model::Position::alibi}) {
    spec.position = position;
    const Derived texts(spec, target, 0, {}, false, false, -1, true);
    EXPECT_EQ(numbers(texts.arrays.begins), (Numbers{0, 0, 2, 3, 3, 3, 0, 0, 0, 0, 0, 0}));
    EXPECT_EQ(numbers(texts.arrays.ends), (Numbers{2, 2, 3, 6, 6, 6, 6, 6, 6, 6, 6, 6}));
    if (position == model::Position::learned)
      EXPECT_EQ(numbers(texts.arrays.positions), (Numbers{0, 1, 0, 0, 1, 2, 0, 1, 2, 3, 4, 5}));
    else EXPECT_EQ(texts.arrays.positions, nullptr);
    const Derived row(spec, target, 0, {}, false, false, 3, true);
    EXPECT_EQ(row.arrays.begins, nullptr);
    EXPECT_EQ(row.arrays.positions, nullptr);
  }
}

TEST(BatchLayout, NoRowHasATarget) {
  const Derived one(layout_spec(model::Task::masked), Numbers(kLayoutBatch * kLayoutTokens, -1), 0);
  EXPECT_EQ(one.arrays.count, 0);
  EXPECT_EQ(one.back(), Numbers(kLayoutBatch * kLayoutTokens, -1));
}

/// A GPU's shapes are the same in every microbatch, as those of tensor ranks are.
TEST(BatchLayout, FixedOnesHaveAllPlaces) {
  const Derived one(layout_spec(model::Task::masked), kLayoutTargets, 2, {}, false, true);
  EXPECT_EQ(one.rows(), (Numbers{1, 3, 8, -1}));
  EXPECT_EQ(one.targets(), (Numbers{4, 7, 2, -1}));
  model::ModelSpec roberta = layout_spec(model::Task::masked);
  roberta.first_position = 2;
  roberta.context = 8;
  EXPECT_EQ(Derived(roberta, kLayoutTargets, 2).arrays.positions, nullptr);
  EXPECT_NE(Derived(roberta, kLayoutTargets, 2, {}, false, true).arrays.positions, nullptr);
}

TEST(BatchLayout, OfDividedRowsEachRankHasItsOwn) {
  const model::ModelSpec spec = layout_spec(model::Task::masked);
  const Derived first(spec, kLayoutTargets, 2, {2, 0}, true), second(spec, kLayoutTargets, 2, {2, 1}, true);
  EXPECT_EQ(first.rows(), (Numbers{1, 3, -1, -1}));
  EXPECT_EQ(second.rows(), (Numbers{-1, -1, 2, -1}));
  EXPECT_EQ(first.targets(), (Numbers{4, 7, 2, -1}));
  EXPECT_EQ(second.targets(), first.targets());
  EXPECT_EQ(first.back(), (Numbers{-1, 0, -1, 1, -1, -1}));
  EXPECT_EQ(second.back(), (Numbers{-1, -1, 2, -1, -1, -1}));
}

TEST(BatchLayout, AClassificationPoolsItsFirstOrLastToken) {
  model::ModelSpec spec = layout_spec(model::Task::classification);
  Numbers classes(kLayoutBatch * kLayoutTokens, -1);
  classes[0] = 2;
  classes[kLayoutTokens] = 1;
  EXPECT_EQ(Derived(spec, classes, 1).rows(), (Numbers{3, 11})) << "before the padding";
  EXPECT_EQ(Derived(spec, classes, 1).targets(), (Numbers{2, 1}));
  EXPECT_EQ(Derived(spec, classes, 1, {}, false, false, 8).rows(), Numbers{11}) << "of the row's sequence";
  spec.pooling = model::Pooling::first;
  EXPECT_EQ(Derived(spec, classes, 1).rows(), (Numbers{0, 6}));
  spec.pooling = model::Pooling::last;
  spec.padding = -1;
  EXPECT_EQ(Derived(spec, classes, 1).rows(), (Numbers{5, 11}));
}

TEST(BatchLayout, OneRowsLogitsNeedNoTargets) {
  const model::ModelSpec spec = layout_spec(model::Task::causal);
  const Derived none(spec, {}, 0, {}, false, false, 7);
  EXPECT_EQ(none.rows(), Numbers{7});
  EXPECT_EQ(none.targets(), Numbers{-1});
  EXPECT_EQ(none.arrays.back, nullptr) << "a causal head reads all rows";
  const Derived second(spec, {}, 0, {2, 1}, true, false, 7);
  EXPECT_EQ(second.rows(), (Numbers{1, -1}));
  const Derived all(spec, Numbers(kLayoutBatch * kLayoutTokens, 1), 0);
  EXPECT_EQ(all.arrays.rows, nullptr);
}

}  // namespace
}  // namespace loom::testing
