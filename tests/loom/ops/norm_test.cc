#include "base/workers.h"
#include "ops/arrays.h"

namespace loom::testing::norm_test {
namespace {

LOOM_ON_EVERY_TABLE(LayerNorm);

constexpr int64_t kRows = 21, kWidth = 19;
constexpr float kEpsilon = 1e-5f;

struct Inputs {
  Doubles x = random_values(kRows * kWidth, 1, 2, 0.5), weight = random_values(kWidth, 2),
          bias = random_values(kWidth, 3), dy = random_values(kRows * kWidth, 4);
};

Doubles reference(const Inputs& in) {
  Doubles y(in.x.size());
  for (int64_t r = 0; r < kRows; ++r) {
    double mean = 0, square = 0;
    for (int64_t c = 0; c < kWidth; ++c) {
      mean += in.x[r * kWidth + c] / kWidth;
      square += in.x[r * kWidth + c] * in.x[r * kWidth + c] / kWidth;
    }
    const double deviation = std::sqrt(square - mean * mean + static_cast<double>(kEpsilon));
    for (int64_t c = 0; c < kWidth; ++c)
      y[r * kWidth + c] = (in.x[r * kWidth + c] - mean) / deviation * in.weight[c] + in.bias[c];
  }
  return y;
}

struct Outputs {
  Doubles y, dx, dweight, dbias;
};

/// Whether a gradient is added to dx, overwrites what is there, or what is there is dy.
enum class Into { added_to, overwritten, dy };

/// dx starts as `before`.
template <typename T>
Outputs run(const Inputs& in, double before = 0, int threads = 1, Into into = Into::added_to) {
  using A = acc_t<T>;
  Workers workers(threads);
  const auto& op = table<T>();
  const auto x = as<T>(in.x), weight = as<T>(in.weight), bias = as<T>(in.bias), dy = as<T>(in.dy);
  std::vector<T> y(x.size()), dx = into == Into::dy ? dy : as<T>(Doubles(x.size(), before));
  std::vector<A> mean(kRows), rstd(kRows), dweight(kWidth, A(7)), dbias(kWidth, A(7));
  op.norm_forward(workers, x.data(), weight.data(), bias.data(), y.data(), mean.data(), rstd.data(), kRows,
                  kWidth, kEpsilon);
  op.norm_backward(workers, x.data(), weight.data(), mean.data(), rstd.data(),
                   into == Into::dy ? dx.data() : dy.data(), dx.data(), into == Into::added_to,
                   dweight.data(), dbias.data(), kRows, kWidth);
  return {doubles(y), doubles(dx), doubles(dweight), doubles(dbias)};
}

TEST_P(LayerNorm, IsTheReference) {
  const Inputs in;
  EXPECT_LT(error_of(run<double>(in).y, reference(in)), 1e-12);
}

TEST_P(LayerNorm, GradientsAreFiniteDifferences) {
  const Inputs in;
  const Outputs out = run<double>(in);
  const auto check = [&](Doubles Inputs::*what, const Doubles& gradient) {
    const auto forward = [&](const Doubles& changed) {
      Inputs other = in;
      other.*what = changed;
      return run<double>(other).y;
    };
    expect_gradient(in.*what, gradient, forward, in.dy);
  };
  check(&Inputs::x, out.dx);
  check(&Inputs::weight, out.dweight);
  check(&Inputs::bias, out.dbias);
}

template <typename T>
void expect_close() {
  Inputs in;
  for (Doubles* values : {&in.x, &in.weight, &in.bias, &in.dy}) *values = rounded<T>(*values);
  const Outputs got = run<T>(in), wanted = run<double>(in);
  EXPECT_LT(error_of(got.y, wanted.y), kTolerance<T>);
  EXPECT_LT(error_of(got.dx, wanted.dx), kTolerance<T>);
  EXPECT_LT(error_of(got.dweight, wanted.dweight), kTolerance<float>);
  EXPECT_LT(error_of(got.dbias, wanted.dbias), kTolerance<float>);
}

TEST_P(LayerNorm, Fp32IsCloseToFp64) { expect_close<float>(); }
TEST_P(LayerNorm, Bf16IsCloseToFp64) { expect_close<bf16>(); }
TEST_P(LayerNorm, Fp16IsCloseToFp64) { expect_close<fp16>(); }

TEST_P(LayerNorm, AddsToTheInputsGradient) {
  const Inputs in;
  const Outputs plain = run<double>(in), more = run<double>(in, 3);
  for (size_t i = 0; i < plain.dx.size(); ++i) EXPECT_NEAR(more.dx[i], plain.dx[i] + 3, 1e-12);
}

template <typename T>
void expect_overwritten() {
  Inputs in;
  for (Doubles* values : {&in.x, &in.weight, &in.bias, &in.dy}) *values = rounded<T>(*values);
  const Outputs added = run<T>(in);
  for (const Into into : {Into::overwritten, Into::dy})
    for (const int threads : {1, 3}) {
      const Outputs other = run<T>(in, 5, threads, into);
      EXPECT_EQ(other.dx, added.dx);
      EXPECT_EQ(other.dweight, added.dweight);
      EXPECT_EQ(other.dbias, added.dbias);
    }
}

TEST_P(LayerNorm, OverwritesAndMayAliasDy) {
  expect_overwritten<double>();
  expect_overwritten<float>();
  expect_overwritten<bf16>();
  expect_overwritten<fp16>();
}

TEST_P(LayerNorm, TheNumberOfThreadsChangesNoBit) {
  const Inputs in;
  const Outputs one = run<float>(in, 0, 1), three = run<float>(in, 0, 3);
  EXPECT_EQ(one.y, three.y);
  EXPECT_EQ(one.dx, three.dx);
  EXPECT_EQ(one.dweight, three.dweight);
}

/// Rows of three heads of queries and two of keys; three rows at least for each part of the sums.
constexpr ops::HeadRows kHeads{50, 3, 2, 6};

struct HeadOutputs {
  Doubles y, d, dweight;
};
template <typename T>
HeadOutputs run_heads(const Doubles& qkv, const Doubles& weight, const Doubles& dy, int threads = 1) {
  using A = acc_t<T>;
  Workers workers(threads);
  const auto& op = table<T>();
  const auto x = as<T>(qkv), w = as<T>(weight);
  std::vector<T> y(x.size(), T(7)), d = as<T>(dy);
  std::vector<A> rstd(static_cast<size_t>(kHeads.rows * kHeads.normed_heads())), dweight(w.size(), A(7));
  op.head_norm_forward(workers, kHeads, x.data(), w.data(), y.data(), rstd.data(), kEpsilon);
  op.head_norm_backward(workers, kHeads, x.data(), w.data(), rstd.data(), d.data(), dweight.data());
  return {doubles(y), doubles(d), doubles(dweight)};
}

/// What the norm of rows makes of each head.
HeadOutputs heads_one_by_one(const Doubles& qkv, const Doubles& weight, const Doubles& dy) {
  Workers workers(1);
  const auto& op = table<double>();
  HeadOutputs out{qkv, dy, Doubles(weight.size())};
  const int64_t size = kHeads.head_size;
  for (int64_t row = 0; row < kHeads.rows; ++row)
    for (int64_t head = 0; head < kHeads.normed_heads(); ++head) {
      const int64_t at = row * kHeads.stride() + head * size, kind = head < kHeads.heads ? 0 : size;
      Doubles dweight(static_cast<size_t>(size));
      double rstd = 0;
      op.norm_forward(workers, qkv.data() + at, weight.data() + kind, nullptr, out.y.data() + at, nullptr,
                      &rstd, 1, size, kEpsilon);
      op.norm_backward(workers, qkv.data() + at, weight.data() + kind, nullptr, &rstd, dy.data() + at,
                       out.d.data() + at, false, dweight.data(), nullptr, 1, size);
      for (int64_t c = 0; c < size; ++c) out.dweight[kind + c] += dweight[c];
    }
  return out;
}

template <typename T>
void expect_heads() {
  const Doubles qkv = rounded<T>(random_values(kHeads.rows * kHeads.stride(), 1)),
                weight = rounded<T>(random_values(2 * kHeads.head_size, 2)),
                dy = rounded<T>(random_values(kHeads.rows * kHeads.stride(), 3));
  const HeadOutputs got = run_heads<T>(qkv, weight, dy), wanted = heads_one_by_one(qkv, weight, dy);
  EXPECT_LT(error_of(got.y, wanted.y), kTolerance<T>);
  EXPECT_LT(error_of(got.d, wanted.d), kTolerance<T>);
  EXPECT_LT(error_of(got.dweight, wanted.dweight), kTolerance<float>);
  const HeadOutputs three = run_heads<T>(qkv, weight, dy, 3);
  EXPECT_EQ(three.y, got.y);
  EXPECT_EQ(three.d, got.d);
  EXPECT_EQ(three.dweight, got.dweight);
  for (int64_t row = 0; row < kHeads.rows; ++row)
    for (int64_t c = kHeads.normed_heads() * kHeads.head_size; c < kHeads.stride(); ++c)
      ASSERT_EQ(got.y[row * kHeads.stride() + c], qkv[row * kHeads.stride() + c]) << "values stay";
}

TEST_P(LayerNorm, HeadsAreNormedOneByOne) {
  expect_heads<double>();
  expect_heads<float>();
  expect_heads<bf16>();
  expect_heads<fp16>();
}

}  // namespace
}  // namespace loom::testing::norm_test
