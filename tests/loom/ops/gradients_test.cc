// Every operator in every type, on every table: gradients are finite differences in fp64, the other types are
// close to fp64, and the number of threads changes no bit.
//
// An operator is a case: inputs, each with a gradient; derivatives of its output; and run<T>(), which gives
// the output and the gradients. What adds to an array is given one that is not zero.
#include "base/workers.h"
#include "ops/arrays.h"
#include "ops/texts.h"

namespace loom::testing::gradients_test {
namespace {

LOOM_ON_EVERY_TABLE(EveryOperator);

using Inputs = std::vector<Doubles>;

struct Array {
  Doubles values;
  double tolerance = 0;  // of the type that it was stored in
};
template <typename E>
Array array(const std::vector<E>& values) {
  return {doubles(values), kTolerance<E>};
}

struct Results {
  Array y;
  std::vector<Array> gradients;  // of each input
};

constexpr double kBefore = 1;  // what arrays hold that are added to
template <typename A>
Array added(std::vector<A> sums) {
  for (A& sum : sums) sum -= A(kBefore);
  return array(sums);
}

void expect_close(const Array& got, const Array& wanted, double slack, const std::string& what) {
  EXPECT_LT(error_of(got.values, wanted.values), got.tolerance * slack) << what;
}

/// `slack`: how many times as much rounding as of one sum.
template <typename T, typename Case>
void expect_type(const Case& c, double slack, const char* type) {
  SCOPED_TRACE(type);
  Inputs in = c.inputs();
  for (Doubles& values : in) values = rounded<T>(values);
  const Doubles dy = rounded<T>(c.dy());
  const Results got = c.template run<T>(in, dy, 1), more = c.template run<T>(in, dy, 3),
                wanted = c.template run<double>(in, dy, 1);
  expect_close(got.y, wanted.y, slack, "y");
  EXPECT_EQ(got.y.values, more.y.values) << "three threads";
  for (size_t i = 0; i < in.size(); ++i) {
    expect_close(got.gradients[i], wanted.gradients[i], slack, fmt::format("gradient {}", i));
    EXPECT_EQ(got.gradients[i].values, more.gradients[i].values) << "gradient " << i << ", three threads";
  }
}

template <typename Case>
void expect_right(const Case& c, double slack = 1) {
  const Inputs in = c.inputs();
  const Doubles dy = c.dy();
  const Results results = c.template run<double>(in, dy, 1);
  ASSERT_EQ(results.gradients.size(), in.size());
  for (size_t i = 0; i < in.size(); ++i) {
    SCOPED_TRACE(fmt::format("input {}", i));
    const auto forward = [&](const Doubles& changed) {
      Inputs other = in;
      other[i] = changed;
      return c.template run<double>(other, dy, 1).y.values;
    };
    expect_gradient(in[i], results.gradients[i].values, forward, dy);
  }
  expect_type<float>(c, slack, "fp32");
  expect_type<bf16>(c, slack, "bf16");
  expect_type<fp16>(c, slack, "fp16");
}

struct LinearCase {
  int64_t rows, in, out;
  Inputs inputs() const {
    return {random_values(rows * in, 1), random_values(in * out, 2), random_values(out, 3)};
  }
  Doubles dy() const { return random_values(rows * out, 4); }

