// The GPU's operators on the fake driver, beside the CPU's: kernels on the emulator, products on the fake
// cuBLASLt.
#include "loom/device/both_devices.h"

namespace loom::testing {
namespace {

using ops::Operators;

using OperatorTypes = ::testing::Types<float, bf16, fp16>;
TYPED_TEST_SUITE(TypedGpuOperators, OperatorTypes);

TYPED_TEST(TypedGpuOperators, LinearLayersWithAndWithoutAlignment) {
  using T = TypeParam;
  for (const auto& [rows, in, out] : {std::array<int64_t, 3>{17, 16, 24}, {9, 7, 5}}) {
    auto x = this->template both<T>(random_values(rows * in, 1)),
         w = this->template both<T>(random_values(in * out, 2)),
         bias = this->template both<T>(random_values(out, 3)),
         dy = this->template both<T>(random_values(rows * out, 4)),
         y = this->template both<T>(Doubles(rows * out, 9)),
         dx = this->template both<T>(Doubles(rows * in, 9));
    auto dw = this->template both<float>(Doubles(in * out, 9)),
         db = this->template both<float>(Doubles(out, 9));
    this->on_both([&](const Operators<T>& op, const device::Context& c, auto at) {
      op.linear_forward(c, at(x), at(w), at(bias), at(y), rows, in, out);
      op.linear_backward_input(c, at(dy), at(w), at(dx), rows, in, out);
      op.linear_backward_weight(c, at(x), at(dy), at(dw), at(db), rows, in, out);
    });
    EXPECT_LT(this->difference(y), 2 * kTolerance<T>);
    EXPECT_LT(this->difference(dx), 2 * kTolerance<T>);
    EXPECT_LT(this->difference(dw), kTolerance<T>);
    EXPECT_LT(this->difference(db), kTolerance<float>);
  }
}

/// With mean and bias, and RMS norms without them, whose arrays stay as they are.
TYPED_TEST(TypedGpuOperators, Norms) {
  using T = TypeParam;
  const int64_t rows = 21;
  for (const int64_t width : {40, 37})
    for (const bool has_mean : {true, false}) {
      auto x = this->template both<T>(random_values(rows * width, 1, 1, 0.5)),
           weight = this->template both<T>(random_values(width, 2)),
           bias = this->template both<T>(random_values(width, 3)),
           dy = this->template both<T>(random_values(rows * width, 4)),
           y = this->template both<T>(Doubles(rows * width)),
           dx = this->template both<T>(random_values(rows * width, 5));
      auto mean = this->template both<float>(Doubles(rows, 3)),
           rstd = this->template both<float>(Doubles(rows)),
           dweight = this->template both<float>(Doubles(width)),
           dbias = this->template both<float>(Doubles(width, 3));
      this->on_both([&](const Operators<T>& op, const device::Context& c, auto at) {
        const auto or_none = [&](auto& array) { return has_mean ? at(array) : nullptr; };
        op.norm_forward(c, at(x), at(weight), or_none(bias), at(y), or_none(mean), at(rstd), rows, width,
                        1e-5f);
        op.norm_backward(c, at(x), at(weight), or_none(mean), at(rstd), at(dy), at(dx), true, at(dweight),
                         or_none(dbias), rows, width);
      });
      for (auto* each : {&y, &dx}) EXPECT_LT(this->difference(*each), kTolerance<T>);
      for (auto* each : {&mean, &rstd, &dweight, &dbias})
        EXPECT_LT(this->difference(*each), kTolerance<float>);
    }
}

TYPED_TEST(TypedGpuOperators, EmbeddingsOfAPartOfTheVocabulary) {
  using T = TypeParam;
  const int64_t rows = 70, width = 24, tokens = 35;
  const ops::VocabularyRange own{20, 300};
  std::vector<int32_t> ids(rows);
  for (int64_t i = 0; i < rows; ++i) ids[i] = static_cast<int32_t>(i % 3 == 0 ? 25 : i * 37 % 400);
  Both<int32_t> token(ids, this->upload(ids));
  auto wte = this->template both<T>(random_values(own.count * width, 1)),
       wpe = this->template both<T>(random_values(tokens * width, 2)),
       y = this->template both<T>(Doubles(rows * width)), z = this->template both<T>(Doubles(rows * width)),
       dy = this->template both<T>(random_values(rows * width, 3));
  auto dwte = this->template both<float>(random_values(own.count * width, 4)),
       dwpe = this->template both<float>(random_values(tokens * width, 5));
  this->on_both([&](const Operators<T>& op, const device::Context& c, auto at) {
    op.split_embedding_forward(c, at(token), at(wte), own, at(y), rows, width);
    op.position_forward(c, at(y), at(wpe), nullptr, at(z), 5, rows, tokens, width);
    op.position_backward(c, at(dy), nullptr, at(dwpe), 5, rows, tokens, width);
    op.split_embedding_backward(c, at(token), nullptr, at(dy), own, at(dwte), rows, width);
  });
  EXPECT_TRUE(this->same_bits(y));
  EXPECT_TRUE(this->same_bits(z));
  EXPECT_LT(this->difference(dwpe), kTolerance<float>);
  EXPECT_LT(this->difference(dwte), kTolerance<float>);
}

TYPED_TEST(TypedGpuOperators, EmbeddingsOfAllTablesWithPaddingInsideAndWithout) {
  using T = TypeParam;
  const int64_t rows = 66, width = 24, tokens = 33, vocabulary = 300;
  std::vector<int32_t> ids(rows), places(rows);
  for (int64_t i = 0; i < rows; ++i) {
    ids[i] = static_cast<int32_t>(i % 3 == 0 ? 25 : i * 37 % vocabulary);
    places[i] = static_cast<int32_t>(i % 5 == 2 ? -1 : i % tokens);
  }
  Both<int32_t> token(ids, this->upload(ids)), place(places, this->upload(places));
  for (const bool padded : {false, true}) {
    auto wte = this->template both<T>(random_values(vocabulary * width, 1)),
         wpe = this->template both<T>(random_values((tokens + 1) * width, 2)),
         type = this->template both<T>(random_values(width, 3)),
         y = this->template both<T>(Doubles(rows * width)), z = this->template both<T>(Doubles(rows * width)),
         dy = this->template both<T>(random_values(rows * width, 4));
    auto dwte = this->template both<float>(random_values(vocabulary * width, 5)),
         dwpe = this->template both<float>(random_values((tokens + 1) * width, 6)),
         dtype = this->template both<float>(random_values(width, 7));
    this->on_both([&](const Operators<T>& op, const device::Context& c, auto at) {
      const int32_t* const position = padded ? at(place) : nullptr;
      op.embedding_forward(c, at(token), position, at(wte), at(wpe) + width, at(type), at(y), rows, tokens,
                           vocabulary, width);
      op.position_forward(c, at(y), at(wpe) + width, position, at(z), 0, rows, tokens, width);
      op.embedding_backward(c, at(token), position, at(dy), at(dwte), at(dwpe) + width, at(dtype), rows,
                            tokens, vocabulary, width);
      op.position_backward(c, at(z), position, at(dwpe) + width, 0, rows, tokens, width);
      op.split_embedding_backward(c, at(token), position, at(dy), {0, vocabulary}, at(dwte), rows, width);
    });
    EXPECT_LT(this->difference(y), kTolerance<T>);
    EXPECT_LT(this->difference(z), kTolerance<T>);
    EXPECT_LT(this->difference(dwte), kTolerance<float>);
    EXPECT_LT(this->difference(dtype), kTolerance<float>);
    EXPECT_LT(this->difference(dwpe), kTolerance<T>);  // of z, which may differ
  }
}

TYPED_TEST(TypedGpuOperators, RowsBytesAndSums) {
  using T = TypeParam;
  const int64_t of = 7, rows = 9, width = 20;
  const std::vector<int32_t> which = {6, -1, 0, 3, 3, -1, 5, 2, 1};
  Both<int32_t> row(which, this->upload(which));
  auto x = this->template both<T>(random_values(of * width, 1)),
       y = this->template both<T>(random_values(rows * width, 2)),
       z = this->template both<T>(random_values(rows * width, 3));
  auto losses = this->template both<double>(random_values(1000, 4)),
       sum = this->template both<double>(Doubles(1, 9));
  this->on_both([&](const Operators<T>& op, const device::Context& c, auto at) {
    op.gather_rows(c, at(x), of, at(row), at(y), rows, width);
    op.clear(c, at(z), 3 * width * static_cast<int64_t>(sizeof(T)));
    op.copy(c, at(y), at(z) + 4 * width, 5 * width * static_cast<int64_t>(sizeof(T)));
    op.sum(c, at(losses), at(sum), 1000);
    op.sum(c, at(losses), at(losses), 10);  // in place
  });
  EXPECT_TRUE(this->same_bits(y));
  EXPECT_TRUE(this->same_bits(z));
  EXPECT_LT(this->difference(sum), 1e-12);
  EXPECT_LT(this->difference(losses), 1e-12);
}

/// Logits are of the table's own type and strides; what comes out of them is compared.
TYPED_TEST(TypedGpuOperators, HeadsAndLossesOfAnyWidth) {
  using T = TypeParam;
  for (const auto& [rows, width, vocabulary] :
       {std::array<int64_t, 3>{6, 16, 24}, {11, 20, 37}, {5, 16, 13}, {5, 7, 3}}) {
    std::vector<int32_t> targets(rows);
    for (int64_t i = 0; i < rows; ++i)
      targets[i] = static_cast<int32_t>(i == 1 ? -1 : i % 2 == 0 ? 1 : i % vocabulary);
    Both<int32_t> target(targets, this->upload(targets));
    auto x = this->template both<T>(random_values(rows * width, 1)),
         w = this->template both<T>(random_values(vocabulary * width, 2)),
         bias = this->template both<T>(random_values(vocabulary, 3)),
         dx = this->template both<T>(Doubles(rows * width, 9));
    auto logits = this->template both<float>(Doubles(rows * vocabulary, 9)),
         one = this->template both<float>(Doubles(vocabulary, 9)),
         dw = this->template both<float>(random_values(vocabulary * width, 4)),
         db = this->template both<float>(random_values(vocabulary, 5));
    auto loss = this->template both<double>(Doubles(rows, 9)),
         right = this->template both<double>(Doubles(1, 2));
    for (const bool add : {false, true}) {
      this->on_both([&](const Operators<T>& op, const device::Context& c, auto at) {
        op.head_forward(c, at(x), at(w), at(bias), at(logits), rows, width, vocabulary);
        op.read_logits(c, at(logits), at(one), vocabulary);
        op.count_right(c, at(logits), at(target), at(right), rows, vocabulary);
        op.cross_entropy(c, at(logits), at(target), at(loss), rows, vocabulary, 0.5f);
        op.head_backward(c, at(logits), at(x), at(w), at(dx), at(dw), at(db), add, rows, width, vocabulary);
      });
      EXPECT_LT(this->difference(one), 2 * kTolerance<T>);
      EXPECT_LT(this->difference(loss), 2 * kTolerance<T>);
      EXPECT_LT(this->difference(right), 1e-12);
      EXPECT_LT(this->difference(dx), 4 * kTolerance<T>);
      EXPECT_LT(this->difference(dw), 4 * kTolerance<T>);
      EXPECT_LT(this->difference(db), 4 * kTolerance<T>);
    }
  }
}

TEST_F(GpuOperators, OfEveryKindAreThere) {
  const auto check = []<typename T>(T) {
    const Operators<T>& op = cuda::operators<T>();
    EXPECT_TRUE(op.embedding_forward && op.embedding_backward && op.head_forward && op.head_backward &&
                op.read_logits && op.cross_entropy && op.split_cross_entropy_begin &&
                op.split_cross_entropy_finish && op.gather_rows && op.clear && op.copy && op.sum &&
                op.count_right);
    EXPECT_FALSE(op.attention_step) << "texts are continued on CPUs";
  };
  check(float{}), check(bf16{}), check(fp16{});
}

TYPED_TEST(TypedGpuOperators, Elements) {
  using T = TypeParam;
  const int64_t n = 1003;
  for (const auto activation : {ops::Activation::gelu_tanh, ops::Activation::gelu_erf, ops::Activation::relu,
                                ops::Activation::silu, ops::Activation::tanh}) {
    auto x = this->template both<T>(random_values(n, 1)), y = this->template both<T>(Doubles(n)),
         dy = this->template both<T>(random_values(n, 2)), dx = this->template both<T>(Doubles(n));
    this->on_both([&](const Operators<T>& op, const device::Context& c, auto at) {
      op.activation_forward(c, activation, at(x), at(y), n);
      op.activation_backward(c, activation, at(x), at(dy), at(dx), n);
    });
    EXPECT_LT(this->difference(y), kTolerance<T>);
    EXPECT_LT(this->difference(dx), kTolerance<T>);
    for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{9, 24}, {7, 37}}) {
      auto both_halves = this->template both<T>(random_values(2 * rows * width, 3)),
           gated = this->template both<T>(Doubles(rows * width)),
           dgated = this->template both<T>(random_values(rows * width, 4)),
           dhalves = this->template both<T>(Doubles(2 * rows * width));
      this->on_both([&](const Operators<T>& op, const device::Context& c, auto at) {
        op.gated_forward(c, activation, at(both_halves), at(gated), rows, width);
        op.gated_backward(c, activation, at(both_halves), at(dgated), at(dhalves), rows, width);
      });
      EXPECT_LT(this->difference(gated), kTolerance<T>);
      EXPECT_LT(this->difference(dhalves), kTolerance<T>);
    }
  }
}

