// Every operator of every table on infinities, on numbers that are none, and on the largest and smallest
// values of each type. Results of such rows are not defined, but rows of plain values beside them keep their
// bits. Under the sanitizer of undefined behaviour no step of a computation overflows.
#include <bit>
#include <cstring>
#include <limits>

#include "base/workers.h"
#include "ops/arrays.h"

namespace loom::testing::ends_of_ranges_test {
namespace {

using namespace ops;

LOOM_ON_EVERY_TABLE(EndsOfRanges);

constexpr int64_t kRows = 6, kWidth = 40;

/// What T holds at its ends. NaNs of many payloads: the bits of one may count as a number somewhere.
template <typename T>
std::vector<T> ends() {
  using A = acc_t<T>;
  using Limits = std::numeric_limits<A>;
  std::vector<T> values;
  const auto add = [&](A value) {
    T stored;
    store(stored, value);
    values.push_back(stored);
  };
  for (const A value : {Limits::infinity(), Limits::quiet_NaN(), Limits::max(), Limits::min(),
                        Limits::denorm_min(), A(65504), A(88), A(60), A(0)}) {
    add(value);
    add(-value);
  }
  if constexpr (std::is_same_v<T, float>)
    for (uint32_t payload = 1; payload < 1024; payload += 31)
      values.push_back(std::bit_cast<float>(0x7fc00000u | payload));
  return values;
}

/// Values for rows · width elements: plain ones, or at the ends in every other row. `shift` makes arrays
/// differ.
template <typename T>
std::vector<T> rows_of(int64_t rows, int64_t width, bool at_ends, size_t shift) {
  const std::vector<T> extremes = ends<T>();
  std::vector<T> values = as<T>(random_values(rows * width, static_cast<uint32_t>(11 + shift)));
  for (int64_t row = 1; at_ends && row < rows; row += 2)
    for (int64_t c = 0; c < width; ++c)
      values[static_cast<size_t>(row * width + c)] =
          extremes[(static_cast<size_t>(row * width + c) * 7 + shift) % extremes.size()];
  return values;
}

/// The result [rows, width] of an operator whose inputs have every other row at the ends, or none.
template <typename T>
using Run = std::function<std::vector<T>(bool at_ends)>;

template <typename T>
void expect_rows_alone(const char* name, int64_t rows, const Run<T>& run) {
  const std::vector<T> plain = run(false), beside = run(true);
  const size_t width = plain.size() / static_cast<size_t>(rows);
  for (size_t row = 0; row < static_cast<size_t>(rows); row += 2)
    EXPECT_EQ(std::memcmp(plain.data() + row * width, beside.data() + row * width, width * sizeof(T)), 0)
        << name << ", row " << row;
}

template <typename T>
class Ends {
 public:
  using A = acc_t<T>;

  void activations() {
    for (const Activation activation :
         {Activation::gelu_tanh, Activation::gelu_erf, Activation::relu, Activation::tanh}) {
      expect_rows_alone<T>("activation_forward", kRows, [&](bool at_ends) {
        const auto x = input<T>(at_ends, 0);
        std::vector<T> y(x.size());
        op_.activation_forward(workers_, activation, x.data(), y.data(), kRows * kWidth);
        return y;
      });
      expect_rows_alone<T>("activation_backward", kRows, [&](bool at_ends) {
        const auto x = input<T>(at_ends, 0), dy = input<T>(at_ends, 3);
        std::vector<T> dx(x.size());
        op_.activation_backward(workers_, activation, x.data(), dy.data(), dx.data(), kRows * kWidth);
        return dx;
      });
    }
  }

  void norms() {
    const auto weight = rows_of<T>(1, kWidth, false, 1), bias = rows_of<T>(1, kWidth, false, 2);
    const auto run = [&](bool at_ends, bool back) {
      const auto x = input<T>(at_ends, 0), dy = input<T>(at_ends, 5);
      std::vector<T> y(x.size()), dx(x.size());
      std::vector<A> mean(kRows), rstd(kRows), dweight(kWidth), dbias(kWidth);
      op_.norm_forward(workers_, x.data(), weight.data(), bias.data(), y.data(), mean.data(), rstd.data(),
                       kRows, kWidth, 1e-5f);
      op_.norm_backward(workers_, x.data(), weight.data(), mean.data(), rstd.data(), dy.data(), dx.data(),
                        false, dweight.data(), dbias.data(), kRows, kWidth);
      return back ? dx : y;
    };
    expect_rows_alone<T>("norm_forward", kRows, [&](bool at_ends) { return run(at_ends, false); });
    expect_rows_alone<T>("norm_backward", kRows, [&](bool at_ends) { return run(at_ends, true); });
  }