  template <typename T>
  Results run(const Inputs& from, const Doubles& derivatives, int threads) const {
    using A = acc_t<T>;
    Workers workers(threads);
    const auto& op = table<T>();
    const auto x = as<T>(from[0]), w = as<T>(from[1]), bias = as<T>(from[2]), dy = as<T>(derivatives);
    std::vector<T> y(rows * out), dx(rows * in);
    std::vector<A> dw(in * out, A(9)), dbias(out, A(9));
    op.linear_forward(workers, x.data(), w.data(), bias.data(), y.data(), rows, in, out);
    op.linear_backward_input(workers, dy.data(), w.data(), dx.data(), rows, in, out);
    op.linear_backward_weight(workers, x.data(), dy.data(), dw.data(), dbias.data(), rows, in, out);
    return {array(y), {array(dx), array(dw), array(dbias)}};
  }
};

TEST_P(EveryOperator, Linear) {
  expect_right(LinearCase{3, 5, 7});
  expect_right(LinearCase{70, 40, 130});
}

struct HeadCase {
  int64_t rows, width, vocabulary;
  bool has_bias, adds;
  Inputs inputs() const {
    Inputs in = {random_values(rows * width, 1), random_values(vocabulary * width, 2)};
    if (has_bias) in.push_back(random_values(vocabulary, 3));
    return in;
  }
  Doubles dy() const { return random_values(rows * vocabulary, 4); }

  template <typename T>
  Results run(const Inputs& from, const Doubles& derivatives, int threads) const {
    using A = acc_t<T>;
    Workers workers(threads);
    const auto& op = table<T>();
    const auto x = as<T>(from[0]), w = as<T>(from[1]);
    const auto bias = has_bias ? as<T>(from[2]) : std::vector<T>();
    const auto dlogits = as<A>(derivatives);
    std::vector<A> logits(rows * vocabulary), dw(vocabulary * width, A(kBefore)),
        dbias(vocabulary, A(kBefore));
    std::vector<T> dx(rows * width);
    op.head_forward(workers, x.data(), w.data(), has_bias ? bias.data() : nullptr, logits.data(), rows, width,
                    vocabulary);
    op.head_backward(workers, dlogits.data(), x.data(), w.data(), dx.data(), dw.data(),
                     has_bias ? dbias.data() : nullptr, adds, rows, width, vocabulary);
    Results results{array(logits), {array(dx), adds ? added(dw) : array(dw)}};
    if (has_bias) results.gradients.push_back(adds ? added(dbias) : array(dbias));
    return results;
  }
};

TEST_P(EveryOperator, Head) {
  for (const bool has_bias : {false, true})
    for (const bool adds : {false, true}) {
      expect_right(HeadCase{4, 3, 6, has_bias, adds});
      expect_right(HeadCase{60, 32, 90, has_bias, adds});
    }
}

/// Tokens that repeat, and leave some of the vocabulary unused.
std::vector<int32_t> tokens_of(int64_t rows, int64_t vocabulary) {
  std::vector<int32_t> tokens(static_cast<size_t>(rows));
  for (int64_t row = 0; row < rows; ++row)
    tokens[static_cast<size_t>(row)] = static_cast<int32_t>((row * row * 2 + 1) % vocabulary);
  return tokens;
}

struct EmbeddingCase {
  int64_t rows, tokens, width, vocabulary;
  Inputs inputs() const {
    return {random_values(vocabulary * width, 1), random_values(tokens * width, 2), random_values(width, 3)};
  }
  Doubles dy() const { return random_values(rows * width, 4); }

  template <typename T>
  Results run(const Inputs& from, const Doubles& derivatives, int threads) const {
    using A = acc_t<T>;
    Workers workers(threads);
    const auto& op = table<T>();
    const std::vector<int32_t> token = tokens_of(rows, vocabulary);
    const auto wte = as<T>(from[0]), wpe = as<T>(from[1]), type = as<T>(from[2]), dy = as<T>(derivatives);
    std::vector<T> y(rows * width);
    std::vector<A> dwte(wte.size(), A(kBefore)), dwpe(wpe.size(), A(kBefore)), dtype(width, A(kBefore));
    op.embedding_forward(workers, token.data(), nullptr, wte.data(), wpe.data(), type.data(), y.data(), rows,
                         tokens, vocabulary, width);
    op.embedding_backward(workers, token.data(), nullptr, dy.data(), dwte.data(), dwpe.data(), dtype.data(),
                          rows, tokens, vocabulary, width);
    return {array(y), {added(dwte), added(dwpe), added(dtype)}};
  }
};

TEST_P(EveryOperator, Embedding) {
  expect_right(EmbeddingCase{10, 5, 3, 7});
  expect_right(EmbeddingCase{300, 50, 260, 40});  // several pieces of rows, and of columns
}

struct PositionCase {
  int64_t first, rows, tokens, width;
  Inputs inputs() const { return {random_values(rows * width, 1), random_values(tokens * width, 2)}; }
  Doubles dy() const { return random_values(rows * width, 3); }

