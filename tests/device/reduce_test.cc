// reduce() and scale() against the reference, on every instruction set that this CPU has: the same bits for
// any slice, alignment and aliasing.
#include "device/reduce.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "device/kernels.h"
#include "device/reference.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace weft::device {
namespace {

using reference::get;
using reference::hard_elements;

std::vector<const Kernels*> available_kernels() {
  std::vector<const Kernels*> tables;
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (const Kernels* table = kernels_for(isa)) tables.push_back(table);
  }
  return tables;
}

/// n arrays of hard elements and what they reduce to.
struct Problem {
  Reduction reduction;
  size_t count;
  std::vector<std::vector<char>> sources;
  std::vector<char> right;

  Problem(const Reduction& r, int n, size_t count)
      : reduction(r), count(count), right(count * size_of(r.type)) {
    for (int s = 0; s < n; ++s) sources.push_back(hard_elements(r.type, count, 100 + s));
    std::vector<uint64_t> elements(n);
    for (size_t i = 0; i < count; ++i) {
      for (int s = 0; s < n; ++s) elements[s] = get(r.type, sources[s].data(), i);
      // A single source that is not divided is copied, whatever its NaNs.
      const bool copied = n == 1 && (r.divisor == 1 || is_float(r.type));
      reference::set(r.type, right.data(), i, copied ? elements[0] : reference::reduce(r, elements));
    }
  }
  std::string describe(size_t i) const {
    std::string text =
        fmt::format("{} {} {} divisor {} element {}:", name_of(reduction.type), name_of(reduction.op),
                    reduction.order == Order::tree ? "tree" : "sequential", reduction.divisor, i);
    for (const auto& source : sources)
      fmt::format_to(std::back_inserter(text), " {:#x}", get(reduction.type, source.data(), i));
    return text;
  }
};

/// Reduces elements [first, first + count) of a problem with every buffer `shift` elements into an
/// allocation; dst is source `in_place`, or a buffer of its own where that is negative. What lies around dst
/// must stay.
void check_slice(const Kernels& kernels, const Problem& p, size_t first, size_t count, size_t shift,
                 int in_place) {
  const size_t element = size_of(p.reduction.type), bytes = count * element;
  const int n = static_cast<int>(p.sources.size());
  std::vector<std::vector<char>> buffers(n + 1, std::vector<char>((count + 2 * shift + 2) * element, 0x5a));
  std::vector<const void*> sources;
  for (int s = 0; s < n; ++s) {
    char* at = buffers[s].data() + (shift + (s == 0 ? 0 : 1)) * element;
    if (bytes > 0) std::memcpy(at, p.sources[s].data() + first * element, bytes);
    sources.push_back(at);
  }
  std::vector<char>& whole = in_place < 0 ? buffers[n] : buffers[in_place];
  char* dst = in_place < 0 ? buffers[n].data() + shift * element
                           : static_cast<char*>(const_cast<void*>(sources[in_place]));
  const size_t before = static_cast<size_t>(dst - whole.data());

  reduce_with(kernels, p.reduction, dst, sources.data(), n, count);

  for (size_t i = 0; i < count; ++i) {
    ASSERT_EQ(get(p.reduction.type, dst, i), get(p.reduction.type, p.right.data(), first + i))
        << kernels.name << " slice " << first << "+" << count << " shift " << shift << " in place "
        << in_place << " n " << n << "\n"
        << p.describe(first + i) << "\ngot " << fmt::format("{:#x}", get(p.reduction.type, dst, i));
  }
  for (size_t i = 0; i < whole.size(); ++i) {
    if (i >= before && i < before + bytes) continue;
    ASSERT_EQ(whole[i], 0x5a) << "wrote outside dst, byte " << i;
  }
}

class Reduce : public testing::TestWithParam<DataType> {};