TYPED_TEST(TypedGpuOperators, DropoutDropsTheSameElements) {
  using T = TypeParam;
  const int64_t rows = 30, width = 33;
  const ops::Dropout dropout{.probability = 0.3f, .key = {1, 2}, .first = 7};
  auto x = this->template both<T>(random_values(rows * width, 1)),
       y = this->template both<T>(Doubles(rows * width)), sum = this->template both<T>(Doubles(rows * width)),
       residual = this->template both<T>(random_values(rows * width, 2)),
       bias = this->template both<T>(random_values(width, 3));
  this->on_both([&](const Operators<T>& op, const device::Context& c, auto at) {
    op.dropout(c, dropout, at(x), at(y), rows * width);
    op.add_dropout(c, dropout, at(residual), at(x), at(bias), at(sum), rows, width);
  });
  EXPECT_TRUE(this->same_bits(y));
  EXPECT_LT(this->difference(sum), kTolerance<T>);
}

TYPED_TEST(TypedGpuOperators, NormsOfHeadsBothWays) {
  using T = TypeParam;
  for (const ops::HeadRows& shape : {ops::HeadRows{9, 4, 2, 16}, {5, 3, 3, 6}, {1, 2, 1, 40}}) {
    const int64_t elements = shape.rows * shape.stride();
    auto qkv = this->template both<T>(random_values(elements, 1)),
         y = this->template both<T>(Doubles(elements)),
         weight = this->template both<T>(random_values(2 * shape.head_size, 2)),
         d = this->template both<T>(random_values(elements, 3));
    auto rstd = this->template both<float>(Doubles(shape.rows * shape.normed_heads())),
         dweight = this->template both<float>(Doubles(2 * shape.head_size));
    this->on_both([&](const Operators<T>& op, const device::Context& c, auto at) {
      op.head_norm_forward(c, shape, at(qkv), at(weight), at(y), at(rstd), 1e-5f);
      op.head_norm_backward(c, shape, at(qkv), at(weight), at(rstd), at(d), at(dweight));
    });
    EXPECT_LT(this->difference(y), kTolerance<T>);
    EXPECT_LT(this->difference(d), kTolerance<T>);
    EXPECT_LT(this->difference(dweight), kTolerance<float>);
  }
}