  template <typename T>
  Results run(const Inputs& from, const Doubles& derivatives, int threads) const {
    using A = acc_t<T>;
    Workers workers(threads);
    const auto& op = table<T>();
    const auto x = as<T>(from[0]), wpe = as<T>(from[1]), dy = as<T>(derivatives);
    std::vector<T> y(rows * width), alone(rows * width);
    std::vector<A> dwpe(wpe.size(), A(kBefore));
    op.position_forward(workers, x.data(), wpe.data(), nullptr, y.data(), first, rows, tokens, width);
    op.position_backward(workers, dy.data(), nullptr, dwpe.data(), first, rows, tokens, width);
    op.position_forward(workers, x.data(), nullptr, nullptr, alone.data(), first, rows, tokens, width);
    EXPECT_EQ(doubles(alone), doubles(x)) << "without positions";
    return {array(y), {array(dy), added(dwpe)}};  // of x it is dy itself
  }
};

TEST_P(EveryOperator, Position) {
  const PositionCase small{3, 9, 5, 4};  // begins and ends within a sequence
  const Inputs in = small.inputs();
  const Doubles y = small.run<double>(in, small.dy(), 1).y.values;
  for (int64_t i = 0; i < 36; ++i)
    EXPECT_DOUBLE_EQ(y[i], in[0][i] + in[1][(3 + i / 4) % 5 * 4 + i % 4]) << "by the definition";
  expect_right(small);
  expect_right(PositionCase{70, 200, 60, 260});
}

/// Three ranks' parts of the matrix. The vocabulary must divide.
struct SplitEmbeddingCase {
  int64_t rows, width, vocabulary;
  Inputs inputs() const { return {random_values(vocabulary * width, 1)}; }
  Doubles dy() const { return random_values(rows * width, 2); }

  template <typename T>
  Results run(const Inputs& from, const Doubles& derivatives, int threads) const {
    using A = acc_t<T>;
    Workers workers(threads);
    const auto& op = table<T>();
    const std::vector<int32_t> token = tokens_of(rows, vocabulary);
    const auto wte = as<T>(from[0]), dy = as<T>(derivatives);
    std::vector<T> part(rows * width);
    std::vector<A> dwte(wte.size(), A(kBefore));
    Array y{Doubles(part.size()), kTolerance<T>};
    for (int64_t first = 0; first < vocabulary; first += vocabulary / 3) {
      const ops::VocabularyRange own{first, vocabulary / 3};
      op.split_embedding_forward(workers, token.data(), wte.data() + first * width, own, part.data(), rows,
                                 width);
      op.split_embedding_backward(workers, token.data(), nullptr, dy.data(), own, dwte.data() + first * width,
                                  rows, width);
      for (size_t i = 0; i < part.size(); ++i) y.values[i] += static_cast<double>(load(part[i]));
    }
    return {y, {added(dwte)}};
  }
};

TEST_P(EveryOperator, SplitEmbedding) {
  expect_right(SplitEmbeddingCase{10, 4, 9});
  expect_right(SplitEmbeddingCase{300, 260, 39});
}

/// The loss of rows over all columns, of which each of `ranks` has a part; some rows have no target. With one
/// rank by the operator for whole logits. The derivative of each row's loss is the scale.
struct CrossEntropyCase {
  int64_t rows, vocabulary;
  int ranks;
  static constexpr double kScale = 0.25;
  Inputs inputs() const { return {random_values(rows * vocabulary, 1, 3)}; }
  Doubles dy() const { return Doubles(static_cast<size_t>(rows), kScale); }

