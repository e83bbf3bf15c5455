// The conversions of fp16, by the plain rules, and sums of what it holds.
#include <algorithm>

#include "base/workers.h"
#include "ops/arrays.h"
#include "plain_float16.h"

namespace loom::testing {
namespace {

TEST(Fp16Conversion, OfEveryValueIsThePlainOne) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const fp16 x{static_cast<uint16_t>(bits)};
    const float wanted = of_plain_f16(x.bits);
    if (std::isnan(wanted)) {
      ASSERT_TRUE(std::isnan(to_float(x))) << bits;
      continue;
    }
    ASSERT_EQ(std::bit_cast<uint32_t>(to_float(x)), std::bit_cast<uint32_t>(wanted)) << bits;
    ASSERT_EQ(to_fp16(wanted).bits, x.bits);
  }
}

/// Every value and what lies half way to the next, a little above and a little below it, and far away.
std::vector<float> hard_values() {
  std::vector<float> values = {0.0f, 65519.99f, 65520.0f, 1e30f, 1e-30f, 1e-45f, INFINITY, NAN};
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const float here = of_plain_f16(static_cast<uint16_t>(bits));
    const float next = bits == 0x7bff ? 65536.0f : of_plain_f16(static_cast<uint16_t>(bits + 1));
    const float half_way = (here + next) / 2;
    for (const float value :
         {here, half_way, std::nextafter(half_way, 0.0f), std::nextafter(half_way, INFINITY)})
      values.push_back(value);
  }
  const size_t positive = values.size();
  for (size_t i = 0; i < positive; ++i) values.push_back(-values[i]);
  return values;
}

LOOM_ON_EVERY_TABLE(Fp16);

TEST_P(Fp16, RoundsToNearestEvenInLoopsToo) {
  const std::vector<float> values = hard_values();
  std::vector<fp16> converted(values.size());
  Workers workers(2);
  table<fp16>().convert(workers, values.data(), converted.data(), static_cast<int64_t>(values.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(to_fp16(values[i]).bits, converted[i].bits) << values[i];
    if (std::isnan(values[i])) {
      ASSERT_TRUE(std::isnan(to_float(converted[i])));
    } else {
      ASSERT_EQ(converted[i].bits, plain_f16(values[i])) << values[i];
    }
  }
}

/// Sums are in fp32: what a product adds up to may be larger than fp16 holds, if what is stored is not.
TEST_P(Fp16, SumsMayBeLargerThanTheType) {
  constexpr int64_t kDepth = 3000;
  Workers workers(1);
  std::vector<fp16> x(kDepth, to_fp16(256.0f)), w(kDepth, to_fp16(256.0f)), y(1), bias(1);
  std::fill(w.begin() + kDepth / 2, w.end(), to_fp16(-256.0f));  // 98 million, and back again
  bias[0] = to_fp16(7.0f);
  table<fp16>().linear_forward(workers, x.data(), w.data(), bias.data(), y.data(), 1, kDepth, 1);
  EXPECT_EQ(to_float(y[0]), 7.0f);
  w.back() = to_fp16(256.0f);
  table<fp16>().linear_forward(workers, x.data(), w.data(), nullptr, y.data(), 1, kDepth, 1);
  EXPECT_TRUE(std::isinf(to_float(y[0])));
}

/// Whatever overflows on its way through attention still shows in its gradients.
TEST_P(Fp16, AttentionHidesNoInfinity) {
  ops::AttentionShape shape;
  shape.batch = 1, shape.tokens = 6, shape.heads = 1, shape.head_size = 4, shape.scale = 0.5f;
  const auto run = [&](size_t poisoned, float poison) {
    Workers workers(1);
    std::vector<fp16> qkv = as<fp16>(random_values(6 * 12, 1)), out(6 * 4), dqkv(6 * 12);
    const std::vector<fp16> dout = as<fp16>(random_values(6 * 4, 2));
    std::vector<float> lse(6);
    if (poison != 0) qkv[poisoned] = to_fp16(poison);
    const auto& op = table<fp16>();
    op.attention_forward(workers, shape, qkv.data(), out.data(), lse.data());
    op.attention_backward(workers, shape, qkv.data(), out.data(), lse.data(), dout.data(), dqkv.data());
    return std::all_of(dqkv.begin(), dqkv.end(), [](fp16 x) { return std::isfinite(to_float(x)); });
  };
  EXPECT_TRUE(run(0, 0));
  for (size_t at = 0; at < 6 * 12; ++at)
    for (const float poison : {INFINITY, -INFINITY, NAN})
      EXPECT_FALSE(run(at, poison)) << at << ' ' << poison;
}

}  // namespace
}  // namespace loom::testing
