// The perf tools' data: what they expect is what the library's arithmetic gives, in every order, and they
// notice when it is not so.
#include "values.h"

#include <gtest/gtest.h>

#include <cstring>

#include "device/reduce.h"

namespace weft::perf {
namespace {

constexpr size_t kCount = Pattern::kPeriod + 100;  // more than one period

using Bytes = std::vector<std::byte>;

/// How contributions come together.
enum class Way { at_once, by_tree, one_by_one };

/// The library's result for all contributions.
Bytes reduce(weftDataType_t type, Operator op, int ranks, Way way) {
  const size_t bytes = kCount * size_of(type);
  std::vector<Bytes> contributions(static_cast<size_t>(ranks), Bytes(bytes));
  std::vector<const void*> sources;
  for (int rank = 0; rank < ranks; ++rank) {
    Bytes& mine = contributions[static_cast<size_t>(rank)];
    Pattern::contribution(type, op, 7, rank, ranks).fill(mine.data(), 0, kCount);
    if (op == Operator::mulsum) {
      const uint64_t scalar = premul_scalar(type, rank);
      device::scale(static_cast<device::DataType>(type), mine.data(), mine.data(), kCount, &scalar);
    }
    sources.push_back(mine.data());
  }
  device::Reduction reduction;
  reduction.type = static_cast<device::DataType>(type);
  reduction.op = op == Operator::mulsum ? device::ReduceOp::sum : static_cast<device::ReduceOp>(op);
  reduction.order = way == Way::by_tree ? device::Order::tree : device::Order::sequential;
  const uint32_t divisor = op == Operator::avg ? static_cast<uint32_t>(ranks) : 1;
  Bytes result(bytes);
  if (way != Way::one_by_one) {
    reduction.divisor = divisor;
    device::reduce(reduction, result.data(), sources.data(), ranks, kCount);
    return result;
  }
  result = contributions[0];
  for (int rank = 1; rank < ranks; ++rank) {
    const uint32_t weights[] = {static_cast<uint32_t>(rank), 1};
    reduction.weights = weights;
    if (rank + 1 == ranks) reduction.divisor = divisor;
    const void* const both[] = {result.data(), sources[static_cast<size_t>(rank)]};
    device::reduce(reduction, result.data(), both, 2, kCount);
  }
  return result;
}

class Values : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(EveryType, Values, testing::Range(0, static_cast<int>(weftNumTypes)));

TEST_P(Values, ExpectWhatTheLibraryComputesInEveryOrder) {
  const auto type = static_cast<weftDataType_t>(GetParam());
  for (const Operator op : {Operator::sum, Operator::prod, Operator::max, Operator::min, Operator::avg,
                            Operator::band, Operator::bor, Operator::bxor, Operator::mulsum}) {
    if (!applies(op, type)) continue;
    for (const int ranks : {1, 2, 3, 4, 7, 16, 31}) {
      const Pattern expected = Pattern::reduced(type, op, 7, ranks);
      for (const auto way : {Way::at_once, Way::by_tree, Way::one_by_one}) {
        const Bytes result = reduce(type, op, ranks, way);
        EXPECT_EQ(expected.mismatches(result.data(), 0, kCount), 0u)
            << "type " << type << " operator " << static_cast<int>(op) << " ranks " << ranks;
      }
    }
  }
}

TEST_P(Values, CountEveryElementThatIsWrong) {
  const auto type = static_cast<weftDataType_t>(GetParam());
  const size_t bytes = size_of(type);
  const Pattern pattern = Pattern::contribution(type, Operator::none, 1, 0, 4);
  Bytes data(kCount * bytes);
  pattern.fill(data.data(), 3, kCount);
  EXPECT_EQ(pattern.mismatches(data.data(), 3, kCount), 0u);
  for (const size_t element : {size_t{0}, Pattern::kPeriod, kCount - 1})
    data[element * bytes] ^= std::byte{0x40};
  EXPECT_EQ(pattern.mismatches(data.data(), 3, kCount), 3u);
}

TEST_P(Values, DifferBetweenRanksSeedsAndPlaces) {
  const auto type = static_cast<weftDataType_t>(GetParam());
  Bytes data(kCount * size_of(type));
  Pattern::contribution(type, Operator::none, 1, 0, 4).fill(data.data(), 0, kCount);
  const size_t most = kCount / 2;
  EXPECT_GT(Pattern::contribution(type, Operator::none, 1, 1, 4).mismatches(data.data(), 0, kCount), most);
  EXPECT_GT(Pattern::contribution(type, Operator::none, 2, 0, 4).mismatches(data.data(), 0, kCount), most);
  EXPECT_GT(Pattern::contribution(type, Operator::none, 1, 0, 4).mismatches(data.data(), 4096, kCount), most);
}

TEST(Values, ReducedDataIsNotTrivial) {
  // A reduction that forgets a rank must show, also in the types with the fewest bits.
  for (int type = 0; type < weftNumTypes; ++type) {
    for (const Operator op : {Operator::sum, Operator::prod, Operator::max, Operator::min, Operator::avg}) {
      const auto t = static_cast<weftDataType_t>(type);
      Bytes one(kCount * size_of(t));
      Pattern::contribution(t, op, 5, 0, 3).fill(one.data(), 0, kCount);
      EXPECT_GT(Pattern::reduced(t, op, 5, 3).mismatches(one.data(), 0, kCount), kCount / 10) << type;
    }
  }
}

}  // namespace
}  // namespace weft::perf