  template <typename T>
  Results run(const Inputs& from, const Doubles&, int threads) const {
    using A = acc_t<T>;
    Workers workers(threads);
    const auto& op = table<T>();
    std::vector<int32_t> target = tokens_of(rows, vocabulary);
    target[1] = -1;
    Doubles loss(static_cast<size_t>(rows), -1);
    if (ranks == 1) {
      auto logits = as<A>(from[0]);
      op.cross_entropy(workers, logits.data(), target.data(), loss.data(), rows, vocabulary, A(kScale));
      return {{loss, kTolerance<A>}, {array(logits)}};
    }
    const int64_t count = vocabulary / ranks;
    std::vector<std::vector<A>> columns(static_cast<size_t>(ranks));
    std::vector<A> numbers(ranks * rows * 3);
    for (int rank = 0; rank < ranks; ++rank) {
      Doubles own;
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t v = 0; v < count; ++v) own.push_back(from[0][row * vocabulary + rank * count + v]);
      columns[rank] = as<A>(own);
      op.split_cross_entropy_begin(workers, columns[rank].data(), target.data(), {rank * count, count},
                                   numbers.data() + rank * rows * 3, rows);
    }
    Array gradient{Doubles(from[0].size()), kTolerance<A>};
    for (int rank = 0; rank < ranks; ++rank) {
      op.split_cross_entropy_finish(workers, columns[rank].data(), target.data(), {rank * count, count},
                                    numbers.data(), ranks, rank, loss.data(), rows, A(kScale));
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t v = 0; v < count; ++v)
          gradient.values[row * vocabulary + rank * count + v] = load(columns[rank][row * count + v]);
    }
    return {{loss, kTolerance<A>}, {gradient}};
  }
};

TEST_P(EveryOperator, CrossEntropy) {
  expect_right(CrossEntropyCase{5, 12, 1});
  expect_right(CrossEntropyCase{40, 1200, 1});
}

TEST_P(EveryOperator, SplitCrossEntropy) {
  for (const int ranks : {2, 3}) {
    expect_right(CrossEntropyCase{5, 12, ranks});
    expect_right(CrossEntropyCase{40, 1800, ranks});
  }
}

ops::Dropout dropout_of(float probability) { return {probability, {7, 1, 2}, 1001}; }

struct DropoutCase {
  float probability;
  int64_t n;
  Inputs inputs() const { return {random_values(n, 1)}; }
  Doubles dy() const { return random_values(n, 2); }

  template <typename T>
  Results run(const Inputs& from, const Doubles& derivatives, int threads) const {
    Workers workers(threads);
    const auto x = as<T>(from[0]);
    auto dx = as<T>(derivatives);
    std::vector<T> y(x.size());
    table<T>().dropout(workers, dropout_of(probability), x.data(), y.data(), n);
    table<T>().dropout(workers, dropout_of(probability), dx.data(), dx.data(), n);
    return {array(y), {array(dx)}};
  }
};

TEST_P(EveryOperator, Dropout) {
  for (const float probability : {0.0f, 0.3f}) {
    expect_right(DropoutCase{probability, 101});
    expect_right(DropoutCase{probability, 50001});
  }
}

/// Whose gradients are dy, the dropout of dy, and the sums of that over rows.
struct AddDropoutCase {
  float probability;
  int64_t rows, width;
  Inputs inputs() const {
    return {random_values(rows * width, 1), random_values(rows * width, 2), random_values(width, 3)};
  }
  Doubles dy() const { return random_values(rows * width, 4); }