TYPED_TEST(TypedGpuOperators, RotaryTurnsAndTurnsBack) {
  using T = TypeParam;
  ops::RotaryShape shape{.batch = 2, .tokens = 9, .heads = 4, .head_size = 16, .dims = 8};
  for (const int64_t key_heads : {0, 2, 1}) {
    shape.key_value_heads = key_heads;
    if (key_heads > 0) shape.scaling = {.factor = 2, .context = key_heads == 2 ? 30 : 0};
    auto qkv = this->template both<T>(random_values(2 * 9 * shape.qkv_width(), 1));
    for (const bool back : {false, true}) {
      this->on_both([&](const Operators<T>& op, const device::Context& c, auto at) {
        op.rotary(c, shape, at(qkv), back);
      });
      EXPECT_LT(this->difference(qkv), kTolerance<T>);
    }
  }
}

TYPED_TEST(TypedGpuOperators, AttentionBothWaysWithLengthsAndCausalWithDropout) {
  using T = TypeParam;
  const std::vector<int32_t> of_sequences{13, 9};
  Both<int32_t> lengths(of_sequences, this->upload(of_sequences));
  for (const auto& [causal, heads, key_heads] :
       {std::tuple(true, 2, 0), {false, 2, 2}, {true, 4, 2}, {false, 3, 1}}) {
    ops::AttentionShape shape;
    shape.batch = 2, shape.tokens = 13, shape.heads = heads, shape.head_size = 24;
    shape.key_value_heads = key_heads;
    shape.scale = 0.2f, shape.causal = causal;
    if (causal) shape.dropout = {.probability = 0.2f, .key = {5, 6}, .first = 0};
    const int64_t rows = shape.batch * shape.tokens;
    auto qkv = this->template both<T>(random_values(rows * shape.qkv_width(), 1)),
         out = this->template both<T>(Doubles(rows * shape.width())),
         dout = this->template both<T>(random_values(rows * shape.width(), 2)),
         dqkv = this->template both<T>(Doubles(rows * shape.qkv_width()));
    auto lse = this->template both<float>(Doubles(rows * shape.heads));
    this->on_both([&](const Operators<T>& op, const device::Context& c, auto at) {
      ops::AttentionShape own = shape;
      if (!causal) own.lengths = at(lengths);
      op.attention_forward(c, own, at(qkv), at(out), at(lse));
      op.attention_backward(c, own, at(qkv), at(out), at(lse), at(dout), at(dqkv));
    });
    EXPECT_LT(this->difference(out), 2 * kTolerance<T>);
    EXPECT_LT(this->difference(lse), 2 * kTolerance<T>);
    EXPECT_LT(this->difference(dqkv), 4 * kTolerance<T>);
  }
}