  void products() {
    const auto w = rows_of<T>(kWidth, kWidth, false, 1), bias = rows_of<T>(1, kWidth, false, 2);
    std::vector<A> dw(kWidth * kWidth), dbias(kWidth);
    expect_rows_alone<T>("linear_forward", kRows, [&](bool at_ends) {
      const auto x = input<T>(at_ends, 0);
      std::vector<T> y(x.size());
      op_.linear_forward(workers_, x.data(), w.data(), bias.data(), y.data(), kRows, kWidth, kWidth);
      return y;
    });
    expect_rows_alone<T>("linear_backward_input", kRows, [&](bool at_ends) {
      const auto x = input<T>(at_ends, 0), dy = input<T>(at_ends, 3);
      std::vector<T> dx(x.size());
      op_.linear_backward_input(workers_, dy.data(), w.data(), dx.data(), kRows, kWidth, kWidth);
      op_.linear_backward_weight(workers_, x.data(), dy.data(), dw.data(), dbias.data(), kRows, kWidth,
                                 kWidth);
      return dx;
    });
    expect_rows_alone<A>("head_forward", kRows, [&](bool at_ends) {
      const auto x = input<T>(at_ends, 0);
      std::vector<A> logits(kRows * kWidth);
      op_.head_forward(workers_, x.data(), w.data(), bias.data(), logits.data(), kRows, kWidth, kWidth);
      return logits;
    });
    expect_rows_alone<T>("head_backward", kRows, [&](bool at_ends) {
      const auto x = input<T>(at_ends, 0);
      const auto dlogits = input<A>(at_ends, 3);
      std::vector<T> dx(x.size());
      op_.head_backward(workers_, dlogits.data(), x.data(), w.data(), dx.data(), dw.data(), dbias.data(),
                        false, kRows, kWidth, kWidth);
      return dx;
    });
  }

  void losses() {
    const std::vector<int32_t> target = {3, 0, -1, 39, 20, 7};
    expect_rows_alone<A>("cross_entropy", kRows, [&](bool at_ends) {
      auto logits = input<A>(at_ends, 0);
      std::vector<double> loss(kRows);
      op_.cross_entropy(workers_, logits.data(), target.data(), loss.data(), kRows, kWidth, A(0.5));
      return logits;
    });
    expect_rows_alone<A>("split_cross_entropy", kRows, [&](bool at_ends) {
      auto logits = input<A>(at_ends, 0);
      std::vector<double> loss(kRows);
      std::vector<A> numbers(kRows * 3);
      const VocabularyRange all{0, kWidth};
      op_.split_cross_entropy_begin(workers_, logits.data(), target.data(), all, numbers.data(), kRows);
      op_.split_cross_entropy_finish(workers_, logits.data(), target.data(), all, numbers.data(), 1, 0,
                                     loss.data(), kRows, A(0.5));
      return logits;
    });
  }

  /// Each row is a sequence of two tokens, one head, no window or one, with distances or without.
  void attention() {
    AttentionShape s;
    s.batch = kRows, s.tokens = 2, s.heads = 1, s.head_size = kWidth, s.scale = 0.2f;
    for (const bool causal : {true, false}) {
      s.causal = causal;
      s.alibi = causal;
      s.dropout.probability = causal ? 0.25f : 0.0f;
      const auto run = [&](bool at_ends, bool back) {
        const auto qkv = rows_of<T>(kRows, 6 * kWidth, at_ends, 0),
                   dout = rows_of<T>(kRows, 2 * kWidth, at_ends, 3);
        std::vector<T> out(dout.size()), dqkv(qkv.size());
        std::vector<A> lse(kRows * 2);
        op_.attention_forward(workers_, s, qkv.data(), out.data(), lse.data());
        op_.attention_backward(workers_, s, qkv.data(), out.data(), lse.data(), dout.data(), dqkv.data());
        return back ? dqkv : out;
      };
      expect_rows_alone<T>("attention_forward", kRows, [&](bool at_ends) { return run(at_ends, false); });
      expect_rows_alone<T>("attention_backward", kRows, [&](bool at_ends) { return run(at_ends, true); });
    }
    s.batch = s.tokens = 1, s.causal = true, s.dropout.probability = 0;
    const auto keys = input<T>(true, 1), values = input<T>(true, 2), q = rows_of<T>(2, kWidth, true, 4);
    std::vector<T> out(kWidth);
    for (const int64_t row : {0, 1})
      op_.attention_step(workers_, s, q.data() + row * kWidth, keys.data(), values.data(), kRows - 1,
                         out.data());
  }