  template <typename T>
  Results run(const Inputs& from, const Doubles& derivatives, int threads) const {
    Workers workers(threads);
    const auto& op = table<T>();
    const ops::Dropout dropout = dropout_of(probability);
    const auto residual = as<T>(from[0]), x = as<T>(from[1]), bias = as<T>(from[2]), dy = as<T>(derivatives);
    std::vector<T> y(x.size()), dx(x.size());
    op.add_dropout(workers, dropout, residual.data(), x.data(), bias.data(), y.data(), rows, width);
    op.dropout(workers, dropout, dy.data(), dx.data(), rows * width);
    Array dbias{Doubles(static_cast<size_t>(width)), kTolerance<T>};
    for (int64_t i = 0; i < rows * width; ++i) dbias.values[i % width] += static_cast<double>(load(dx[i]));
    for (const bool onto_residual : {false, true}) {
      std::vector<T> place = onto_residual ? residual : x;
      op.add_dropout(workers, dropout, onto_residual ? place.data() : residual.data(),
                     onto_residual ? x.data() : place.data(), bias.data(), place.data(), rows, width);
      EXPECT_EQ(doubles(place), doubles(y)) << "in the place of an input";
    }
    return {array(y), {array(dy), array(dx), dbias}};
  }
};

TEST_P(EveryOperator, AddDropout) {
  for (const float probability : {0.0f, 0.3f}) {
    expect_right(AddDropoutCase{probability, 6, 7});
    expect_right(AddDropoutCase{probability, 150, 257});
  }
}

struct RotaryCase {
  ops::RotaryShape s;
  int64_t elements() const { return s.batch * s.tokens * s.qkv_width(); }
  Inputs inputs() const { return {random_values(elements(), 1)}; }
  Doubles dy() const { return random_values(elements(), 2); }

  template <typename T>
  Results run(const Inputs& from, const Doubles& derivatives, int threads) const {
    Workers workers(threads);
    auto y = as<T>(from[0]), dx = as<T>(derivatives);
    table<T>().rotary(workers, s, y.data(), false);
    table<T>().rotary(workers, s, dx.data(), true);
    return {array(y), {array(dx)}};
  }
};

TEST_P(EveryOperator, Rotary) {
  for (const bool interleaved : {false, true}) {
    ops::RotaryShape small;
    small.batch = 2, small.tokens = 3, small.heads = 2, small.head_size = 6, small.dims = 4;
    small.interleaved = interleaved, small.first_position = 5;
    expect_right(RotaryCase{small});
    ops::RotaryShape shared;
    shared.batch = 2, shared.tokens = 40, shared.heads = 6, shared.key_value_heads = 2;
    shared.head_size = 16, shared.dims = 12, shared.interleaved = interleaved;
    shared.scaling = {.factor = 4, .context = 30};
    expect_right(RotaryCase{shared});
  }
}

struct LayerNormCase {
  int64_t rows, width;
  Inputs inputs() const {
    return {random_values(rows * width, 1, 2, 0.5), random_values(width, 2), random_values(width, 3)};
  }
  Doubles dy() const { return random_values(rows * width, 4); }

  template <typename T>
  Results run(const Inputs& from, const Doubles& derivatives, int threads) const {
    using A = acc_t<T>;
    Workers workers(threads);
    const auto& op = table<T>();
    const auto x = as<T>(from[0]), weight = as<T>(from[1]), bias = as<T>(from[2]), dy = as<T>(derivatives);
    std::vector<T> y(x.size()), dx(x.size());
    std::vector<A> mean(rows), rstd(rows), dweight(width, A(7)), dbias(width, A(7));
    op.norm_forward(workers, x.data(), weight.data(), bias.data(), y.data(), mean.data(), rstd.data(), rows,
                    width, 1e-5f);
    op.norm_backward(workers, x.data(), weight.data(), mean.data(), rstd.data(), dy.data(), dx.data(), false,
                     dweight.data(), dbias.data(), rows, width);
    return {array(y), {array(dx), array(dweight), array(dbias)}};
  }
};

struct RmsNormCase {
  int64_t rows, width;
  Inputs inputs() const { return {random_values(rows * width, 1, 2, 0.5), random_values(width, 2)}; }
  Doubles dy() const { return random_values(rows * width, 4); }