TYPED_TEST(TypedGpuOperators, AnUpdateOfParameters) {
  using T = TypeParam;
  const int64_t n = 517;
  auto gradient = this->template both<float>(random_values(n, 1)),
       master = this->template both<float>(random_values(n, 2)),
       first = this->template both<float>(random_values(n, 3)),
       second = this->template both<float>(Doubles(n, 0.5));
  auto parameter = this->template both<T>(Doubles(n));
  auto squares = this->template both<double>(Doubles(3));
  const ops::AdamW settings{.learning_rate = 0.01f, .weight_decay = 0.1f, .gradient_scale = 0.5f, .step = 3};
  this->on_both([&](const Operators<T>& op, const device::Context& c, auto at) {
    op.sum_of_squares(c, at(gradient), n, 200, at(squares));
    op.update(c, settings, at(gradient), at(master), {at(first), at(second)}, at(parameter), n);
    op.convert(c, at(master), at(parameter), n);
    op.add(c, at(first), at(second), at(first), n);
  });
  EXPECT_TRUE(this->same_bits(squares));
  for (auto* each : {&master, &first, &second}) EXPECT_LT(this->difference(*each), kTolerance<float>);
  EXPECT_LT(this->difference(parameter), kTolerance<T>);
}

using Fp32GpuOperators = TypedGpuOperators<float>;

