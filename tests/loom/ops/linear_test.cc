#include "base/workers.h"
#include "ops/arrays.h"

namespace loom::testing {
namespace {

LOOM_ON_EVERY_TABLE(Linear);
LOOM_ON_EVERY_TABLE(Head);

struct Shape {
  int64_t rows, in, out;
};

/// Of sums in fp32. Tiles take an fp16 in two parts, and leave out what the second ones give together.
template <typename T>
double tolerance_of_sums() {
  const bool two_parts = EveryTable::current() == "amx" && std::is_same_v<T, fp16>;
  return two_parts ? 4 * kTolerance<float> : kTolerance<acc_t<T>>;
}

/// Of the gradient of the head's weights, for which products of bfloat16 round the logits' beside bf16.
template <typename T>
double tolerance_of_head() {
  const bool rounds = EveryTable::has_bf16_products() && std::is_same_v<T, bf16>;
  return rounds ? kTolerance<bf16> : tolerance_of_sums<T>();
}

/// Small, larger than a tile, deeper than a panel of conversion, and so deep that all tiles take it in
/// pieces.
constexpr Shape kShapes[] = {{3, 5, 7}, {300, 40, 130}, {17, 2100, 50}, {5, 9300, 3}, {5, 3, 9300}};

/// op(a)·op(b) by the definition.
Doubles multiply(const Doubles& a, bool a_transposed, const Doubles& b, bool b_transposed, int64_t m,
                 int64_t n, int64_t k) {
  Doubles c(m * n);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t l = 0; l < k; ++l)
        c[i * n + j] +=
            (a_transposed ? a[l * m + i] : a[i * k + l]) * (b_transposed ? b[j * k + l] : b[l * n + j]);
  return c;
}

template <typename T>
void expect_linear(const Shape& s, int threads) {
  using A = acc_t<T>;
  Workers workers(threads);
  const auto& op = table<T>();
  const Doubles x = rounded<T>(random_values(s.rows * s.in, 1)),
                w = rounded<T>(random_values(s.in * s.out, 2)), bias = rounded<T>(random_values(s.out, 3)),
                dy = rounded<T>(random_values(s.rows * s.out, 4));
  const auto xt = as<T>(x), wt = as<T>(w), bt = as<T>(bias), dyt = as<T>(dy);
  std::vector<T> y(s.rows * s.out), dx(s.rows * s.in);
  std::vector<A> dw(s.in * s.out, A(9)), db(s.out, A(9));
  op.linear_forward(workers, xt.data(), wt.data(), bt.data(), y.data(), s.rows, s.in, s.out);
  op.linear_backward_input(workers, dyt.data(), wt.data(), dx.data(), s.rows, s.in, s.out);
  op.linear_backward_weight(workers, xt.data(), dyt.data(), dw.data(), db.data(), s.rows, s.in, s.out);

  Doubles wanted = multiply(x, false, w, false, s.rows, s.out, s.in), column_sums(s.out);
  for (int64_t i = 0; i < s.rows * s.out; ++i) {
    wanted[i] += bias[i % s.out];
    column_sums[i % s.out] += dy[i];
  }
  EXPECT_LT(error_of(doubles(y), wanted), kTolerance<T>);
  EXPECT_LT(error_of(doubles(dx), multiply(dy, false, w, true, s.rows, s.in, s.out)), kTolerance<T>);
  EXPECT_LT(error_of(doubles(dw), multiply(x, true, dy, false, s.in, s.out, s.rows)), tolerance_of_sums<T>());
  EXPECT_LT(error_of(doubles(db), column_sums), kTolerance<A>);

  op.linear_forward(workers, xt.data(), wt.data(), nullptr, y.data(), s.rows, s.in, s.out);
  EXPECT_LT(error_of(doubles(y), multiply(x, false, w, false, s.rows, s.out, s.in)), kTolerance<T>);
}

TEST_P(Linear, IsTheProductInEveryType) {
  for (const Shape& shape : kShapes)
    for (const int threads : {1, 3}) {
      expect_linear<double>(shape, threads);
      expect_linear<float>(shape, threads);
      expect_linear<bf16>(shape, threads);
      expect_linear<fp16>(shape, threads);
    }
}

template <typename T>
void expect_head(const Shape& s) {
  using A = acc_t<T>;
  Workers workers(2);
  const auto& op = table<T>();
  const Doubles x = rounded<T>(random_values(s.rows * s.in, 1)),
                w = rounded<T>(random_values(s.out * s.in, 2)),
                dlogits = rounded<A>(random_values(s.rows * s.out, 4));
  const Doubles b = rounded<T>(random_values(s.out, 5));
  const auto xt = as<T>(x), wt = as<T>(w), bias = as<T>(b);
  const auto dt = as<A>(dlogits);
  std::vector<A> logits(s.rows * s.out), dw(s.out * s.in, A(1)), dbias(s.out, A(1));
  std::vector<T> dx(s.rows * s.in);
  op.head_forward(workers, xt.data(), wt.data(), bias.data(), logits.data(), s.rows, s.in, s.out);
  Doubles wanted_logits = multiply(x, false, w, true, s.rows, s.out, s.in), wanted_bias(s.out);
  for (int64_t i = 0; i < s.rows * s.out; ++i) {
    wanted_logits[i] += b[i % s.out];
    wanted_bias[i % s.out] += dlogits[i];
  }
  EXPECT_LT(error_of(doubles(logits), wanted_logits), tolerance_of_sums<T>());

  Doubles wanted = multiply(dlogits, true, x, false, s.out, s.in, s.rows);
  op.head_backward(workers, dt.data(), xt.data(), wt.data(), dx.data(), dw.data(), dbias.data(), false,
                   s.rows, s.in, s.out);
  EXPECT_LT(error_of(doubles(dw), wanted), tolerance_of_head<T>());
  EXPECT_LT(error_of(doubles(dbias), wanted_bias), kTolerance<A>);
  EXPECT_LT(error_of(doubles(dx), multiply(dlogits, false, w, false, s.rows, s.in, s.out)), kTolerance<T>);
  op.head_backward(workers, dt.data(), xt.data(), wt.data(), dx.data(), dw.data(), dbias.data(), true, s.rows,
                   s.in, s.out);
  for (double& value : wanted) value *= 2;
  for (double& value : wanted_bias) value *= 2;
  EXPECT_LT(error_of(doubles(dw), wanted), tolerance_of_head<T>());
  EXPECT_LT(error_of(doubles(dbias), wanted_bias), kTolerance<A>);
}

TEST_P(Head, IsTheProductAndAddsWhenAsked) {
  for (const Shape& shape : kShapes) {
    expect_head<double>(shape);
    expect_head<float>(shape);
    expect_head<bf16>(shape);
    expect_head<fp16>(shape);
  }
}

TEST_P(Linear, TheNumberOfThreadsChangesNoBit) {
  const Shape s{257, 96, 1153};
  const auto x = as<float>(random_values(s.rows * s.in, 1)), w = as<float>(random_values(s.in * s.out, 2));
  std::vector<float> one(s.rows * s.out), three(s.rows * s.out);
  Workers single(1), several(3);
  table<float>().linear_forward(single, x.data(), w.data(), nullptr, one.data(), s.rows, s.in, s.out);
  table<float>().linear_forward(several, x.data(), w.data(), nullptr, three.data(), s.rows, s.in, s.out);
  EXPECT_EQ(one, three);
}

}  // namespace
}  // namespace loom::testing