  template <typename T>
  Results run(const Inputs& from, const Doubles& derivatives, int threads) const {
    using A = acc_t<T>;
    Workers workers(threads);
    const auto& op = table<T>();
    const auto x = as<T>(from[0]), weight = as<T>(from[1]), dy = as<T>(derivatives);
    std::vector<T> y(x.size()), dx(as<T>(Doubles(x.size(), kBefore))), over = dy;
    std::vector<A> rstd(rows), dweight(width, A(7)), again(width, A(7));
    op.norm_forward(workers, x.data(), weight.data(), nullptr, y.data(), nullptr, rstd.data(), rows, width,
                    1e-5f);
    op.norm_backward(workers, x.data(), weight.data(), nullptr, rstd.data(), over.data(), over.data(), false,
                     again.data(), nullptr, rows, width);
    op.norm_backward(workers, x.data(), weight.data(), nullptr, rstd.data(), dy.data(), dx.data(), true,
                     dweight.data(), nullptr, rows, width);
    EXPECT_EQ(dweight, again);
    Array sum = array(dx);
    for (double& value : sum.values) value -= kBefore;
    expect_close(sum, array(over), 4, "added to, or overwritten");
    return {array(y), {array(over), array(dweight)}};
  }
};

struct HeadNormCase {
  ops::HeadRows s;
  Inputs inputs() const { return {random_values(s.rows * s.stride(), 1), random_values(2 * s.head_size, 2)}; }
  Doubles dy() const { return random_values(s.rows * s.stride(), 3); }

  template <typename T>
  Results run(const Inputs& from, const Doubles& derivatives, int threads) const {
    using A = acc_t<T>;
    Workers workers(threads);
    const auto qkv = as<T>(from[0]), weight = as<T>(from[1]);
    std::vector<T> y(qkv.size()), d = as<T>(derivatives);
    std::vector<A> rstd(static_cast<size_t>(s.rows * s.normed_heads())), dweight(weight.size(), A(7));
    table<T>().head_norm_forward(workers, s, qkv.data(), weight.data(), y.data(), rstd.data(), 1e-5f);
    table<T>().head_norm_backward(workers, s, qkv.data(), weight.data(), rstd.data(), d.data(),
                                  dweight.data());
    return {array(y), {array(d), array(dweight)}};
  }
};

TEST_P(EveryOperator, HeadNorm) {
  expect_right(HeadNormCase{{5, 2, 1, 4}});
  expect_right(HeadNormCase{{50, 3, 2, 19}});
}

TEST_P(EveryOperator, RmsNorm) {
  const RmsNormCase small{5, 19};
  const Inputs in = small.inputs();
  const Doubles y = small.run<double>(in, small.dy(), 1).y.values;
  for (size_t row = 0; row < 5; ++row) {
    double square = 0;
    for (size_t c = 0; c < 19; ++c) square += in[0][row * 19 + c] * in[0][row * 19 + c] / 19;
    for (size_t c = 0; c < 19; ++c)
      EXPECT_NEAR(y[row * 19 + c], in[0][row * 19 + c] / std::sqrt(square + 1e-5) * in[1][c], 1e-9);
  }
  expect_right(small);
  expect_right(RmsNormCase{150, 257});
}

TEST_P(EveryOperator, LayerNorm) {
  expect_right(LayerNormCase{5, 19});
  expect_right(LayerNormCase{150, 257});
}

constexpr ops::Activation kActivations[] = {ops::Activation::gelu_tanh, ops::Activation::gelu_erf,
                                            ops::Activation::relu, ops::Activation::silu,
                                            ops::Activation::tanh};

struct ActivationCase {
  ops::Activation activation;
  int64_t n;
  /// None is so near to 0, where ReLU has no slope, that a difference would step over it.
  Inputs inputs() const {
    Doubles x = random_values(n, 1);
    for (double& value : x) value += std::copysign(1e-3, value);
    return {x};
  }
  Doubles dy() const { return random_values(n, 2); }