  void elementwise() {
    RotaryShape turned;
    turned.batch = kRows, turned.tokens = 1, turned.heads = 1, turned.head_size = kWidth,
    turned.dims = kWidth;
    const Dropout dropout{0.5f, {1, 2, 3}, 0};
    const auto bias = rows_of<T>(1, kWidth, false, 2);
    for (const bool interleaved : {false, true})
      expect_rows_alone<T>("rotary", kRows, [&](bool at_ends) {
        auto qkv = rows_of<T>(kRows, 3 * kWidth, at_ends, 0);
        turned.interleaved = interleaved;
        op_.rotary(workers_, turned, qkv.data(), false);
        return qkv;
      });
    expect_rows_alone<T>("dropout", kRows, [&](bool at_ends) {
      const auto x = input<T>(at_ends, 0), residual = input<T>(at_ends, 3);
      std::vector<T> y(x.size());
      op_.dropout(workers_, dropout, x.data(), y.data(), kRows * kWidth);
      op_.add_dropout(workers_, dropout, residual.data(), y.data(), bias.data(), y.data(), kRows, kWidth);
      return y;
    });
    expect_rows_alone<T>("convert", kRows, [&](bool at_ends) {
      const auto a = input<A>(at_ends, 0), b = input<A>(at_ends, 3);
      std::vector<A> sum(a.size());
      std::vector<T> y(a.size());
      std::vector<double> squares(kRows);
      op_.add(workers_, a.data(), b.data(), sum.data(), kRows * kWidth);
      op_.convert(workers_, sum.data(), y.data(), kRows * kWidth);
      op_.sum_of_squares(workers_, a.data(), kRows * kWidth, kWidth, squares.data());
      return y;
    });
    expect_rows_alone<A>("adamw", kRows, [&](bool at_ends) {
      const auto gradient = input<A>(at_ends, 0);
      auto master = input<A>(at_ends, 1), first = input<A>(at_ends, 2), second = input<A>(at_ends, 3);
      for (A& value : second) value = value < 0 ? -value : value;
      std::vector<T> parameter(gradient.size());
      op_.update(workers_, {0.1f, 0.9f, 0.95f, 1e-8f, 0.1f, 1.0f, 1}, gradient.data(), master.data(),
                 {first.data(), second.data()}, parameter.data(), kRows * kWidth);
      return master;
    });
  }

  void embeddings() {
    const std::vector<int32_t> token = {0, 1, 4, 3, 2, 5};  // as the rows of the table: at the ends or not
    const auto type = rows_of<T>(1, kWidth, false, 2);
    std::vector<A> dwte(kRows * kWidth), dwpe(kRows * kWidth), dtype(kWidth);
    expect_rows_alone<T>("embedding", kRows, [&](bool at_ends) {
      const auto wte = input<T>(at_ends, 0), wpe = input<T>(at_ends, 3);
      std::vector<T> y(wte.size());
      op_.embedding_forward(workers_, token.data(), nullptr, wte.data(), wpe.data(), type.data(), y.data(),
                            kRows, kRows, kRows, kWidth);
      op_.embedding_backward(workers_, token.data(), nullptr, y.data(), dwte.data(), dwpe.data(),
                             dtype.data(), kRows, kRows, kRows, kWidth);
      return y;
    });
    expect_rows_alone<T>("split_embedding", kRows, [&](bool at_ends) {
      const auto wte = input<T>(at_ends, 0), wpe = input<T>(at_ends, 3);
      std::vector<T> y(wte.size());
      op_.split_embedding_forward(workers_, token.data(), wte.data(), {0, kRows}, y.data(), kRows, kWidth);
      op_.position_forward(workers_, y.data(), wpe.data(), nullptr, y.data(), 0, kRows, kRows, kWidth);
      op_.split_embedding_backward(workers_, token.data(), nullptr, y.data(), {0, kRows}, dwte.data(), kRows,
                                   kWidth);
      op_.position_backward(workers_, y.data(), nullptr, dwpe.data(), 0, kRows, kRows, kWidth);
      return y;
    });
  }

 private:
  template <typename E>
  static std::vector<E> input(bool at_ends, size_t shift) {
    return rows_of<E>(kRows, kWidth, at_ends, shift);
  }

  Workers workers_{2};
  const Operators<T>& op_ = table<T>();
};

/// The call with an Ends<T> for every type.
template <typename F>
void for_every_type(F&& call) {
  call(Ends<float>());
  call(Ends<bf16>());
  call(Ends<fp16>());
  call(Ends<double>());
}

TEST_P(EndsOfRanges, OfActivations) {
  for_every_type([](auto&& ends) { ends.activations(); });
}
TEST_P(EndsOfRanges, OfNorms) {
  for_every_type([](auto&& ends) { ends.norms(); });
}
TEST_P(EndsOfRanges, OfProducts) {
  for_every_type([](auto&& ends) { ends.products(); });
}
TEST_P(EndsOfRanges, OfLosses) {
  for_every_type([](auto&& ends) { ends.losses(); });
}
TEST_P(EndsOfRanges, OfAttention) {
  for_every_type([](auto&& ends) { ends.attention(); });
}
TEST_P(EndsOfRanges, OfElementwiseOperators) {
  for_every_type([](auto&& ends) { ends.elementwise(); });
}
TEST_P(EndsOfRanges, OfEmbeddings) {
  for_every_type([](auto&& ends) { ends.embeddings(); });
}

}  // namespace
}  // namespace loom::testing::ends_of_ranges_test
