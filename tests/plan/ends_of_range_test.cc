// Every type, operator, algorithm and kind of layout, with values at the ends of the type's range. As weft.h
// says, sums and products may overflow, and nothing else does.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>
#include <random>
#include <tuple>

#include "device/reference.h"
#include "execute.h"
#include "plans.h"

namespace weft::plan {
namespace {

using device::DataType;
using device::ReduceOp;
using device::reference::decode;
using device::reference::finite_floats;
using device::reference::Format;
using device::reference::format_of;
using device::reference::get;
using device::reference::order_of;
using testing::Bytes;
using topology::Layout;

bool is_float(DataType type) { return type >= DataType::float16; }
bool is_signed(DataType type) {
  return type == DataType::int8 || type == DataType::int32 || type == DataType::int64;
}

/// An integer element's value, modulo 2^64.
uint64_t extend(DataType type, uint64_t bits) {
  const int unused = 64 - 8 * static_cast<int>(device::size_of(type));
  return is_signed(type) ? static_cast<uint64_t>(static_cast<int64_t>(bits << unused) >> unused)
                         : bits << unused >> unused;
}

/// Decoded by the language for the wide types; the reference's formats are too short for these.
double value_of(DataType type, uint64_t bits) {
  if (type == DataType::float32) return std::bit_cast<float>(static_cast<uint32_t>(bits));
  if (type == DataType::float64) return std::bit_cast<double>(bits);
  return decode(format_of(type), bits);
}

/// Elements of every rank: every third has the same value on all, the others any of the range's ends.
std::vector<Bytes> inputs_of(DataType type, size_t count, int ranks) {
  std::mt19937_64 random(static_cast<uint64_t>(ranks));
  std::vector<uint64_t> values;
  if (is_float(type)) values = finite_floats(type);
  else
    for (const int64_t value : {INT64_MIN, int64_t{INT32_MIN}, int64_t{INT8_MIN}, int64_t{-1}, int64_t{0},
                                int64_t{1}, int64_t{2}, int64_t{INT8_MAX}, int64_t{INT32_MAX}, INT64_MAX})
      values.push_back(static_cast<uint64_t>(value));
  std::vector<Bytes> inputs(static_cast<size_t>(ranks), Bytes(count * device::size_of(type)));
  for (size_t i = 0; i < count; ++i)
    for (Bytes& input : inputs)
      device::reference::set(type, input.data(), i, values[(i % 3 == 0 ? i / 3 : random()) % values.size()]);
  return inputs;
}

/// Whether a result is what its operands allow.
class Judge {
 public:
  Judge(DataType type, ReduceOp op) : type_(type), op_(op), format_(format_of(type)) {}

  ::testing::AssertionResult judge(const std::vector<uint64_t>& operands, uint64_t result) const {
    const bool good = is_float(type_) ? good_float(operands, result) : good_integer(operands, result);
    if (good) return ::testing::AssertionSuccess();
    auto failure = ::testing::AssertionFailure() << std::hex << result << " is no " << name_of(op_) << " of";
    for (const uint64_t operand : operands) failure << ' ' << operand;
    return failure << " as " << name_of(type_);
  }

 private:
  bool good_integer(const std::vector<uint64_t>& operands, uint64_t result) const {
    const auto less = [&](uint64_t a, uint64_t b) {
      return is_signed(type_) ? static_cast<int64_t>(a) < static_cast<int64_t>(b) : a < b;
    };
    uint64_t right = extend(type_, operands[0]);
    for (size_t r = 1; r < operands.size(); ++r) {
      const uint64_t operand = extend(type_, operands[r]);
      if (op_ == ReduceOp::prod) right *= operand;
      else if (op_ == ReduceOp::max) right = std::max(right, operand, less);
      else if (op_ == ReduceOp::min) right = std::min(right, operand, less);
      else if (op_ == ReduceOp::band) right &= operand;
      else if (op_ == ReduceOp::bor) right |= operand;
      else if (op_ == ReduceOp::bxor) right ^= operand;
      else right += operand;
    }
    right = extend(type_, right);  // it wraps
    if (op_ == ReduceOp::avg && is_signed(type_))
      right = static_cast<uint64_t>(static_cast<int64_t>(right) / static_cast<int64_t>(operands.size()));
    else if (op_ == ReduceOp::avg) right /= operands.size();
    return extend(type_, result) == right;
  }

  bool is_finite(uint64_t bits) const { return (bits & (format_.sign() - 1)) <= format_.largest(); }