TEST_P(Reduce, IsTheReferenceForEverySliceAlignmentAndAliasing) {
  constexpr size_t kCount = 4133;
  constexpr std::pair<size_t, size_t> kSlices[] = {
      {0, kCount}, {1, 4097}, {7, 1025}, {3, 257}, {11, 129}, {2, 65}, {5, 64}, {9, 33}, {4, 31},
      {6, 17},     {8, 15},   {10, 7},   {1, 5},   {2, 4},    {3, 3},  {4, 2},  {5, 1},  {0, 0}};
  for (int o = 0; o < kReduceOps; ++o) {
    const auto op = static_cast<ReduceOp>(o);
    if (!applies(op, GetParam())) continue;
    for (const Order order : {Order::sequential, Order::tree}) {
      for (const int n : {1, 2, 3, 5, 8}) {
        Problem p({GetParam(), op, order, op == ReduceOp::avg ? static_cast<uint32_t>(n) : 1u}, n, kCount);
        for (const Kernels* kernels : available_kernels()) {
          size_t shift = 0;
          for (const auto& [first, count] : kSlices) {
            check_slice(*kernels, p, first, count, shift, -1);
            check_slice(*kernels, p, first, count, shift, static_cast<int>(shift) % n);
            if (HasFatalFailure()) return;
            shift = (shift + 1) % 5;
            p.reduction.message_bytes ^= 1 << 30;  // writes every second slice around the cache
          }
        }
      }
    }
  }
}

TEST_P(Reduce, DividesIntegersByAnyDivisor) {
  if (is_float(GetParam())) GTEST_SKIP() << "an average of floats is a mean at every step";
  for (const uint32_t divisor : {1u, 3u, 4u, 7u, 1000u, 1u << 24, 4294967295u}) {
    for (const int n : {1, 2, 3}) {
      const Problem p({GetParam(), ReduceOp::avg, Order::sequential, divisor}, n, 300);
      for (const Kernels* kernels : available_kernels()) {
        check_slice(*kernels, p, 0, 300, 1, -1);
        check_slice(*kernels, p, 1, 13, 0, 0);
        if (HasFatalFailure()) return;
      }
    }
  }
}

/// Sources that hold the means of so many ranks.
const std::vector<std::vector<uint32_t>> kWeights = {
    {1, 1},       {3, 3},          {1, 7},
    {5, 3},       {1, 1, 1},       {4, 2, 1},
    {1, 1, 1, 9}, {3, 1, 1, 1, 3}, {100, 1000, 1, 1, 1, 1, 7}};

TEST_P(Reduce, AMeanWeighsItsSources) {
  if (!is_float(GetParam())) GTEST_SKIP() << "integers are added";
  for (const Order order : {Order::sequential, Order::tree}) {
    for (const auto& weights : kWeights) {
      Problem p({GetParam(), ReduceOp::avg, order, 1, weights.data()}, static_cast<int>(weights.size()),
                2005);
      for (const Kernels* kernels : available_kernels()) {
        size_t shift = 0;
        for (const size_t count : {2005, 301, 67, 33, 17, 16, 15, 8, 7, 4, 3, 2, 1}) {
          check_slice(*kernels, p, shift, count - shift % count, shift, -1);
          check_slice(*kernels, p, 2005 - count, count, shift, static_cast<int>(shift % weights.size()));
          if (HasFatalFailure()) return;
          shift = (shift + 1) % 5;
          p.reduction.message_bytes ^= 1 << 30;
        }
      }
    }
  }
}

// 16-bit floats' sums overflowed before they were divided, and e4m3's stopped at 448.
TEST_P(Reduce, AMeanOfFiniteValuesLiesBetweenThem) {
  const DataType type = GetParam();
  if (!is_float(type)) GTEST_SKIP() << "integers wrap";
  const std::vector<uint64_t> values = reference::finite_floats(type);
  constexpr size_t kCount = 1000;
  std::mt19937 random(9);
  for (const Order order : {Order::sequential, Order::tree}) {
    for (const auto& weights : kWeights) {
      const size_t n = weights.size();
      std::vector<std::vector<char>> sources(n, std::vector<char>(kCount * size_of(type)));
      for (size_t i = 0; i < kCount; ++i) {
        const bool all_equal = i % 3 == 0;
        for (size_t s = 0; s < n; ++s)
          reference::set(type, sources[s].data(), i, values[(all_equal ? i / 3 : random()) % values.size()]);
      }
      std::vector<const void*> pointers;
      for (const auto& source : sources) pointers.push_back(source.data());
      for (const Kernels* kernels : available_kernels()) {
        std::vector<char> out(kCount * size_of(type));
        reduce_with(*kernels, {type, ReduceOp::avg, order, 1, weights.data()}, out.data(), pointers.data(),
                    static_cast<int>(n), kCount);
        for (size_t i = 0; i < kCount; ++i) {
          std::vector<int64_t> operands;
          for (const auto& source : sources)
            operands.push_back(reference::order_of(type, get(type, source.data(), i)));
          const auto [least, most] = std::minmax_element(operands.begin(), operands.end());
          const int64_t got = reference::order_of(type, get(type, out.data(), i));
          ASSERT_TRUE(*least <= got && got <= *most) << kernels->name << " element " << i << " of " << n;
          if (i % 3 != 0) continue;
          ASSERT_EQ(get(type, out.data(), i), get(type, sources[0].data(), i)) << "all are equal";
        }
      }
    }
  }
}