TEST_F(Fp32GpuOperators, RandomNumbersAreTheCpus) {
  auto y = both<float>(Doubles(1001));
  on_both([&](const Operators<float>& op, const device::Context& c, auto at) {
    op.normal(c, {3, 4}, 5, 0.02f, at(y), 1001);
  });
  EXPECT_TRUE(same_bits(y));
}

// ---- Preparing

TEST_F(GpuOperators, WhatWasNotPreparedIsNamed) {
  const auto& op = cuda::operators<float>();
  const device::Memory memory = device->allocate(1 << 16).take();
  float* const x = memory.as<float>();
  const auto refusal = [&](auto&& use) {
    use();
    return queue->status();
  };
  op.add(*compute, x, x + 64, x + 128, 64);
  compute->end_preparing();
  op.add(*compute, x, x + 64, x + 128, 64);
  EXPECT_TRUE(queue->drain().ok()) << queue->status().message();
  EXPECT_TRUE(fails_with(refusal([&] { op.convert(*compute, x, x + 64, 64); }), Code::internal_error,
                         "kernel loom_convert_fp32 with 0 bytes of shared memory was not prepared"));
  queue = new_queue();
}

TEST_F(GpuOperators, ScratchMemoryIsWhatWasPrepared) {
  const auto& op = cuda::operators<float>();
  const device::Memory memory = device->allocate(1 << 16).take();
  float* const x = memory.as<float>();
  const auto turn = [&](int64_t tokens) {
    op.rotary(*compute, {.batch = 1, .tokens = tokens, .heads = 1, .head_size = 8, .dims = 8}, x, false);
  };
  turn(16);
  compute->end_preparing();
  turn(16);
  turn(8);
  EXPECT_TRUE(queue->drain().ok()) << queue->status().message();
  turn(17);
  EXPECT_TRUE(fails_with(queue->status(), Code::internal_error,
                         "an operator needs 544 bytes of scratch memory, 512 were prepared"));
  queue = new_queue();
}