  bool good_float(const std::vector<uint64_t>& operands, uint64_t result) const {
    const auto less = [&](uint64_t a, uint64_t b) {  // -0 is below +0
      const int64_t x = order_of(type_, a), y = order_of(type_, b);
      return x < y || (x == y && (a & format_.sign()) > (b & format_.sign()));
    };
    const auto [least, most] = std::minmax_element(operands.begin(), operands.end(), less);
    if (op_ == ReduceOp::max) return result == *most;
    if (op_ == ReduceOp::min) return result == *least;
    if (op_ == ReduceOp::avg)
      return *least == *most ? result == *least
                             : is_finite(result) && order_of(type_, *least) <= order_of(type_, result) &&
                                   order_of(type_, result) <= order_of(type_, *most);
    double bound = op_ == ReduceOp::sum ? 0 : 1;  // no partial result is larger
    const double shrink = 1.0 / 1024;             // so that it does not overflow itself
    for (const uint64_t operand : operands) {
      const double magnitude = std::fabs(value_of(type_, operand));
      bound = op_ == ReduceOp::sum ? bound + magnitude * shrink : bound * std::max(1.0, magnitude);
    }
    if (op_ == ReduceOp::prod) bound *= shrink;
    return is_finite(result) || bound > value_of(type_, format_.largest()) * shrink * 0.5;
  }

  const DataType type_;
  const ReduceOp op_;
  const Format format_;
};

struct Case {
  const Algorithm& algorithm;
  const Layout& layout;
  const Limits& limits;
  bool strict;
};

class EndsOfRange : public ::testing::TestWithParam<int> {
 protected:
  void check(const Case& c) {
    const auto type = static_cast<DataType>(GetParam());
    const size_t ranks = static_cast<size_t>(c.layout.ranks()), element = device::size_of(type);
    const bool scatters = c.algorithm.collective == Collective::reduce_scatter;
    const size_t count = scatters ? 40 : 40 * ranks;  // the same elements in all
    const Request request{.collective = c.algorithm.collective,
                          .count = count,
                          .element_bytes = static_cast<uint32_t>(element),
                          .root = c.layout.ranks() - 1,
                          .strict = c.strict};
    if (!c.algorithm.fits(request, c.layout, c.limits).ok()) return;
    const std::vector<Plan> plans = testing::make_all(c.algorithm, request, c.layout, c.limits);
    const std::vector<Bytes> inputs = inputs_of(type, 40 * ranks, c.layout.ranks());
    for (int o = 0; o < device::kReduceOps; ++o) {
      const auto op = static_cast<ReduceOp>(o);
      if (!device::applies(op, type)) continue;
      const std::vector<Bytes> outputs = testing::Execution(plans, inputs, type, op).run();
      ++executed_;
      Bytes whole(inputs[0].size());
      for (size_t rank = 0; rank < ranks; ++rank) {
        if (outputs[rank].empty()) continue;
        const size_t at = scatters ? rank * count * element : 0;
        if (c.algorithm.collective == Collective::all_reduce) {
          ASSERT_EQ(outputs[rank], outputs[0]) << describe(c, request, op);
        }
        std::copy(outputs[rank].begin(), outputs[rank].end(), whole.begin() + static_cast<ptrdiff_t>(at));
      }
      for (size_t i = 0; i < 40 * ranks; ++i) {
        std::vector<uint64_t> operands;
        for (const Bytes& input : inputs) operands.push_back(get(type, input.data(), i));
        ASSERT_TRUE(Judge(type, op).judge(operands, get(type, whole.data(), i))) << describe(c, request, op);
      }
      if (!c.strict) continue;
      const auto [first, is_new] = strict_.try_emplace({c.layout.ranks(), o}, whole);
      ASSERT_EQ(whole, first->second) << "another algorithm's bits differ from " << describe(c, request, op);
    }
  }

  static std::string describe(const Case& c, const Request& request, ReduceOp op) {
    return fmt::format("{}: {}", name_of(op), testing::describe(c.algorithm, request, c.layout, c.limits));
  }

  int executed_ = 0;
  std::map<std::pair<int, int>, Bytes> strict_;  // by ranks and operator
};

TEST_P(EndsOfRange, OverflowInSumsAndProductsOnly) {
  const Layout layouts[] = {Layout::blocks(1, 1), Layout::blocks(1, 2),          Layout::blocks(1, 3),
                            Layout::blocks(3, 1), Layout::blocks(2, 2),          Layout::blocks(1, 7),
                            Layout::blocks(7, 1), Layout({0, 1, 0, 1, 2, 1, 0}), Layout::blocks(4, 2),
                            Layout::blocks(2, 6), Layout({0, 0, 0, 0, 1, 2, 2}), Layout::blocks(1, 13)};
  const Limits eager{.eager_intra_bytes = 1 << 20, .eager_inter_bytes = 1 << 20, .slice_bytes = 1 << 20};
  const Limits sliced{.eager_intra_bytes = 0, .eager_inter_bytes = 0, .slice_bytes = 256, .nic_bound = true};
  for (const Algorithm& algorithm : algorithms()) {
    if (!reduces(algorithm.collective)) continue;
    for (const Layout& layout : layouts) {
      for (const Limits* limits : {&eager, &sliced}) {
        for (const bool strict : {false, true}) {
          check({algorithm, layout, *limits, strict});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
  EXPECT_GT(executed_, 1500);
}

INSTANTIATE_TEST_SUITE_P(Types, EndsOfRange, ::testing::Range(0, device::kDataTypes), [](const auto& info) {
  return std::string(name_of(static_cast<DataType>(info.param)));
});

}  // namespace
}  // namespace weft::plan
