// Embedding, dropout, elementwise operators and AdamW.
#include "base/workers.h"
#include "ops/arrays.h"

namespace loom::testing {
namespace {

LOOM_ON_EVERY_TABLE(Embedding);
LOOM_ON_EVERY_TABLE(Dropout);
LOOM_ON_EVERY_TABLE(Elementwise);
LOOM_ON_EVERY_TABLE(Normal);
LOOM_ON_EVERY_TABLE(AdamW);

TEST_P(Embedding, ForwardAndBackwardAreTheDefinition) {
  constexpr int64_t kRows = 10, kTokens = 5, kWidth = 3, kVocabulary = 7;
  const std::vector<int32_t> token = {1, 1, 6, 0, 1, 3, 3, 3, 6, 2};
  const Doubles wte = random_values(kVocabulary * kWidth, 1), wpe = random_values(kTokens * kWidth, 2),
                dy = random_values(kRows * kWidth, 3), type = random_values(kWidth, 4);
  Workers workers(2);
  Doubles y(kRows * kWidth), dwte(wte.size(), 1), dwpe(wpe.size(), 2), dtype(kWidth, 3);
  const auto& op = table<double>();
  op.embedding_forward(workers, token.data(), nullptr, wte.data(), wpe.data(), nullptr, y.data(), kRows,
                       kTokens, kVocabulary, kWidth);
  op.embedding_backward(workers, token.data(), nullptr, dy.data(), dwte.data(), dwpe.data(), dtype.data(),
                        kRows, kTokens, kVocabulary, kWidth);
  Doubles wanted_wte(wte.size(), 1), wanted_wpe(wpe.size(), 2), wanted_type(kWidth, 3);
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t c = 0; c < kWidth; ++c) {
      EXPECT_DOUBLE_EQ(y[r * kWidth + c], wte[token[r] * kWidth + c] + wpe[r % kTokens * kWidth + c]);
      wanted_wte[token[r] * kWidth + c] += dy[r * kWidth + c];
      wanted_wpe[r % kTokens * kWidth + c] += dy[r * kWidth + c];
      wanted_type[c] += dy[r * kWidth + c];
    }
  EXPECT_LT(error_of(dwte, wanted_wte), 1e-14);
  EXPECT_LT(error_of(dwpe, wanted_wpe), 1e-14);
  EXPECT_LT(error_of(dtype, wanted_type), 1e-14);
  op.embedding_forward(workers, token.data(), nullptr, wte.data(), nullptr, type.data(), y.data(), kRows,
                       kTokens, kVocabulary, kWidth);
  EXPECT_EQ(y[0], wte[kWidth] + type[0]);
}

ops::Dropout dropout_of(float p, uint64_t first = 0) { return {p, {7, 1, 2}, first}; }

TEST_P(Dropout, DropsThatPartAndKeepsTheMean) {
  constexpr int64_t kN = 1 << 18;
  Workers workers(1);
  std::vector<float> x(kN, 1.0f), y(kN);
  table<float>().dropout(workers, dropout_of(0.3f), x.data(), y.data(), kN);
  const auto dropped = std::count(y.begin(), y.end(), 0.0f);
  EXPECT_NEAR(dropped / double{kN}, 0.3, 0.005);
  EXPECT_EQ(std::count(y.begin(), y.end(), 1.0f / (1.0f - 0.3f)), kN - dropped);
}

TEST_P(Dropout, AnySplitSeesTheSameMask) {
  constexpr int64_t kN = 50000;
  const auto& op = table<float>();
  Workers one(1), three(3);
  const auto x = as<float>(random_values(kN, 1));
  std::vector<float> whole(kN), parts(kN);
  op.dropout(three, dropout_of(0.5f), x.data(), whole.data(), kN);
  for (int64_t begin = 0, size = 1; begin < kN; begin += size, size = size * 2 + 1)
    op.dropout(one, dropout_of(0.5f, begin), x.data() + begin, parts.data() + begin,
               std::min(size, kN - begin));
  EXPECT_EQ(whole, parts);
  ops::Dropout other = dropout_of(0.5f);
  other.key.step = 2;
  op.dropout(one, other, x.data(), parts.data(), kN);
  EXPECT_NE(whole, parts);
}

TEST_P(Dropout, AddsToTheResidual) {
  const Doubles residual = random_values(100, 1), x = random_values(100, 2), bias = random_values(20, 3);
  Doubles masked(100), y(100);
  Workers workers(1);
  const auto& op = table<double>();
  op.dropout(workers, dropout_of(0.4f), x.data(), masked.data(), 100);
  op.add_dropout(workers, dropout_of(0.4f), residual.data(), x.data(), nullptr, y.data(), 5, 20);
  for (int i = 0; i < 100; ++i) EXPECT_DOUBLE_EQ(y[i], residual[i] + masked[i]);
  op.add_dropout(workers, dropout_of(0), residual.data(), x.data(), bias.data(), y.data(), 5, 20);
  for (int i = 0; i < 100; ++i) EXPECT_DOUBLE_EQ(y[i], residual[i] + (x[i] + bias[i % 20]));
}

TEST_P(Dropout, TheMaskIsThatOfSingleDraws) {
  constexpr int64_t kN = 40000;  // more than a piece
  Workers workers(1);
  const std::vector<float> x(kN, 1.0f);
  std::vector<float> y(kN);
  for (const uint64_t first : {uint64_t{0}, uint64_t{3}, (uint64_t{1} << 34) - 5}) {
    const ops::Dropout dropout = dropout_of(0.3f, first);
    table<float>().dropout(workers, dropout, x.data(), y.data(), kN);
    for (int64_t i = 0; i < kN; ++i)
      ASSERT_EQ(y[i] == 0, ops::random_word(dropout.key, first + i) < ops::drop_threshold(0.3f))
          << first << " + " << i;
  }
}

TEST_P(Normal, IsBoxAndMullersOfTheDraws) {
  constexpr int64_t kN = 40000;
  constexpr float kDeviation = 0.5f;
  const ops::RandomKey key{9, 4, 3};
  Workers workers(2);
  std::vector<float> y(kN);
  for (const uint64_t first : {uint64_t{0}, uint64_t{3}, (uint64_t{1} << 34) - 5}) {
    table<float>().normal(workers, key, first, kDeviation, y.data(), kN);
    for (int64_t i = 0; i < kN; ++i) {
      const uint64_t element = first + static_cast<uint64_t>(i), pair = element / 2 * 2;
      const double radius = std::sqrt(-2 * std::log(double{ops::uniform(ops::random_word(key, pair))}));
      const double angle = 2 * M_PI * double{ops::uniform(ops::random_word(key, pair + 1))};
      const double wanted = kDeviation * radius * (element % 2 == 0 ? std::cos(angle) : std::sin(angle));
      ASSERT_NEAR(y[i], wanted, 1e-6) << first << " + " << i;
    }
  }
}

TEST_P(Normal, TheBitsAreThoseOfEveryTable) {
  constexpr int64_t kN = 1 << 16;
  const ops::RandomKey key{1, 2, 3};
  Workers workers(1);
  std::vector<float> here(kN), there(kN);
  table<float>().normal(workers, key, 0, 1, here.data(), kN);
  for (const auto& other : ops::all_operators<float>()) {
    other.normal(workers, key, 0, 1, there.data(), kN);
    EXPECT_EQ(here, there) << other.name;
  }
}

TEST_P(Normal, HasTheMomentsOfTheDistribution) {
  constexpr int64_t kN = 1 << 20;
  Workers workers(1);
  std::vector<float> y(kN);
  table<float>().normal(workers, {5, 6, 7}, 0, 1, y.data(), kN);
  double moment[5] = {}, neighbours = 0;
  for (int64_t i = 0; i < kN; ++i) {
    double power = 1;
    for (int k = 1; k <= 4; ++k) moment[k] += (power *= y[i]) / kN;
    neighbours += double{y[i]} * y[i ^ 1] / kN;
  }
  EXPECT_NEAR(moment[1], 0, 0.005);  // five standard errors and more, each
  EXPECT_NEAR(moment[2], 1, 0.008);
  EXPECT_NEAR(moment[3], 0, 0.02);
  EXPECT_NEAR(moment[4], 3, 0.06);
  EXPECT_NEAR(neighbours, 0, 0.005);
}

TEST(Philox, IsThePublishedFunction) {
  // Known answers of Random123's kat_vectors for philox4x32 with 10 rounds; the counter's words are ours.
  const ops::Philox4 zeros = ops::philox({0, 0, 0}, 0);
  EXPECT_EQ(zeros.word[0], 0x6627e8d5u);
  EXPECT_EQ(zeros.word[1], 0xe169c58du);
  EXPECT_EQ(zeros.word[2], 0xbc57ac4cu);
  EXPECT_EQ(zeros.word[3], 0x9b00dbd8u);
  const ops::Philox4 ones = ops::philox({~uint64_t{0}, ~0u, ~0u}, ~uint64_t{0});
  EXPECT_EQ(ones.word[0], 0x408f276du);
  EXPECT_EQ(ones.word[1], 0x41c83b0eu);
  EXPECT_EQ(ones.word[2], 0xa20bc7c6u);
  EXPECT_EQ(ones.word[3], 0x6d5451fdu);
}

TEST_P(Elementwise, AddConvertAndSquares) {
  constexpr int64_t kN = 40001, kChunk = 1024;
  Workers workers(3);
  const Doubles a = rounded<float>(random_values(kN, 1)), b = rounded<float>(random_values(kN, 2));
  auto sum = as<float>(a);
  const auto bs = as<float>(b);
  const auto& op = table<bf16>();
  op.add(workers, sum.data(), bs.data(), sum.data(), kN);
  std::vector<bf16> converted(kN);
  op.convert(workers, bs.data(), converted.data(), kN);
  std::vector<double> chunks((kN + kChunk - 1) / kChunk);
  op.sum_of_squares(workers, bs.data(), kN, kChunk, chunks.data());
  double squares = 0, total = 0;
  for (int64_t i = 0; i < kN; ++i) {
    ASSERT_EQ(sum[i], static_cast<float>(a[i]) + static_cast<float>(b[i]));
    ASSERT_EQ(converted[i].bits, to_bf16(static_cast<float>(b[i])).bits);
    squares += b[i] * b[i];
  }
  for (const double chunk : chunks) total += chunk;
  EXPECT_NEAR(total, squares, 1e-9 * squares);
}

TEST(Bf16, RoundsToNearestEvenAndKeepsNaN) {
  EXPECT_EQ(to_bf16(1.0f).bits, 0x3f80);
  EXPECT_EQ(to_bf16(1.00390625f).bits, 0x3f80);  // half way, to even
  EXPECT_EQ(to_bf16(1.01171875f).bits, 0x3f82);  // half way, to even
  EXPECT_EQ(to_bf16(-3.3895314e38f).bits, 0xff7f);
  EXPECT_TRUE(std::isnan(to_float(to_bf16(NAN))));
  EXPECT_TRUE(std::isinf(to_float(to_bf16(INFINITY))));
}

template <typename T>
void expect_adamw() {
  constexpr int64_t kN = 100;
  Workers workers(1);
  Doubles master = random_values(kN, 1), first(kN), second(kN);
  auto master32 = as<float>(master);
  std::vector<float> first32(kN), second32(kN);
  std::vector<T> parameter(kN);
  Doubles expected = rounded<float>(master), m(kN), v(kN);
  for (int step = 1; step <= 5; ++step) {
    const Doubles gradient = rounded<float>(random_values(kN, 10 + step));
    const auto gradient32 = as<float>(gradient);
    const ops::AdamW settings{1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.5f, step};
    table<T>().update(workers, settings, gradient32.data(), master32.data(),
                      {first32.data(), second32.data()}, parameter.data(), kN);
    for (int64_t i = 0; i < kN; ++i) {
      const double g = gradient[i] * 0.5;
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.95 * v[i] + 0.05 * g * g;
      const double m_hat = m[i] / (1 - std::pow(0.9, step)), v_hat = v[i] / (1 - std::pow(0.95, step));
      expected[i] -= 1e-2 * 0.1 * expected[i];
      expected[i] -= 1e-2 * m_hat / (std::sqrt(v_hat) + 1e-8);
    }
  }
  EXPECT_LT(error_of(doubles(master32), expected), 1e-6);
  EXPECT_LT(error_of(doubles(parameter), expected), kTolerance<T>);
}

TEST_P(AdamW, FollowsTheDefinitionOverSteps) {
  expect_adamw<bf16>();
  expect_adamw<fp16>();
}

}  // namespace
}  // namespace loom::testing
