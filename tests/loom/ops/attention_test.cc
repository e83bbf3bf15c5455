#include "base/workers.h"
#include "ops/arrays.h"
#include "ops/texts.h"

namespace loom::testing {
namespace {

LOOM_ON_EVERY_TABLE(Attention);
LOOM_ON_EVERY_TABLE(Rotary);

using ops::AttentionShape;

AttentionShape shape_of(int64_t batch, int64_t tokens, int64_t heads, int64_t size, float dropout = 0) {
  AttentionShape shape;
  shape.batch = batch, shape.tokens = tokens, shape.heads = heads, shape.head_size = size;
  shape.scale = 1 / std::sqrt(static_cast<float>(size));
  shape.dropout = {dropout, {42, 3, 5}, 1000};
  return shape;
}

/// ALiBi's slope of one of `heads` heads, as the paper lists them: 1/4, 1/16 … for 4, and for 6 then 1/2,
/// 1/8.
double slope_of(int64_t head, int64_t heads) {
  static const double kFour[] = {1 / 4.0, 1 / 16.0, 1 / 64.0, 1 / 256.0, 1 / 2.0, 1 / 8.0};
  static const double kTwo[] = {1 / 16.0, 1 / 256.0, 1 / 4.0};
  return heads >= 4 ? kFour[head] : kTwo[head];
}

/// softmax(q·kᵀ · scale + masks) · v by the definition, with the whole matrix of probabilities.
Doubles reference(const AttentionShape& s, const Doubles& qkv) {
  const int64_t width = s.width();
  Doubles out(s.batch * s.tokens * width);
  for (int64_t part = 0; part < s.batch * s.heads; ++part) {
    const int64_t row = part / s.heads * s.tokens, column = part % s.heads * s.head_size;
    const int64_t group = part % s.heads / (s.heads / s.key_heads());
    const int64_t columns[] = {column, width + group * s.head_size,
                               width + s.key_width() + group * s.head_size};
    const auto at = [&](int64_t t, int64_t which, int64_t d) {
      return qkv[(row + t) * s.qkv_width() + columns[which] + d];
    };
    for (int64_t i = 0; i < s.tokens; ++i) {
      const int64_t length = s.lengths != nullptr ? s.lengths[part / s.heads] : s.tokens;
      Doubles p(s.tokens);
      double sum = 0;
      for (int64_t j = 0; j < s.tokens; ++j) {
        if (s.causal ? j > i || (s.window > 0 && i - j >= s.window) : j >= length) continue;
        if (s.begins != nullptr && s.begins[row + i] != s.begins[row + j]) continue;
        double score = 0;
        for (int64_t d = 0; d < s.head_size; ++d) score += at(i, 0, d) * at(j, 1, d);
        score *= static_cast<double>(s.scale);
        if (s.alibi) score += slope_of(part % s.heads, s.heads) * static_cast<double>(j - i);
        sum += p[j] = std::exp(score);
      }
      for (int64_t j = 0; j < s.tokens; ++j) {
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
  table<T>().attention_forward(workers, s, in.data(), out.data(), lse.data());
  table<T>().attention_backward(workers, s, in.data(), out.data(), lse.data(), d.data(), dqkv.data());
  return {doubles(out), doubles(dqkv)};
}

struct Inputs {
  explicit Inputs(const AttentionShape& s)
      : qkv(random_values(s.batch * s.tokens * s.qkv_width(), 1)),
        dout(random_values(s.batch * s.tokens * s.width(), 2)) {}
  Doubles qkv, dout;
};

TEST_P(Attention, IsTheReference) {
  // Within a tile, at its edge, and over several tiles with a ragged end.
  for (const AttentionShape& s : {shape_of(2, 5, 3, 4), shape_of(1, 128, 1, 8), shape_of(1, 300, 2, 4)}) {
    const Inputs in(s);
    const Doubles wanted = reference(s, in.qkv);
    EXPECT_LT(error_of(run<double>(s, in.qkv, in.dout).out, wanted), 1e-12);
    EXPECT_LT(error_of(run<float>(s, in.qkv, in.dout).out, wanted), 1e-5);
    EXPECT_LT(error_of(run<bf16>(s, rounded<bf16>(in.qkv), in.dout).out, reference(s, rounded<bf16>(in.qkv))),
              kTolerance<bf16>);
    EXPECT_LT(error_of(run<fp16>(s, rounded<fp16>(in.qkv), in.dout).out, reference(s, rounded<fp16>(in.qkv))),
              kTolerance<fp16>);
  }
}

/// The masks of all families: windows that end in a tile and at its edge, padding, ALiBi; and texts that
/// share a sequence.
std::vector<AttentionShape> masked_shapes(int64_t tokens, const std::vector<int32_t>& lengths,
                                          const Texts& texts) {
  AttentionShape window = shape_of(2, tokens, 2, 3), both_ways = window, alibi = shape_of(2, tokens, 3, 2);
  window.window = tokens / 2;
  both_ways.causal = false;
  both_ways.lengths = lengths.data();
  alibi.alibi = true;
  AttentionShape narrow = window, dropped = both_ways, shared = window, one_key = dropped;
  narrow.window = 1;
  dropped.dropout.probability = 0.25f;
  shared.heads = 6, shared.key_value_heads = 2;
  one_key.heads = 3, one_key.key_value_heads = 1;
  AttentionShape several = shape_of(2, tokens, 2, 3, 0.25f), several_and_all = shared;
  for (AttentionShape* s : {&several, &several_and_all}) texts.divide(*s);
  return {window, narrow, both_ways, dropped, alibi, shared, one_key, several, several_and_all};
}

TEST_P(Attention, MasksAreTheReference) {
  for (const int64_t tokens : {5, 300}) {
    const std::vector<int32_t> lengths = {static_cast<int32_t>(tokens), static_cast<int32_t>(tokens / 3)};
    const Texts texts(tokens);
    for (const AttentionShape& s : masked_shapes(tokens, lengths, texts)) {
      const Inputs in(s);
      const Doubles wanted = reference(s, in.qkv);
      EXPECT_LT(error_of(run<double>(s, in.qkv, in.dout).out, wanted), 1e-12);
      EXPECT_LT(error_of(run<float>(s, in.qkv, in.dout).out, wanted), 1e-5);
    }
  }
}

/// A text has the bits of itself alone, where its first token begins a tile.
TEST_P(Attention, OfATextIsThatOfTheTextAlone) {
  AttentionShape both = shape_of(1, 256 + 40, 2, 4), alone = shape_of(1, 40, 2, 4);
  std::vector<int32_t> begins(296, 0), ends(296, 256);
  std::fill(begins.begin() + 256, begins.end(), 256);
  std::fill(ends.begin() + 256, ends.end(), 296);
  both.begins = begins.data(), both.ends = ends.data();
  const Inputs in(both);
  const auto last = [&](const Doubles& all, int64_t width) {
    return Doubles(all.end() - 40 * width, all.end());
  };
  const Outputs wanted = run<float>(alone, last(in.qkv, 24), last(in.dout, 8)),
                is = run<float>(both, in.qkv, in.dout);
  EXPECT_EQ(last(is.out, 8), wanted.out);
  EXPECT_EQ(last(is.dqkv, 24), wanted.dqkv);
}

TEST_P(Attention, GradientsOfMasksAreFiniteDifferences) {
  const std::vector<int32_t> lengths = {5, 2};
  const Texts texts(5);
  for (const AttentionShape& s : masked_shapes(5, lengths, texts)) {
    const Inputs in(s);
    const auto forward = [&](const Doubles& qkv) { return reference(s, qkv); };
    expect_gradient(in.qkv, run<double>(s, in.qkv, in.dout).dqkv, forward, in.dout);
  }
}

TEST_P(Attention, PartOfTheHeadsIsTheSameAsAll) {
  AttentionShape all = shape_of(2, 9, 4, 2, 0.3f), half = all;
  all.alibi = half.alibi = true;
  half.heads = 2, half.first_head = 2, half.all_heads = 4;
  const Inputs in(all);
  Doubles some(2 * 9 * 3 * half.width());
  for (int64_t row = 0; row < 18; ++row)
    for (int64_t c = 0; c < 12; ++c) some[row * 12 + c] = in.qkv[row * 24 + c / 4 * 8 + 4 + c % 4];
  const Doubles whole = run<double>(all, in.qkv, in.dout).out,
                part = run<double>(half, some, Doubles(72)).out;
  for (int64_t row = 0; row < 18; ++row)
    for (int64_t c = 0; c < 4; ++c) EXPECT_DOUBLE_EQ(part[row * 4 + c], whole[row * 8 + 4 + c]);
}

TEST_P(Attention, AStepIsTheLastRow) {
  const std::vector<int32_t> lengths = {11};
  const Texts texts(11);
  for (AttentionShape s : masked_shapes(11, lengths, texts)) {
    if (!s.causal) continue;
    s.batch = 1, s.dropout = {};
    const Inputs in(s);
    const int64_t width = s.width(), across = s.key_width(), row = s.qkv_width();
    const Doubles whole = reference(s, in.qkv);
    Doubles keys(11 * across), values(11 * across), out(width);
    for (int64_t t = 0; t < 11; ++t)
      for (int64_t c = 0; c < across; ++c)
        keys[t * across + c] = in.qkv[t * row + width + c],
                          values[t * across + c] = in.qkv[t * row + width + across + c];
    Workers workers(1);
    AttentionShape one = s;
    one.tokens = 1;
    for (const int64_t position : {0, 6, 10}) {
      table<double>().attention_step(workers, one, in.qkv.data() + position * row, keys.data(), values.data(),
                                     position, out.data());
      for (int64_t c = 0; c < width; ++c) EXPECT_NEAR(out[c], whole[position * width + c], 1e-12);
    }
  }
}

TEST_P(Rotary, TurnsPairsByTheirAngles) {
  for (const bool interleaved : {false, true}) {
    ops::RotaryShape s;
    s.batch = 2, s.tokens = 3, s.heads = 2, s.head_size = 6, s.dims = 4, s.first_position = 5;
    s.interleaved = interleaved;
    Workers workers(2);
    const Doubles in = random_values(6 * 36, 1);
    Doubles turned = in;
    table<double>().rotary(workers, s, turned.data(), false);
    for (int64_t row = 0; row < 6; ++row)
      for (int64_t head = 0; head < 6; ++head)
        for (int64_t d = 0; d < 6; ++d) {
          const int64_t first = row * 36 + head * 6, pair = interleaved ? d / 2 : d % 2;
          const double angle = static_cast<double>(5 + row % 3) * (pair == 0 ? 1.0 : 0.01);
          const int64_t x = first + (interleaved ? 2 * pair : pair), y = x + (interleaved ? 1 : 2);
          double wanted = in[first + d];
          if (head < 4 && d < 4)
            wanted = first + d == x ? in[x] * std::cos(angle) - in[y] * std::sin(angle)
                                    : in[y] * std::cos(angle) + in[x] * std::sin(angle);
          EXPECT_NEAR(turned[first + d], wanted, 1e-12);
        }
    // The gradient of a rotation is the rotation back.
    table<double>().rotary(workers, s, turned.data(), true);
    EXPECT_LT(error_of(turned, in), 1e-14);
  }
}

/// Frequencies of 4 pairs, by the formulas of `transformers`, for one position.
TEST_P(Rotary, ScalingSlowsPairs) {
  const double usual[] = {1, 0.1, 0.01, 0.001};  // base 10000, 8 dimensions
  struct Scaled {
    ops::RotaryScaling by;
    double frequencies[4];
  };
  // Over 600 tokens they turn 95, 9.5, 0.95 and 0.095 times. Between 0.5 and 2 turns lies the third.
  const double turns = 600 * 0.01 / (2 * M_PI), part = (turns - 0.5) / 1.5;
  for (const auto& [by, wanted] :
       {Scaled{{.factor = 4}, {0.25, 0.025, 0.0025, 0.00025}},
        Scaled{{.factor = 8, .context = 600, .low = 0.5f, .high = 2},
               {1, 0.1, (1 - part) * usual[2] / 8 + part * usual[2], usual[3] / 8}}}) {
    ops::RotaryShape s;
    s.batch = s.tokens = 1, s.heads = 1, s.head_size = s.dims = 8, s.first_position = 37;
    s.scaling = by;
    Workers workers(1);
    Doubles qkv(24, 0.0);
    for (int64_t pair = 0; pair < 4; ++pair) qkv[pair] = 1;
    table<double>().rotary(workers, s, qkv.data(), false);
    for (int64_t pair = 0; pair < 4; ++pair) {
      EXPECT_NEAR(qkv[pair], std::cos(37 * wanted[pair]), 1e-9) << pair;
      EXPECT_NEAR(qkv[pair + 4], std::sin(37 * wanted[pair]), 1e-9) << pair;
    }
  }
}

TEST_P(Rotary, TurnsQueriesAndTheFewerKeys) {
  ops::RotaryShape s;
  s.batch = 1, s.tokens = 2, s.heads = 4, s.key_value_heads = 2, s.head_size = s.dims = 2;
  Workers workers(1);
  const Doubles in = random_values(2 * 16, 1);
  Doubles turned = in;
  table<double>().rotary(workers, s, turned.data(), false);
  for (int64_t i = 0; i < 16; ++i) EXPECT_EQ(turned[i], in[i]) << "position 0";
  for (int64_t i = 0; i < 12; i += 2)
    EXPECT_NEAR(turned[16 + i], in[16 + i] * std::cos(1.0) - in[17 + i] * std::sin(1.0), 1e-12);
  for (int64_t i = 12; i < 16; ++i) EXPECT_EQ(turned[16 + i], in[16 + i]) << "values";
}

TEST_P(Attention, GradientsAreFiniteDifferences) {
  AttentionShape shared = shape_of(2, 5, 6, 3);
  shared.key_value_heads = 2;
  for (const AttentionShape& s : {shape_of(2, 5, 2, 3), shape_of(1, 6, 1, 2, 0.3f), shared}) {
    const Inputs in(s);
    const auto forward = [&](const Doubles& qkv) { return run<double>(s, qkv, in.dout).out; };
    expect_gradient(in.qkv, run<double>(s, in.qkv, in.dout).dqkv, forward, in.dout);
  }
}

TEST_P(Attention, GradientsOverSeveralTilesAreFiniteDifferences) {
  const AttentionShape s = shape_of(1, 270, 1, 4);
  const Inputs in(s);
  const Doubles gradient = run<double>(s, in.qkv, in.dout).dqkv;
  expect_gradient(
      in.qkv, gradient, [&](const Doubles& qkv) { return reference(s, qkv); }, in.dout);
  EXPECT_LT(error_of(run<float>(s, in.qkv, in.dout).dqkv, gradient), 1e-5);
  EXPECT_LT(error_of(run<bf16>(s, in.qkv, in.dout).dqkv, gradient), 3e-2);
  EXPECT_LT(error_of(run<fp16>(s, in.qkv, in.dout).dqkv, gradient), 4e-3);
}

TEST_P(Attention, DropoutIsTheReference) {
  const AttentionShape s = shape_of(2, 140, 2, 4, 0.25f);
  const Inputs in(s);
  EXPECT_LT(error_of(run<double>(s, in.qkv, in.dout).out, reference(s, in.qkv)), 1e-12);
}

TEST_P(Attention, LargeScoresDoNotOverflow) {
  const AttentionShape s = shape_of(1, 140, 1, 4);
  const Inputs in(s);
  Doubles large = in.qkv;
  for (double& value : large) value *= 30;
  const Outputs got = run<float>(s, large, in.dout);
  EXPECT_LT(error_of(got.out, run<double>(s, large, in.dout).out), 1e-3);
  EXPECT_LT(error_of(got.dqkv, run<double>(s, large, in.dout).dqkv), 1e-2);
}

TEST_P(Attention, TheNumberOfThreadsChangesNoBit) {
  const AttentionShape s = shape_of(2, 150, 3, 8);
  const Inputs in(s);
  const Outputs one = run<float>(s, in.qkv, in.dout, 1), three = run<float>(s, in.qkv, in.dout, 3);
  EXPECT_EQ(one.out, three.out);
  EXPECT_EQ(one.dqkv, three.dqkv);
}

}  // namespace
}  // namespace loom::testing