  template <typename T>
  Results run(const Inputs& from, const Doubles& derivatives, int threads) const {
    Workers workers(threads);
    const auto x = as<T>(from[0]);
    auto dx = as<T>(derivatives);
    std::vector<T> y(x.size());
    table<T>().activation_forward(workers, activation, x.data(), y.data(), n);
    table<T>().activation_backward(workers, activation, x.data(), dx.data(), dx.data(), n);
    return {array(y), {array(dx)}};
  }
};

TEST_P(EveryOperator, Activation) {
  for (const ops::Activation activation : kActivations) {
    expect_right(ActivationCase{activation, 200});
    expect_right(ActivationCase{activation, 50001});
  }
}

struct GatedCase {
  ops::Activation activation;
  int64_t rows, width;
  Inputs inputs() const { return ActivationCase{activation, rows * 2 * width}.inputs(); }
  Doubles dy() const { return random_values(rows * width, 2); }

  template <typename T>
  Results run(const Inputs& from, const Doubles& derivatives, int threads) const {
    Workers workers(threads);
    const auto x = as<T>(from[0]), dy = as<T>(derivatives);
    std::vector<T> y(dy.size()), dx(x.size());
    table<T>().gated_forward(workers, activation, x.data(), y.data(), rows, width);
    table<T>().gated_backward(workers, activation, x.data(), dy.data(), dx.data(), rows, width);
    return {array(y), {array(dx)}};
  }
};

TEST_P(EveryOperator, Gated) {
  for (const ops::Activation activation : kActivations) {
    expect_right(GatedCase{activation, 7, 19});
    expect_right(GatedCase{activation, 150, 257});
  }
}

struct AttentionCase {
  ops::AttentionShape s;
  Inputs inputs() const { return {random_values(s.batch * s.tokens * s.qkv_width(), 1)}; }
  Doubles dy() const { return random_values(s.batch * s.tokens * s.width(), 2); }

  template <typename T>
  Results run(const Inputs& from, const Doubles& derivatives, int threads) const {
    Workers workers(threads);
    const auto qkv = as<T>(from[0]), dout = as<T>(derivatives);
    std::vector<T> out(dout.size()), dqkv(qkv.size());
    std::vector<acc_t<T>> lse(s.batch * s.heads * s.tokens);
    table<T>().attention_forward(workers, s, qkv.data(), out.data(), lse.data());
    table<T>().attention_backward(workers, s, qkv.data(), out.data(), lse.data(), dout.data(), dqkv.data());
    return {array(out), {array(dqkv)}};
  }
};

/// Every mask, within a tile and over several. Scores, probabilities and the output are rounded each.
TEST_P(EveryOperator, Attention) {
  for (const int64_t tokens : {6, 140}) {
    const std::vector<int32_t> lengths = {static_cast<int32_t>(tokens), static_cast<int32_t>(tokens / 3)};
    ops::AttentionShape plain;
    plain.batch = 2, plain.tokens = tokens, plain.heads = 2, plain.head_size = 4, plain.scale = 0.5f;
    ops::AttentionShape dropped = plain, window = plain, both_ways = plain, alibi = plain, shared = plain;
    dropped.dropout = dropout_of(0.3f);
    window.window = tokens / 2;
    both_ways.causal = false;
    both_ways.lengths = lengths.data();
    alibi.alibi = true;
    shared.heads = 6, shared.key_value_heads = 2, shared.dropout = dropout_of(0.3f);
    const Texts bounds(tokens);
    ops::AttentionShape texts = shared;
    bounds.divide(texts);
    for (const ops::AttentionShape& s : {plain, dropped, window, both_ways, alibi, shared, texts})
      expect_right(AttentionCase{s}, 3);
  }
}

