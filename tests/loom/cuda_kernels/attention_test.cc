// Attention's kernels on the emulator, against the CPU's operator in double on the same numbers, and the same
// bits in every order of threads.
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/workers.h"
#include "cuda_kernels/emulator/emulator.h"
#include "device/cuda/kernels/attention_launch.h"
#include "ops/texts.h"

namespace loom::cuda::attention_test {
namespace {

using ops::AttentionShape;
using Doubles = std::vector<double>;

/// What an attention can have besides its sizes.
enum class Variant {
  causal,
  padded,
  window,
  alibi,
  dropout,
  dropout_of_odd_rows,
  tensor_rank,
  all,
  shared,          // two heads of keys for four of queries
  shared_padded,   // one for two
  shared_and_all,  // one for a rank's three
  texts,           // several in a sequence
  texts_and_all,
};

struct Case {
  AttentionShape shape;
  std::vector<int32_t> lengths;
  std::optional<testing::Texts> texts;

  Case(Variant variant, int64_t head_size, int64_t tokens) {
    AttentionShape& s = shape;
    s.batch = 2, s.tokens = tokens, s.heads = 1, s.head_size = head_size;
    s.scale = 1 / std::sqrt(static_cast<float>(head_size));
    switch (variant) {
      case Variant::causal: s.batch = 1, s.heads = 2; break;
      case Variant::padded: pad(); break;
      case Variant::window: s.window = 21, s.batch = 1; break;
      case Variant::alibi: s.alibi = true, s.heads = 4, s.batch = 1; break;
      case Variant::dropout: s.tokens = (tokens + 3) / 4 * 4, drop(1000); break;
      case Variant::dropout_of_odd_rows: s.tokens = tokens | 1, drop(1001); break;
      case Variant::tensor_rank:
        s.first_head = 4, s.all_heads = 6, s.heads = s.key_value_heads = 2, s.alibi = true, s.tokens = 28;
        drop(4);
        break;
      case Variant::all: s.tokens = 48, s.alibi = true, s.window = 17, drop(8); break;
      case Variant::shared: s.heads = 4, s.key_value_heads = 2; break;
      case Variant::shared_padded: s.heads = 2, s.key_value_heads = 1, pad(); break;
      case Variant::shared_and_all:
        s.heads = 3, s.key_value_heads = 1, s.first_head = 3, s.all_heads = 6, s.batch = 1;
        s.alibi = true, s.window = 17, drop(8);
        break;
      case Variant::texts: divide(); break;
      case Variant::texts_and_all:
        s.heads = 4, s.key_value_heads = 2, s.alibi = true, s.window = 18, drop(8);
        divide();
        break;
    }
  }
  void divide() {
    texts.emplace(shape.tokens);
    texts->divide(shape);
  }
  void drop(uint64_t first) { shape.dropout = {0.3f, {42, 3, 5}, first}; }
  void pad() {
    shape.causal = false;
    lengths = {static_cast<int32_t>(shape.tokens), static_cast<int32_t>(shape.tokens / 2 + 1)};
    shape.lengths = lengths.data();
    drop(0);
  }
};

Doubles random_values(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Doubles values(count);
  for (double& x : values) x = normal(random);
  return values;
}

template <typename T>
std::vector<T> as(const Doubles& values) {
  std::vector<T> result;
  for (const double x : values) result.push_back(rounded<T>(static_cast<float>(x)));
  return result;
}
template <typename T>
Doubles doubles(const std::vector<T>& values) {
  Doubles result;
  for (const T x : values) result.push_back(static_cast<double>(value_of(x)));
  return result;
}

struct Outputs {
  Doubles out, lse, dqkv;
  bool operator==(const Outputs&) const = default;
};

template <typename Arguments>
void launch(const KernelLaunch<Arguments>& launch, unsigned seed) {
  const emulated::Kernel* const kernel = emulated::find_kernel(launch.name);
  ASSERT_NE(kernel, nullptr) << launch.name;
  ASSERT_EQ(kernel->argument_bytes, sizeof launch.arguments);
  emulated::run_on_copies(launch.shape, seed, *kernel, &launch.arguments);
}

template <typename T>
T nothing() {
  return rounded<T>(NAN);
}

template <typename T>
Outputs on_emulator(const AttentionShape& s, const std::vector<T>& qkv, const std::vector<T>& dout,
                    unsigned seed) {
  std::vector<T> out(dout.size(), nothing<T>()), dqkv(qkv.size(), nothing<T>());
  std::vector<float> lse(s.batch * s.heads * s.tokens, NAN), delta(lse);
  launch(attention_forward_launch<T>(s, qkv.data(), out.data(), lse.data()), seed);
  const auto backward = attention_backward_launch<T>(s, qkv.data(), out.data(), lse.data(), dout.data(),
                                                     dqkv.data(), delta.data());
  launch(backward.delta, seed);
  launch(backward.keys, seed);
  launch(backward.queries, seed);
  return {doubles(out), Doubles(lse.begin(), lse.end()), doubles(dqkv)};
}

Outputs on_cpu(const AttentionShape& s, const Doubles& qkv, const Doubles& dout) {
  Workers workers(1);
  Outputs r{Doubles(dout.size()), Doubles(s.batch * s.heads * s.tokens), Doubles(qkv.size())};
  ops::operators<double>().attention_forward(workers, s, qkv.data(), r.out.data(), r.lse.data());
  ops::operators<double>().attention_backward(workers, s, qkv.data(), r.out.data(), r.lse.data(), dout.data(),
                                              r.dqkv.data());
  return r;
}

/// Rows of `width` that differ by more than `tolerance` of their own length and the mean one.
void expect_rows(const char* what, const Doubles& actual, const Doubles& expected, int64_t width,
                 double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  double all = 0;
  for (const double x : expected) all += x * x;
  const double mean = std::sqrt(all / static_cast<double>(expected.size()) * static_cast<double>(width));
  int64_t wrong = 0;
  double worst = 0;
  for (size_t row = 0; row < expected.size(); row += width) {
    double difference = 0, length = 0;
    for (int64_t i = 0; i < width; ++i) {
      difference += (actual[row + i] - expected[row + i]) * (actual[row + i] - expected[row + i]);
      length += expected[row + i] * expected[row + i];
    }
    const double error = std::sqrt(difference) / (std::sqrt(length) + mean);
    if (!(error <= tolerance)) ++wrong;
    if (!(error <= worst)) worst = error;
  }
  EXPECT_EQ(wrong, 0) << what << ": rows of " << expected.size() / width << "; the worst is off by " << worst;
  ::testing::Test::RecordProperty(std::string(what), std::to_string(worst));
}

template <typename T>
void check(Variant variant, int64_t head_size, int64_t tokens, const std::vector<unsigned>& seeds) {
  SCOPED_TRACE(std::string(kKernelType<T>) + ", head size " + std::to_string(head_size) + ", variant " +
               std::to_string(static_cast<int>(variant)));
  const Case c(variant, head_size, tokens);
  const AttentionShape& s = c.shape;
  const auto qkv = as<T>(random_values(s.batch * s.tokens * s.qkv_width(), 1));
  const auto dout = as<T>(random_values(s.batch * s.tokens * s.width(), 2));
  const Outputs expected = on_cpu(s, doubles(qkv), doubles(dout));
  const Outputs actual = on_emulator(s, qkv, dout, seeds[0]);
  // A text of one token has gradients of scores that cancel, all but what is rounded.
  const double of_short = s.begins != nullptr ? 2e-3 : 1.5e-3;
  const double tolerance = std::is_same_v<T, float>  ? 5e-6
                           : std::is_same_v<T, bf16> ? 10 * of_short
                                                     : of_short;
  expect_rows("out", actual.out, expected.out, s.head_size, tolerance);
  expect_rows("lse", actual.lse, expected.lse, 1, 1e-5);
  expect_rows("dqkv", actual.dqkv, expected.dqkv, s.head_size, tolerance);
  for (size_t i = 1; i < seeds.size(); ++i)
    EXPECT_TRUE(actual == on_emulator(s, qkv, dout, seeds[i])) << "other bits with seed " << seeds[i];
}

const std::vector<unsigned> kEverySeed = {0, 1, 2, 3};

/// Each kernel, with several tiles of everything, in every order of threads.
template <typename T>
class AttentionKernels : public ::testing::Test {};
using Types = ::testing::Types<float, bf16, fp16>;
TYPED_TEST_SUITE(AttentionKernels, Types);

TYPED_TEST(AttentionKernels, Head64) { check<TypeParam>(Variant::causal, 64, 139, kEverySeed); }
TYPED_TEST(AttentionKernels, Head96) { check<TypeParam>(Variant::causal, 96, 133, kEverySeed); }
TYPED_TEST(AttentionKernels, Head128) { check<TypeParam>(Variant::causal, 128, 133, kEverySeed); }
TYPED_TEST(AttentionKernels, Head256) { check<TypeParam>(Variant::causal, 256, 67, kEverySeed); }
TYPED_TEST(AttentionKernels, Padded) { check<TypeParam>(Variant::padded, 64, 125, kEverySeed); }
TYPED_TEST(AttentionKernels, Window) { check<TypeParam>(Variant::window, 64, 131, {0, 3}); }
TYPED_TEST(AttentionKernels, Alibi) { check<TypeParam>(Variant::alibi, 64, 70, {1, 2}); }
TYPED_TEST(AttentionKernels, Dropout) { check<TypeParam>(Variant::dropout, 64, 70, {2, 3}); }
TYPED_TEST(AttentionKernels, DropoutOfOddRows) {
  check<TypeParam>(Variant::dropout_of_odd_rows, 64, 37, {3});
}
TYPED_TEST(AttentionKernels, TensorRank) { check<TypeParam>(Variant::tensor_rank, 80, 28, {4}); }
TYPED_TEST(AttentionKernels, EverythingAtOnce) { check<TypeParam>(Variant::all, 64, 48, {5}); }
TYPED_TEST(AttentionKernels, EveryVariantOfLargeHeads) {
  for (const int64_t size : {96, 128, 256}) check<TypeParam>(Variant::all, size, 48, {6});
}
TYPED_TEST(AttentionKernels, SharedKeys) { check<TypeParam>(Variant::shared, 64, 70, {0, 2}); }
TYPED_TEST(AttentionKernels, SharedKeysWithPadding) { check<TypeParam>(Variant::shared_padded, 64, 37, {1}); }
TYPED_TEST(AttentionKernels, SharedKeysWithEverything) {
  check<TypeParam>(Variant::shared_and_all, 64, 47, {3});
}
TYPED_TEST(AttentionKernels, SharedKeysOfLargeAndOddHeads) {
  for (const int64_t size : {7, 96, 128, 256}) check<TypeParam>(Variant::shared_and_all, size, 35, {6});
}
TYPED_TEST(AttentionKernels, SeveralTexts) {
  for (const int64_t tokens : {37, 139}) check<TypeParam>(Variant::texts, 64, tokens, {0, 3});
}
TYPED_TEST(AttentionKernels, SeveralTextsWithEverything) {
  for (const int64_t size : {7, 64, 128, 256}) check<TypeParam>(Variant::texts_and_all, size, 48, {6});
  check<TypeParam>(Variant::texts_and_all, 64, 139, {6});
}
TYPED_TEST(AttentionKernels, ASequenceOfLengthZeroGetsZeros) {
  Case c(Variant::padded, 64, 70);
  c.lengths = {0, 1}, c.shape.dropout = {};
  const size_t each = 70 * 64;
  const auto qkv = as<TypeParam>(random_values(2 * 3 * each, 1)),
             dout = as<TypeParam>(random_values(2 * each, 2));
  for (unsigned seed = 0; seed < 24; ++seed) {  // rarely seen: a copy between two operations of another warp
    const Outputs outputs = on_emulator(c.shape, qkv, dout, seed);
    for (size_t i = 0; i < each; ++i) ASSERT_EQ(outputs.out[i], 0) << i;
    for (size_t i = 0; i < 3 * each; ++i) ASSERT_EQ(outputs.dqkv[i], 0) << i;
    for (size_t i = each; i < 2 * each; ++i) ASSERT_NE(outputs.out[i], 0) << i;
  }
}
/// Heads that are no whole chunks of 16 bytes, and no even number of elements.
TYPED_TEST(AttentionKernels, SmallAndOddHeads) {
  for (const int64_t size : {4, 7, 16, 81, 129}) check<TypeParam>(Variant::padded, size, 5, {7});
}
TYPED_TEST(AttentionKernels, OneToken) { check<TypeParam>(Variant::causal, 64, 1, {0}); }

}  // namespace
}  // namespace loom::cuda::attention_test
