// What the tests of operators share: suites over every table that this CPU can run, arrays (random ones,
// conversions, comparisons), and gradients by finite differences.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "ops/tables.h"

namespace loom::testing {

/// A suite whose tests run once for each instruction set that this CPU has: table<T>() is that one's.
class EveryTable : public ::testing::TestWithParam<std::string> {
 public:
  static const std::string& current() { return name(); }
  /// Whether it multiplies bfloat16 as such, which longer floats beside one are rounded to.
  static bool has_bf16_products() { return current() == "amx" || current() == "avx512_bf16"; }

 protected:
  EveryTable() { name() = GetParam(); }

 private:
  static std::string& name() {
    static std::string name;
    return name;
  }
};

/// Of double there is the baseline's only, whichever is tested, and of longer floats none of instructions for
/// bfloat16: the best of theirs then.
template <typename T>
const ops::Operators<T>& table() {
  const std::span<const ops::Operators<T>> all = ops::all_operators<T>();
  for (const ops::Operators<T>& each : all)
    if (EveryTable::current() == each.name) return each;
  const bool without_tiles = all.front().name == std::string("amx") && EveryTable::current() != "amx";
  return EveryTable::has_bf16_products() ? all[without_tiles ? 1 : 0] : all.back();
}

inline std::vector<std::string> table_names() {
  std::vector<std::string> names;
  for (const auto& each : ops::all_operators<bf16>()) names.push_back(each.name);
  return names;
}

/// Declares a suite over every table; its tests are TEST_P.
#define LOOM_ON_EVERY_TABLE(suite)                                         \
  class suite : public EveryTable {};                                      \
  INSTANTIATE_TEST_SUITE_P(Ops, suite, ::testing::ValuesIn(table_names()), \
                           [](const auto& info) { return std::string(info.param); })

using Doubles = std::vector<double>;

/// Normal values of a fixed seed, times `scale`, plus `shift`.
inline Doubles random_values(int64_t n, uint32_t seed, double scale = 1, double shift = 0) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal(shift, scale);
  Doubles values(n);
  for (double& value : values) value = normal(engine);
  return values;
}

template <typename T>
std::vector<T> as(const Doubles& values) {
  std::vector<T> converted(values.size());
  for (size_t i = 0; i < values.size(); ++i) store(converted[i], static_cast<acc_t<T>>(values[i]));
  return converted;
}

template <typename T>
Doubles doubles(const std::vector<T>& values) {
  Doubles converted(values.size());
  for (size_t i = 0; i < values.size(); ++i) converted[i] = load(values[i]);
  return converted;
}

/// What T can hold of a value: comparisons start from inputs that all types share.
template <typename T>
Doubles rounded(const Doubles& values) {
  return doubles(as<T>(values));
}

/// Largest difference, as a part of the largest value wanted.
inline double error_of(const Doubles& got, const Doubles& wanted) {
  EXPECT_EQ(got.size(), wanted.size());
  double worst = 0, largest = 1e-30;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!std::isfinite(got[i])) return INFINITY;
    worst = std::max(worst, std::fabs(got[i] - wanted[i]));
    largest = std::max(largest, std::fabs(wanted[i]));
  }
  return worst / largest;
}

/// What rounding may cost, as a part of the largest value.
template <typename T>
constexpr double kTolerance = 1e-12;
template <>
inline constexpr double kTolerance<float> = 4e-6;
template <>
inline constexpr double kTolerance<bf16> = 1.5e-2;
template <>
inline constexpr double kTolerance<fp16> = 2e-3;

/// dLoss/dx by central differences in fp64, where loss(x) is a scalar.
inline Doubles finite_differences(const std::function<double(const Doubles&)>& loss, Doubles x) {
  constexpr double kStep = 1e-5;
  Doubles gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double before = x[i];
    x[i] = before + kStep;
    const double above = loss(x);
    x[i] = before - kStep;
    gradient[i] = (above - loss(x)) / (2 * kStep);
    x[i] = before;
  }
  return gradient;
}

/// Σ weight · y: a scalar whose gradient with respect to y is `weight`.
inline double weighted(const Doubles& y, const Doubles& weight) {
  double sum = 0;
  for (size_t i = 0; i < y.size(); ++i) sum += y[i] * weight[i];
  return sum;
}

constexpr double kDifferenceTolerance = 1e-8;

/// That `gradient` is that of Σ dy · forward(x) with respect to x, in fp64: each element, or, of arrays with
/// too many of them, along directions at random.
inline void expect_gradient(const Doubles& x, const Doubles& gradient,
                            const std::function<Doubles(const Doubles&)>& forward, const Doubles& dy) {
  constexpr size_t kMostElements = 1000;
  ASSERT_EQ(gradient.size(), x.size());
  const auto loss = [&](const Doubles& changed) { return weighted(forward(changed), dy); };
  if (x.size() <= kMostElements) {
    EXPECT_LT(error_of(gradient, finite_differences(loss, x)), kDifferenceTolerance);
    return;
  }
  for (uint32_t seed = 100; seed < 104; ++seed) {
    const Doubles direction = random_values(static_cast<int64_t>(x.size()), seed);
    const auto loss_at = [&](double step) {
      Doubles moved = x;
      for (size_t i = 0; i < moved.size(); ++i) moved[i] += step * direction[i];
      return loss(moved);
    };
    const double size = std::sqrt(weighted(gradient, gradient));
    EXPECT_NEAR(weighted(gradient, direction), (loss_at(1e-5) - loss_at(-1e-5)) / 2e-5, 1e-6 * size)
        << "direction " << seed;
  }
}

}  // namespace loom::testing
