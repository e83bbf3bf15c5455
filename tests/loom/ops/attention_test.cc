#include "ops/arrays.h"

namespace loom::testing {
namespace {

using ops::AttentionShape;

AttentionShape shape_of(int64_t batch, int64_t tokens, int64_t heads, int64_t size, float dropout = 0) {
  AttentionShape shape{batch, tokens, heads, size, 1 / std::sqrt(static_cast<float>(size)), {}};
  shape.dropout = {dropout, {42, 3, 5}, 1000};
  return shape;
}

/// softmax(q·kᵀ · scale + causal mask) · v by the definition, with the whole matrix of probabilities.
Doubles reference(const AttentionShape& s, const Doubles& qkv) {
  const int64_t width = s.width();
  Doubles out(s.batch * s.tokens * width);
  for (int64_t part = 0; part < s.batch * s.heads; ++part) {
    const int64_t row = part / s.heads * s.tokens, column = part % s.heads * s.head_size;
    const auto at = [&](int64_t t, int64_t which, int64_t d) {
      return qkv[(row + t) * 3 * width + which * width + column + d];
    };
    for (int64_t i = 0; i < s.tokens; ++i) {
      Doubles p(i + 1);
      double sum = 0;
      for (int64_t j = 0; j <= i; ++j) {
        double score = 0;
        for (int64_t d = 0; d < s.head_size; ++d) score += at(i, 0, d) * at(j, 1, d);
        sum += p[j] = std::exp(score * static_cast<double>(s.scale));
      }
      for (int64_t j = 0; j <= i; ++j) {
        const uint64_t element = s.dropout.first + (part * s.tokens + i) * s.tokens + j;
        const bool dropped =
            ops::random_word(s.dropout.key, element) < ops::drop_threshold(s.dropout.probability);
        const double keep = static_cast<double>(1.0f / (1.0f - s.dropout.probability));
        const double weight = dropped ? 0 : p[j] / sum * keep;
        for (int64_t d = 0; d < s.head_size; ++d) out[(row + i) * width + column + d] += weight * at(j, 2, d);
      }
    }
  }
  return out;
}

struct Outputs {
  Doubles out, dqkv;
};

template <typename T>
Outputs run(const AttentionShape& s, const Doubles& qkv, const Doubles& dout, int threads = 1) {
  Workers workers(threads);
  const auto in = as<T>(qkv), d = as<T>(dout);
  std::vector<T> out(dout.size()), dqkv(qkv.size());
  std::vector<acc_t<T>> lse(s.batch * s.heads * s.tokens);
  ops::operators<T>().attention_forward(workers, s, in.data(), out.data(), lse.data());
  ops::operators<T>().attention_backward(workers, s, in.data(), out.data(), lse.data(), d.data(),
                                         dqkv.data());
  return {doubles(out), doubles(dqkv)};
}

struct Inputs {
  explicit Inputs(const AttentionShape& s)
      : qkv(random_values(s.batch * s.tokens * 3 * s.width(), 1)),
        dout(random_values(s.batch * s.tokens * s.width(), 2)) {}
  Doubles qkv, dout;
};

TEST(Attention, IsTheReference) {
  // Within a tile, at its edge, and over several tiles with a ragged end.
  for (const AttentionShape& s : {shape_of(2, 5, 3, 4), shape_of(1, 128, 1, 8), shape_of(1, 300, 2, 4)}) {
    const Inputs in(s);
    const Doubles wanted = reference(s, in.qkv);
    EXPECT_LT(error_of(run<double>(s, in.qkv, in.dout).out, wanted), 1e-12);
    EXPECT_LT(error_of(run<float>(s, in.qkv, in.dout).out, wanted), 1e-5);
    EXPECT_LT(error_of(run<bf16>(s, rounded<bf16>(in.qkv), in.dout).out, reference(s, rounded<bf16>(in.qkv))),
              kTolerance<bf16>);
  }
}

TEST(Attention, GradientsAreFiniteDifferences) {
  for (const AttentionShape& s : {shape_of(2, 5, 2, 3), shape_of(1, 6, 1, 2, 0.3f)}) {
    const Inputs in(s);
    const auto loss = [&](const Doubles& qkv) { return weighted(run<double>(s, qkv, in.dout).out, in.dout); };
    EXPECT_LT(error_of(run<double>(s, in.qkv, in.dout).dqkv, finite_differences(loss, in.qkv)),
              kDifferenceTolerance);
  }
}

TEST(Attention, GradientsOverSeveralTilesAreFiniteDifferences) {
  // Too many elements to change each: directions at random.
  const AttentionShape s = shape_of(1, 270, 1, 4);
  const Inputs in(s);
  const Doubles gradient = run<double>(s, in.qkv, in.dout).dqkv;
  for (uint32_t seed = 10; seed < 14; ++seed) {
    const Doubles direction = random_values(in.qkv.size(), seed);
    const auto loss_at = [&](double step) {
      Doubles moved = in.qkv;
      for (size_t i = 0; i < moved.size(); ++i) moved[i] += step * direction[i];
      return weighted(reference(s, moved), in.dout);
    };
    const double wanted = (loss_at(1e-5) - loss_at(-1e-5)) / 2e-5;
    EXPECT_NEAR(weighted(gradient, direction), wanted, 1e-6 * std::fabs(wanted));
  }
  EXPECT_LT(error_of(run<float>(s, in.qkv, in.dout).dqkv, gradient), 1e-5);
  EXPECT_LT(error_of(run<bf16>(s, in.qkv, in.dout).dqkv, gradient), 3e-2);
}

TEST(Attention, DropoutIsTheReference) {
  const AttentionShape s = shape_of(2, 140, 2, 4, 0.25f);
  const Inputs in(s);
  EXPECT_LT(error_of(run<double>(s, in.qkv, in.dout).out, reference(s, in.qkv)), 1e-12);
}

TEST(Attention, LargeScoresDoNotOverflow) {
  const AttentionShape s = shape_of(1, 140, 1, 4);
  const Inputs in(s);
  Doubles large = in.qkv;
  for (double& value : large) value *= 30;
  const Outputs got = run<float>(s, large, in.dout);
  EXPECT_LT(error_of(got.out, run<double>(s, large, in.dout).out), 1e-3);
  EXPECT_LT(error_of(got.dqkv, run<double>(s, large, in.dout).dqkv), 1e-2);
}

TEST(Attention, TheNumberOfThreadsChangesNoBit) {
  const AttentionShape s = shape_of(2, 150, 3, 8);
  const Inputs in(s);
  const Outputs one = run<float>(s, in.qkv, in.dout, 1), three = run<float>(s, in.qkv, in.dout, 3);
  EXPECT_EQ(one.out, three.out);
  EXPECT_EQ(one.dqkv, three.dqkv);
}

}  // namespace
}  // namespace loom::testing