TEST_F(GpuOperators, NormsThatAreTooWideAreRefusedBothWays) {
  const auto& op = cuda::operators<float>();
  constexpr int64_t width = 16 * 1024 + 1;
  const device::Memory memory = device->allocate(width * 8 * int64_t{sizeof(float)}).take();
  const auto at = [&](int64_t row) { return memory.as<float>() + row * width; };
  op.norm_forward(*compute, at(0), at(1), at(2), at(3), at(4), at(5), 1, width, 1e-5f);
  const Status forward = queue->status();
  queue = new_queue();
  compute = cuda::Compute::create(*device, *queue, *kernels, *products).take();
  op.norm_backward(*compute, at(0), at(1), at(4), at(5), at(2), at(3), false, at(6), at(7), 1, width);
  const Status backward = queue->status();
  queue = new_queue();
  EXPECT_TRUE(fails_with(forward, Code::unsupported, "at most 16384 columns, not 16385"));
  EXPECT_TRUE(fails_with(backward, Code::unsupported, "at most 16384 columns, not 16385"));
}

TEST_F(GpuOperators, TwoThatShareProductsPrepareEachByItself) {
  const auto& op = cuda::operators<float>();
  const device::Memory memory = device->allocate(1 << 16).take();
  float* const x = memory.as<float>();
  const auto other = new_queue();
  const auto second = cuda::Compute::create(*device, *other, *kernels, *products).take();
  compute->end_preparing();
  op.linear_forward(*second, x, x + 1024, nullptr, x + 2048, 8, 8, 8);
  EXPECT_TRUE(other->drain().ok()) << other->status().message();
  op.linear_forward(*compute, x, x + 1024, nullptr, x + 2048, 8, 8, 8);  // by the plan that `second` made
  EXPECT_TRUE(queue->drain().ok()) << queue->status().message();
  op.linear_forward(*compute, x, x + 1024, nullptr, x + 2048, 8, 8, 16);
  EXPECT_TRUE(fails_with(queue->status(), Code::internal_error, "was not prepared"));
  queue = new_queue();
}