/// What has no gradient: one query of attention, random numbers, sums, conversions, squares and the
/// optimizer. Arrays are of several pieces each.
template <typename T>
Inputs without_gradients(int threads) {
  using A = acc_t<T>;
  constexpr int64_t kN = 50001, kHeads = 3, kSize = 16, kKeys = 200, kChunk = 1024;
  Workers workers(threads);
  const auto& op = table<T>();
  const auto a = as<A>(random_values(kN, 1)), b = as<A>(random_values(kN, 2));
  std::vector<A> sum(kN), master = a, first(kN), second(kN);
  std::vector<T> converted(kN), parameter(kN), out(kHeads * kSize);
  std::vector<float> random(kN);
  Doubles squares((kN + kChunk - 1) / kChunk);
  op.normal(workers, {1, 2, 3}, 5, 0.1f, random.data(), kN);
  op.add(workers, a.data(), b.data(), sum.data(), kN);
  op.convert(workers, a.data(), converted.data(), kN);
  op.sum_of_squares(workers, a.data(), kN, kChunk, squares.data());
  op.update(workers, {1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.5f, 1}, b.data(), master.data(),
            {first.data(), second.data()}, parameter.data(), kN);
  ops::AttentionShape shape;
  shape.batch = shape.tokens = 1, shape.heads = kHeads, shape.head_size = kSize, shape.scale = 0.25f;
  op.attention_step(workers, shape, converted.data(), converted.data() + kHeads * kSize,
                    converted.data() + kHeads * kSize * (kKeys + 1), kKeys - 1, out.data());
  constexpr int64_t kWidth = 3;
  std::vector<int32_t> row(kN / kWidth), target(row.size());
  for (size_t i = 0; i < row.size(); ++i) {
    row[i] = i % 4 == 1 ? -1 : static_cast<int32_t>(i * 7 % row.size());
    target[i] = static_cast<int32_t>(i % kWidth);
  }
  std::vector<T> rows(converted.size()), copied(rows.size(), T{});
  std::vector<A> logits(kN);
  Doubles all(1), right(1);
  const auto taken = static_cast<int64_t>(row.size());
  op.gather_rows(workers, converted.data(), taken, row.data(), rows.data(), taken, kWidth);
  op.copy(workers, rows.data(), copied.data(), taken * kWidth * static_cast<int64_t>(sizeof(T)));
  op.clear(workers, copied.data(), kWidth * static_cast<int64_t>(sizeof(T)));
  op.read_logits(workers, a.data(), logits.data(), kN);
  op.count_right(workers, a.data(), target.data(), right.data(), taken, kWidth);
  op.sum(workers, squares.data(), all.data(), static_cast<int64_t>(squares.size()));
  for (size_t i = 0; i < row.size(); ++i)
    for (size_t c = 0; c < kWidth; ++c) {
      const auto wanted = row[i] < 0 ? A(0) : load(converted[static_cast<size_t>(row[i]) * kWidth + c]);
      EXPECT_EQ(load(rows[i * kWidth + c]), wanted);
      EXPECT_EQ(load(copied[i * kWidth + c]), i == 0 ? A(0) : wanted);
    }
  EXPECT_EQ(logits, a);
  EXPECT_GT(right[0], 0);
  return {doubles(sum),
          doubles(converted),
          squares,
          doubles(master),
          doubles(first),
          doubles(second),
          doubles(parameter),
          doubles(out),
          doubles(random),
          all,
          right};
}

template <typename T>
void expect_the_same_with_threads() {
  const Inputs one = without_gradients<T>(1);
  for (const Doubles& values : one) EXPECT_LT(error_of(values, values), 1) << "finite";
  EXPECT_EQ(one, without_gradients<T>(3));
}

TEST_P(EveryOperator, WithoutGradientsHasTheSameBitsWithThreads) {
  expect_the_same_with_threads<double>();
  expect_the_same_with_threads<float>();
  expect_the_same_with_threads<bf16>();
  expect_the_same_with_threads<fp16>();
}

// Whoever adds an operator adds it here as well.
static_assert(sizeof(ops::Operators<float>) == sizeof(const char*) + 39 * sizeof(device::Operator<void()>),
              "an operator has no case in this file");

}  // namespace
}  // namespace loom::testing::gradients_test
