#include "base/workers.h"
#include "ops/arrays.h"

namespace loom::testing {
namespace {

LOOM_ON_EVERY_TABLE(Activations);

using ops::Activation;

constexpr Activation kAll[] = {Activation::gelu_tanh, Activation::gelu_erf, Activation::relu,
                               Activation::silu, Activation::tanh};

double reference(Activation activation, double x) {
  switch (activation) {
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::gelu_erf: return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::relu: return std::max(x, 0.0);
    case Activation::silu: return x / (1 + std::exp(-x));
    case Activation::tanh: return std::tanh(x);
  }
  return NAN;
}

/// Values from -12 to 12; none is 0, where ReLU has no slope.
Doubles inputs() {
  Doubles x;
  for (int i = 0; i < 40000; ++i) x.push_back(-12 + (i + 0.5) * 24 / 40000);
  return x;
}

template <typename T>
Doubles forward(Activation activation, const Doubles& x, int threads = 1) {
  Workers workers(threads);
  const auto in = as<T>(x);
  std::vector<T> y(x.size());
  table<T>().activation_forward(workers, activation, in.data(), y.data(), y.size());
  return doubles(y);
}

template <typename T>
Doubles backward(Activation activation, const Doubles& x, const Doubles& dy) {
  Workers workers(1);
  const auto in = as<T>(x);
  auto dx = as<T>(dy);
  table<T>().activation_backward(workers, activation, in.data(), dx.data(), dx.data(), dx.size());
  return doubles(dx);
}

TEST_P(Activations, IsTheReference) {
  const Doubles x = inputs();
  for (const Activation activation : kAll) {
    Doubles wanted;
    for (const double value : x) wanted.push_back(reference(activation, value));
    EXPECT_LT(error_of(forward<double>(activation, x), wanted), 1e-14);
    // Not only where values are large: GELU's left tail is small, but not 0.
    const Doubles got = forward<float>(activation, rounded<float>(x));
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_NEAR(got[i], wanted[i], 1e-6 * std::max(1.0, std::fabs(x[i]))) << x[i];
  }
}

TEST_P(Activations, FarFromZeroIsTheLimit) {
  Doubles x;
  for (const double size : {20.0, 100.0, 1e4, 1e9, 1e18})
    for (int i = 0; i < 17; ++i)
      x.push_back(i % 2 == 0 ? size : -size);  // in whole vectors and at their ends
  const Doubles ones(x.size(), 1.0);
  for (const Activation activation : {Activation::gelu_tanh, Activation::gelu_erf, Activation::silu}) {
    const Doubles y = forward<float>(activation, rounded<float>(x)),
                  slope = backward<float>(activation, x, ones);
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(y[i], std::max(x[i], 0.0), 1e-6 * std::max(x[i], 0.0) + 1e-6) << x[i];
      EXPECT_NEAR(slope[i], x[i] > 0 ? 1.0 : 0.0, 1e-6) << x[i];
    }
  }
}

TEST_P(Activations, SlopesAreFiniteDifferences) {
  const Doubles x = inputs(), dy = random_values(x.size(), 5);
  for (const Activation activation : kAll) {
    constexpr double kStep = 1e-6;
    Doubles wanted;
    for (size_t i = 0; i < x.size(); ++i)
      wanted.push_back((reference(activation, x[i] + kStep) - reference(activation, x[i] - kStep)) /
                       (2 * kStep) * dy[i]);
    EXPECT_LT(error_of(backward<double>(activation, x, dy), wanted), kDifferenceTolerance);
    EXPECT_LT(error_of(backward<float>(activation, x, dy), wanted), 1e-5);
    EXPECT_LT(error_of(backward<bf16>(activation, rounded<bf16>(x), rounded<bf16>(dy)),
                       backward<double>(activation, rounded<bf16>(x), rounded<bf16>(dy))),
              kTolerance<bf16>);
    EXPECT_LT(error_of(backward<fp16>(activation, rounded<fp16>(x), rounded<fp16>(dy)),
                       backward<double>(activation, rounded<fp16>(x), rounded<fp16>(dy))),
              kTolerance<fp16>);
  }
}

TEST_P(Activations, AGateMultipliesTheOtherHalf) {
  constexpr int64_t kRows = 5, kWidth = 19;
  const Doubles x = random_values(kRows * 2 * kWidth, 3, 3);
  Workers workers(1);
  for (const Activation activation : kAll) {
    Doubles y(kRows * kWidth), wanted;
    for (int64_t i = 0; i < kRows * kWidth; ++i) {
      const int64_t gate = i / kWidth * 2 * kWidth + i % kWidth;
      wanted.push_back(reference(activation, x[gate]) * x[gate + kWidth]);
    }
    table<double>().gated_forward(workers, activation, x.data(), y.data(), kRows, kWidth);
    EXPECT_LT(error_of(y, wanted), 1e-14);
  }
}

TEST_P(Activations, ANaNStaysOneAndInfinityStaysFinite) {
  for (const Activation activation : kAll) {
    EXPECT_TRUE(std::isnan(forward<float>(activation, {NAN})[0]));
    const bool bounded = activation == Activation::tanh;
    EXPECT_EQ(forward<float>(activation, {1e30})[0], bounded ? 1 : static_cast<double>(1e30f));
    EXPECT_NEAR(forward<float>(activation, {-1e4})[0], bounded ? -1 : 0, 1e-6);
  }
}

TEST_P(Activations, TheNumberOfThreadsChangesNoBit) {
  const Doubles x = inputs();
  EXPECT_EQ(forward<float>(Activation::gelu_tanh, x, 1), forward<float>(Activation::gelu_tanh, x, 3));
}

}  // namespace
}  // namespace loom::testing