// weft.h promises this of NaN and of zeros.
TEST_P(Reduce, MaxAndMinPassOverNan) {
  const DataType type = GetParam();
  if (!is_float(type)) GTEST_SKIP() << "integers have none";
  const reference::Format f = reference::format_of(type);
  const uint64_t nan = f.nan(), other_nan = f.nan() | f.sign(), minus_zero = f.sign(), one = f.largest() / 2;
  for (const Kernels* kernels : available_kernels()) {
    for (const ReduceOp op : {ReduceOp::max, ReduceOp::min}) {
      const auto of = [&](std::vector<uint64_t> elements) {
        constexpr size_t kCount = 37;
        std::vector<std::vector<char>> sources(elements.size(), std::vector<char>(kCount * size_of(type)));
        std::vector<const void*> pointers;
        for (size_t s = 0; s < elements.size(); ++s) {
          for (size_t i = 0; i < kCount; ++i) reference::set(type, sources[s].data(), i, elements[s]);
          pointers.push_back(sources[s].data());
        }
        std::vector<char> out(kCount * size_of(type));
        reduce_with(*kernels, {type, op}, out.data(), pointers.data(), static_cast<int>(elements.size()),
                    kCount);
        for (size_t i = 1; i < kCount; ++i)
          EXPECT_EQ(get(type, out.data(), i), get(type, out.data(), 0)) << kernels->name;
        return get(type, out.data(), 0);
      };
      EXPECT_EQ(of({nan, one}), one) << kernels->name << " " << name_of(op);
      EXPECT_EQ(of({one, other_nan}), one) << kernels->name << " " << name_of(op);
      EXPECT_EQ(of({other_nan, one, nan}), one) << kernels->name << " " << name_of(op);
      EXPECT_EQ(of({other_nan, other_nan}), nan) << kernels->name << " " << name_of(op);
      EXPECT_EQ(of({minus_zero, 0}), op == ReduceOp::max ? 0 : minus_zero) << kernels->name;
      EXPECT_EQ(of({0, minus_zero}), op == ReduceOp::max ? 0 : minus_zero) << kernels->name;
    }
  }
}

TEST_P(Reduce, EveryPairOfAByte) {
  const DataType type = GetParam();
  if (size_of(type) != 1) GTEST_SKIP() << "only for types of one byte";
  for (int o = 0; o < kReduceOps; ++o) {
    const auto op = static_cast<ReduceOp>(o);
    if (!applies(op, GetParam())) continue;
    std::vector<unsigned char> a(65536), b(65536);
    for (size_t i = 0; i < a.size(); ++i)
      a[i] = static_cast<unsigned char>(i), b[i] = static_cast<unsigned char>(i >> 8);
    const void* sources[] = {a.data(), b.data()};
    for (const Kernels* kernels : available_kernels()) {
      std::vector<unsigned char> out(a.size());
      reduce_with(*kernels, {type, op, Order::sequential, 2}, out.data(), sources, 2, a.size());
      for (size_t i = 0; i < a.size(); ++i) {
        const uint64_t pair[] = {a[i], b[i]};
        ASSERT_EQ(out[i], reference::reduce({type, op, Order::sequential, 2}, pair) & 0xff)
            << kernels->name << " " << name_of(op) << " " << pair[0] << " " << pair[1];
      }
    }
  }
}

