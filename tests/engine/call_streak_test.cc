// How long rows of calls are expected to be.
#include "engine/run/call_streak.h"

#include <gtest/gtest.h>

#include <vector>

namespace weft::engine {
namespace {

using plan::Collective;

/// What is expected of each of so many calls.
std::vector<int> expectations(CallStreak& row, const Call& call, int calls) {
  std::vector<int> expected;
  for (int i = 0; i < calls; ++i) {
    expected.push_back(row.expected(call));
    row.add(call.collective, call.root);
  }
  return expected;
}

Call call_of(Collective collective, int root) { return {.collective = collective, .root = root}; }

TEST(CallStreak, IsExpectedToGoOnForTwiceAsLongAsItHasLasted) {
  CallStreak row;
  const std::vector<int> expected = expectations(row, call_of(Collective::broadcast, 3), 40'000);
  for (int i = 0; i < 40'000; ++i) {
    int longest = 1;
    while (4 * longest <= i && longest < 4096) longest *= 4;
    ASSERT_EQ(expected[i], i < 4 ? 1 : 2 * longest) << i;
  }
}

TEST(CallStreak, EndsWithACallOfAnotherKindOrRoot) {
  CallStreak row;
  expectations(row, call_of(Collective::broadcast, 0), 100);
  EXPECT_EQ(row.expected(call_of(Collective::broadcast, 0)), 128);
  EXPECT_EQ(row.expected(call_of(Collective::broadcast, 1)), 1);
  EXPECT_EQ(row.expected(call_of(Collective::reduce, 0)), 1);
  row.add(Collective::all_reduce, 0);
  EXPECT_EQ(row.expected(call_of(Collective::broadcast, 0)), 1);
}

TEST(CallStreak, WhereAllWaitForAllNothingIsExpected) {
  CallStreak row;
  for (const int expected : expectations(row, call_of(Collective::all_reduce, 0), 1000))
    ASSERT_EQ(expected, 1);
}

// Another algorithm adds in another order, and the same call is to have the same bits.
TEST(CallStreak, NothingIsExpectedOfReductionsThatRound) {
  using device::DataType;
  using device::ReduceOp;
  const auto after_ten = [](DataType type, ReduceOp op) {
    CallStreak row;
    Call call = call_of(Collective::reduce, 0);
    call.type = type;
    call.op = op;
    return expectations(row, call, 10).back();
  };
  for (const DataType type : {DataType::float32, DataType::float64, DataType::bfloat16})
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::avg})
      EXPECT_EQ(after_ten(type, op), 1);
  EXPECT_EQ(after_ten(DataType::float32, ReduceOp::max), 8);
  EXPECT_EQ(after_ten(DataType::int32, ReduceOp::sum), 8);
}

}  // namespace
}  // namespace weft::engine