// ---- A model

/// y = norm(x·w1 + b1)·w2, its loss's gradient dy given, and a step of AdamW on w1: on one device.
template <typename T>
struct TinyModel {
  static constexpr int64_t kRows = 24, kIn = 16, kHidden = 32, kOut = 8;
  T *x, *w1, *b1, *w2, *h, *n, *y, *dy, *dn, *dh, *gain, *shift;
  float *mean, *rstd, *dw1, *db1, *dw2, *dgain, *dshift, *master, *first, *second;

  void step(const Operators<T>& op, const device::Context& c, int64_t number) const {
    op.linear_forward(c, x, w1, b1, h, kRows, kIn, kHidden);
    op.norm_forward(c, h, gain, shift, n, mean, rstd, kRows, kHidden, 1e-5f);
    op.linear_forward(c, n, w2, nullptr, y, kRows, kHidden, kOut);
    op.linear_backward_input(c, dy, w2, dn, kRows, kHidden, kOut);
    op.linear_backward_weight(c, n, dy, dw2, nullptr, kRows, kHidden, kOut);
    op.norm_backward(c, h, gain, mean, rstd, dn, dh, false, dgain, dshift, kRows, kHidden);
    op.linear_backward_weight(c, x, dh, dw1, db1, kRows, kIn, kHidden);
    const ops::AdamW settings{.learning_rate = 0.01f, .step = number};
    op.update(c, settings, dw1, master, {first, second}, w1, kIn * kHidden);
  }
};

TYPED_TEST(TypedGpuOperators, ATinyModelTrainsAsOnTheCpu) {
  using T = TypeParam;
  using Tiny = TinyModel<T>;
  constexpr int64_t rows = Tiny::kRows, in = Tiny::kIn, hidden = Tiny::kHidden, out = Tiny::kOut;
  const auto of = [&](int64_t count, uint32_t seed) {
    return this->template both<T>(random_values(count, seed, 0.5));
  };
  const auto sums = [&](int64_t count) { return this->template both<float>(Doubles(count)); };
  auto x = of(rows * in, 1), w1 = of(in * hidden, 2), b1 = of(hidden, 3), w2 = of(hidden * out, 4),
       h = of(rows * hidden, 5), n = of(rows * hidden, 6), y = of(rows * out, 7), dy = of(rows * out, 8),
       dn = of(rows * hidden, 9), dh = of(rows * hidden, 10), gain = of(hidden, 11), shift = of(hidden, 12);
  auto mean = sums(rows), rstd = sums(rows), dw1 = sums(in * hidden), db1 = sums(hidden),
       dw2 = sums(hidden * out), dgain = sums(hidden), dshift = sums(hidden), first = sums(in * hidden),
       second = sums(in * hidden), master = this->template both<float>(doubles(w1.values()));
  this->on_both([&](const Operators<T>& op, const device::Context& c, auto at) {
    const Tiny model{at(x),   at(w1),    at(b1),     at(w2),     at(h),     at(n),     at(y),   at(dy),
                     at(dn),  at(dh),    at(gain),   at(shift),  at(mean),  at(rstd),  at(dw1), at(db1),
                     at(dw2), at(dgain), at(dshift), at(master), at(first), at(second)};
    for (int64_t number = 1; number <= 5; ++number) {
      model.step(op, c, number);
      if (number == 1 && c.compute != nullptr) c.compute->end_preparing();
    }
  });
  EXPECT_LT(this->difference(y), 4 * kTolerance<T>);
  EXPECT_LT(this->difference(w1), 4 * kTolerance<T>);
  EXPECT_LT(this->difference(dw1), 4 * kTolerance<T>);
}

}  // namespace
}  // namespace loom::testing