TEST_P(Reduce, LongRangesAroundTheCacheGiveTheSameBits) {
  const DataType type = GetParam();
  const size_t element = size_of(type), count = (9 << 20) / element + 5;
  const std::vector<char> a = hard_elements(type, 4099, 1), b = hard_elements(type, 4099, 2);
  std::vector<char> x, y;
  while (x.size() < count * element)
    x.insert(x.end(), a.begin(), a.end()), y.insert(y.end(), b.begin(), b.end());
  const void* sources[] = {x.data(), y.data(), y.data() + element};
  std::vector<char> whole((count + 2) * element, 0x5a), pieces(whole);
  for (const auto& [n, op] : {std::pair{2, ReduceOp::sum}, {3, ReduceOp::sum}, {3, ReduceOp::avg}}) {
    const Reduction sum{type, op, Order::sequential, 3};
    reduce(sum, whole.data() + element, sources, n, count - 1);
    for (size_t at = 0; at < count - 1; at += 10007) {
      const size_t piece = std::min<size_t>(10007, count - 1 - at);
      const void* moved[] = {x.data() + at * element, y.data() + at * element, y.data() + (at + 1) * element};
      reduce(sum, pieces.data() + (at + 1) * element, moved, n, piece);
    }
    ASSERT_TRUE(whole == pieces) << n << " sources";
  }
}

TEST_P(Reduce, ScalesAsAProductDoes) {
  const DataType type = GetParam();
  constexpr size_t kCount = 777;
  const std::vector<char> in = hard_elements(type, kCount, 3), scalars = hard_elements(type, 40, 4);
  for (const Kernels* kernels : available_kernels()) {
    for (size_t s = 0; s < 40; ++s) {
      std::vector<char> out(in);
      const void* scalar = scalars.data() + s * size_of(type);
      const size_t first = s % 3, count = s < 20 ? s : kCount - first;
      char* dst = out.data() + first * size_of(type);
      scale_with(*kernels, type, dst, dst, count, scalar);
      for (size_t i = 0; i < kCount; ++i) {
        const uint64_t pair[] = {get(type, in.data(), i), get(type, scalar, 0)};
        const bool scaled = i >= first && i < first + count;
        uint64_t right = scaled ? reference::reduce({type, ReduceOp::prod}, pair) : pair[0];
        if (size_of(type) < 8) right &= (uint64_t{1} << 8 * size_of(type)) - 1;
        ASSERT_EQ(get(type, out.data(), i), right) << kernels->name << " element " << i << " scalar " << s;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Reduce,
                         testing::Values(DataType::int8, DataType::uint8, DataType::int32, DataType::uint32,
                                         DataType::int64, DataType::uint64, DataType::float16,
                                         DataType::float32, DataType::float64, DataType::bfloat16,
                                         DataType::float8e4m3, DataType::float8e5m2),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(ReduceMode, TheCallersFloatModeDoesNotShowAndStays) {
#if defined(__x86_64__)
  const std::vector<float> a = {1e-40f, 1.0f, 3.0f, 1e38f}, b = {1e-40f, 1e-9f, 1e-7f, 3e38f};
  const void* sources[] = {a.data(), b.data()};
  std::vector<float> right(4), got(4);
  reduce({DataType::float32, ReduceOp::sum}, right.data(), sources, 2, 4);
  EXPECT_GT(right[0], 0);
  const unsigned saved = _mm_getcsr();
  // Flush subnormals to zero, read them as zero, round up, trap on inexact results.
  constexpr unsigned kOdd = 0x1f80 ^ 0x1000 ^ 0x8040 ^ 0x4000;
  _mm_setcsr(kOdd);
  reduce({DataType::float32, ReduceOp::sum}, got.data(), sources, 2, 4);
  const unsigned after = _mm_getcsr();
  _mm_setcsr(saved);
  EXPECT_EQ(after & ~0x3fu, kOdd);
  EXPECT_EQ(std::memcmp(got.data(), right.data(), 16), 0);
#else
  GTEST_SKIP() << "x86-64 only";
#endif
}

TEST(ReduceMany, ATreeOverAThousandSources) {
  constexpr int kSources = 1000;
  constexpr size_t kCount = 70;
  for (const Order order : {Order::sequential, Order::tree}) {
    const Problem p({DataType::float32, ReduceOp::sum, order, 1}, kSources, kCount);
    check_slice(kernels(), p, 0, kCount, 0, -1);
    check_slice(kernels(), p, 0, kCount, 0, 999);
  }
}

TEST(Names, AreThoseOfNcclTests) {
  EXPECT_STREQ(name_of(DataType::float32), "float");
  EXPECT_STREQ(name_of(DataType::float16), "half");
  EXPECT_STREQ(name_of(DataType::float8e5m2), "f8e5m2");
  EXPECT_STREQ(name_of(static_cast<DataType>(12)), "unknown");
  EXPECT_STREQ(name_of(ReduceOp::avg), "avg");
  EXPECT_STREQ(name_of(ReduceOp::bxor), "bxor");
}

}  // namespace
}  // namespace weft::device
