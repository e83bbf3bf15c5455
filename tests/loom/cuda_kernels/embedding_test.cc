// Embeddings of tokens and positions, forward and backward, and rotary embeddings.
#include "device/cuda/kernels/embedding.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "base/workers.h"
#include "cuda_kernels/launch.h"
#include "device/cuda/kernels/embedding_gradient.h"
#include "device/cuda/kernels/rotary.h"
#include "device/cuda/kernels/token_order.h"

namespace loom::cuda {
namespace {

using namespace loom::testing;

LOOM_TYPED_KERNEL_SUITE(EmbeddingKernel);
LOOM_TYPED_KERNEL_SUITE(PositionKernel);
LOOM_TYPED_KERNEL_SUITE(RotaryKernel);

/// Every other token is the same: its run goes on through many pieces.
std::vector<int32_t> tokens_of(int64_t rows, int64_t vocabulary, uint32_t seed) {
  std::minstd_rand random(seed);
  std::vector<int32_t> token(static_cast<size_t>(rows));
  for (size_t i = 0; i < token.size(); ++i)
    token[i] =
        i % 2 == 0 ? static_cast<int32_t>(vocabulary / 2) : static_cast<int32_t>(random() % vocabulary);
  return token;
}

TYPED_TEST(EmbeddingKernel, ForwardIsTheCpus) {
  using T = TypeParam;
  Workers workers(1);
  constexpr int64_t kRows = 10, kTokens = 4, kVocabulary = 7;
  for (const int64_t width : {1, 24, 77, 2056})
    for (const bool has_more : {false, true}) {
      std::vector<int32_t> token = tokens_of(kRows, kVocabulary, 1);
      const Doubles wte = held<T>(random_values(kVocabulary * width, 1)),
                    type = held<T>(random_values(width, 3));
      const Doubles wpe = held<T>(random_values(kTokens * width, 2));
      Doubles y(static_cast<size_t>(kRows * width));
      ops::operators<double>().embedding_forward(
          workers, token.data(), nullptr, wte.data(), has_more ? wpe.data() : nullptr,
          has_more ? type.data() : nullptr, y.data(), kRows, kTokens, kVocabulary, width);
      const Doubles got = in_every_order([&](unsigned seed) {
        Elements<T> e(wte), p(wpe), t(type), to(kRows * width);
        launch(std::string("loom_embedding_") + kKernelType<T>,
               EmbeddingArguments<T>{token.data(),
                                     e.data(),
                                     has_more ? p.data() : nullptr,
                                     has_more ? t.data() : nullptr,
                                     to.data(),
                                     kRows,
                                     width,
                                     {0, kVocabulary},
                                     {nullptr, 0, kTokens}},
               seed);
        return to.doubles();
      });
      EXPECT_LT(error_of(got, y), kTolerance<T>) << width;
    }
}

TYPED_TEST(EmbeddingKernel, TokensOfOtherRanksAreZero) {
  using T = TypeParam;
  Workers workers(1);
  constexpr int64_t kRows = 9, kWidth = 40;
  constexpr ops::VocabularyRange kOwn{3, 5};
  std::vector<int32_t> token = {0, 2, 3, 7, 8, 5, 11, 4, 7};
  const Doubles wte = held<T>(random_values(kOwn.count * kWidth, 1));
  Doubles y(kRows * kWidth);
  ops::operators<double>().split_embedding_forward(workers, token.data(), wte.data(), kOwn, y.data(), kRows,
                                                   kWidth);
  Elements<T> e(wte), to(kRows * kWidth);
  launch(std::string("loom_embedding_") + kKernelType<T>,
         EmbeddingArguments<T>{token.data(), e.data(), nullptr, nullptr, to.data(), kRows, kWidth, kOwn, {}},
         0);
  EXPECT_EQ(to.doubles(), y);
}

/// The order by the kernels, digit by digit.
std::vector<int32_t> order_of(std::vector<int32_t> token, const ops::VocabularyRange& own, unsigned seed,
                              const int32_t* position = nullptr) {
  TokenOrderArguments a{{token.data(), position, own},      nullptr, nullptr, nullptr,
                        static_cast<int64_t>(token.size()), 0};
  std::vector<int32_t> places(static_cast<size_t>(kDigits * a.tiles()), -1), before, after(token.size(), -1);
  a.places = places.data();
  for (a.digit = 0; a.digit < TokenOrderArguments::digits(own); ++a.digit) {
    a.before = a.digit == 0 ? nullptr : before.data();
    a.after = after.data();
    launch("loom_count_digits", a.shape_of_tiles(), a, seed);
    launch("loom_find_places", a.shape_of_scan(), a, seed);
    launch("loom_place_rows", a.shape_of_tiles(), a, seed);
    before = after;
  }
  return before;
}

TEST(TokenOrderKernels, SortStably) {
  for (const auto& [rows, own, vocabulary] :
       {std::tuple<int64_t, ops::VocabularyRange, int64_t>{1, {0, 5}, 5},
        {257, {0, 255}, 255},
        {300, {0, 256}, 256},
        {700, {0, 70000}, 70000},
        {300, {10, 30}, 60},
        {1100, {0, 300}, 300}}) {
    const std::vector<int32_t> token = tokens_of(rows, vocabulary, 5);
    std::vector<int32_t> wanted(token.size());
    std::iota(wanted.begin(), wanted.end(), 0);
    const auto key = [&](int32_t row) { return own.has(token[row]) ? token[row] : vocabulary; };
    std::stable_sort(wanted.begin(), wanted.end(), [&](int32_t a, int32_t b) { return key(a) < key(b); });
    for (unsigned seed = 0; seed <= emulated::kOrders; ++seed) EXPECT_EQ(order_of(token, own, seed), wanted);
  }
}

TYPED_TEST(EmbeddingKernel, GradientIsTheCpus) {
  using T = TypeParam;
  Workers workers(1);
  for (const auto& [rows, width, own, vocabulary] :
       {std::tuple<int64_t, int64_t, ops::VocabularyRange, int64_t>{1, 8, {0, 4}, 4},
        {32, 16, {0, 2}, 2},
        {33, 77, {0, 1}, 1},
        {200, 24, {0, 9}, 9},
        {150, 16, {5, 9}, 20},
        {30, 16, {5, 9}, 20},
        {90, 2056, {0, 3}, 3}}) {
    std::vector<int32_t> token = tokens_of(rows, vocabulary, 6);
    const Doubles dy = held<T>(random_values(rows * width, 1)),
                  before = held<float>(random_values(own.count * width, 2));
    Doubles wanted(before);
    ops::operators<double>().split_embedding_backward(workers, token.data(), nullptr, dy.data(), own,
                                                      wanted.data(), rows, width);
    const Doubles got = in_every_order([&](unsigned seed) {
      std::vector<int32_t> order = order_of(token, own, 0);
      Elements<T> from(dy);
      Elements<float> dwte(before);
      EmbeddingGradientArguments<T> a{
          {token.data(), nullptr, own}, order.data(), from.data(), dwte.data(), nullptr, rows, width};
      Elements<float> sums(a.pieces() * 2 * width);
      a.sums = sums.data();
      launch(std::string("loom_embedding_gradient_") + kKernelType<T>, a, seed);
      launch(std::string("loom_embedding_gradient_runs_") + kKernelType<T>, a, seed);
      return dwte.doubles();
    });
    EXPECT_LT(error_of(got, wanted), kTolerance<float>) << rows << " of " << width;
  }
}

TYPED_TEST(PositionKernel, ForwardAndBackwardAreTheCpus) {
  using T = TypeParam;
  Workers workers(1);
  constexpr int64_t kRows = 11, kTokens = 4;
  for (const int64_t first : {0, 3, 6})
    for (const int64_t width : {1, 24, 77, 2056}) {
      const Doubles x = held<T>(random_values(kRows * width, 1)),
                    wpe = held<T>(random_values(kTokens * width, 2));
      const Doubles before = held<float>(random_values(kTokens * width, 3));
      Doubles y(x.size()), dwpe(before);
      ops::operators<double>().position_forward(workers, x.data(), wpe.data(), nullptr, y.data(), first,
                                                kRows, kTokens, width);
      ops::operators<double>().position_backward(workers, x.data(), nullptr, dwpe.data(), first, kRows,
                                                 kTokens, width);
      const Doubles got = in_every_order([&](unsigned seed) {
        Elements<T> in(x), p(wpe), dy(x), apart(kRows * width);
        Elements<float> d(before);
        PositionArguments<T> a{
            in.data(), p.data(), apart.data(), kRows, width, width, {nullptr, first, kTokens}};
        launch(std::string("loom_position_") + kKernelType<T>, a, seed);
        a.y = in.data();  // in place
        launch(std::string("loom_position_") + kKernelType<T>, a, seed);
        EXPECT_EQ(in.doubles(), apart.doubles());
        launch(std::string("loom_position_gradient_") + kKernelType<T>,
               PositionGradientArguments<T>{dy.data(), d.data(), first, kRows, kTokens, width}, seed);
        return joined(in.doubles(), d.doubles());
      });
      EXPECT_LT(error_of(part(got, 0, kRows * width), y), kTolerance<T>) << width;
      EXPECT_LT(error_of(part(got, kRows * width, kTokens * width), dwpe), kTolerance<float>) << width;
    }
}

/// Of padding inside a sequence it is -1: the row before the table, and no gradient.
const std::vector<int32_t> kPositions = {0, 1, -1, 2, -1, 0, 1, 2, 3};

TYPED_TEST(PositionKernel, MayBeGivenForEachRow) {
  using T = TypeParam;
  Workers workers(1);
  constexpr int64_t kRows = 9, kTokens = 5, kVocabulary = 4;
  for (const int64_t width : {24, 77}) {
    std::vector<int32_t> token = {1, 3, 2, 0, 2, 1, 1, 3, 0}, positions = kPositions;
    const Doubles wte = held<T>(random_values(kVocabulary * width, 1)),
                  wpe = held<T>(random_values((kTokens + 1) * width, 2)),
                  x = held<T>(random_values(kRows * width, 3));
    Doubles y(x.size()), z(x.size());
    const auto& op = ops::operators<double>();
    op.embedding_forward(workers, token.data(), positions.data(), wte.data(), wpe.data() + width, nullptr,
                         y.data(), kRows, kTokens, kVocabulary, width);
    op.position_forward(workers, x.data(), wpe.data() + width, positions.data(), z.data(), 0, kRows, kTokens,
                        width);
    const Doubles got = in_every_order([&](unsigned seed) {
      Elements<T> e(wte), p(wpe), in(x), sum(kRows * width), of_tokens(kRows * width);
      const Positions given{positions.data(), 0, kTokens};
      launch(std::string("loom_embedding_") + kKernelType<T>,
             EmbeddingArguments<T>{token.data(),
                                   e.data(),
                                   p.data(),
                                   nullptr,
                                   of_tokens.data(),
                                   kRows,
                                   width,
                                   {0, kVocabulary},
                                   given},
             seed);
      launch(std::string("loom_position_") + kKernelType<T>,
             PositionArguments<T>{in.data(), p.data(), sum.data(), kRows, width, width, given}, seed);
      return joined(of_tokens.doubles(), sum.doubles());
    });
    EXPECT_LT(error_of(got, joined(y, z)), kTolerance<T>) << width;
  }
}

/// A bias of logits, whose rows are padded.
TYPED_TEST(PositionKernel, LeavesWhatIsBetweenRows) {
  using T = TypeParam;
  constexpr int64_t kRows = 3;
  for (const auto& [width, stride] : {std::pair<int64_t, int64_t>{13, 16}, {16, 24}, {16, 17}}) {
    const Doubles x = held<T>(random_values(kRows * stride, 1)), bias = held<T>(random_values(width, 2));
    Doubles wanted(x);
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t c = 0; c < width; ++c) wanted[row * stride + c] += bias[c];
    const Doubles got = in_every_order([&](unsigned seed) {
      Elements<T> y(x), b(bias);
      launch(std::string("loom_position_") + kKernelType<T>,
             PositionArguments<T>{y.data(), b.data(), y.data(), kRows, width, stride, {}}, seed);
      return y.doubles();
    });
    EXPECT_LT(error_of(got, wanted), kTolerance<T>) << width;
  }
}

TYPED_TEST(EmbeddingKernel, PaddingInsideASequenceTrainsNoToken) {
  using T = TypeParam;
  Workers workers(1);
  constexpr int64_t kWidth = 16;
  constexpr ops::VocabularyRange kOwn{0, 3};
  std::vector<int32_t> token = {1, 1, 2, 0, 2, 1, 2, 0, 1}, positions = kPositions;
  const Doubles dy = held<T>(random_values(9 * kWidth, 1));
  Doubles wanted(kOwn.count * kWidth);
  ops::operators<double>().split_embedding_backward(workers, token.data(), positions.data(), dy.data(), kOwn,
                                                    wanted.data(), 9, kWidth);
  const Doubles got = in_every_order([&](unsigned seed) {
    std::vector<int32_t> order = order_of(token, kOwn, seed, positions.data());
    Elements<T> from(dy);
    Elements<float> dwte{Doubles(wanted.size())};
    EmbeddingGradientArguments<T> a{
        {token.data(), positions.data(), kOwn}, order.data(), from.data(), dwte.data(), nullptr, 9, kWidth};
    Elements<float> sums(a.pieces() * 2 * kWidth);
    a.sums = sums.data();
    launch(std::string("loom_embedding_gradient_") + kKernelType<T>, a, seed);
    launch(std::string("loom_embedding_gradient_runs_") + kKernelType<T>, a, seed);
    return dwte.doubles();
  });
  EXPECT_LT(error_of(got, wanted), kTolerance<float>);
}

/// Heads of keys as many as of queries, two and one; all pairs slower, and some.
std::vector<ops::RotaryShape> rotary_shapes(bool interleaved) {
  const auto shape = [&](int64_t heads, int64_t key_heads, int64_t head_size, int64_t dims) {
    return ops::RotaryShape{.batch = 2,
                            .tokens = 5,
                            .heads = heads,
                            .key_value_heads = key_heads,
                            .head_size = head_size,
                            .dims = dims,
                            .interleaved = interleaved,
                            .first_position = 7};
  };
  std::vector<ops::RotaryShape> shapes = {shape(3, 0, 2, 2), shape(3, 3, 20, 10), shape(4, 2, 64, 16),
                                          shape(3, 1, 96, 96), shape(2, 1, 32, 32)};
  shapes[1].scaling.factor = 3;
  // Turns in so many tokens are between 25 and 0.006: pairs that stay, that are mixed, and that slow down.
  shapes[4].scaling = {.factor = 8, .context = 160, .low = 1, .high = 4};
  shapes[4].first_position = 1000;
  return shapes;
}

TYPED_TEST(RotaryKernel, IsTheCpus) {
  using T = TypeParam;
  Workers workers(1);
  for (const bool interleaved : {false, true})
    for (const bool back : {false, true})
      for (const ops::RotaryShape& shape : rotary_shapes(interleaved)) {
        const int64_t rows = shape.batch * shape.tokens, n = rows * shape.qkv_width();
        const int64_t head_size = shape.head_size, dims = shape.dims;
        const Doubles qkv = held<T>(random_values(n, 1));
        Doubles wanted(qkv);
        ops::operators<double>().rotary(workers, shape, wanted.data(), back);
        const Doubles got = in_every_order([&](unsigned seed) {
          Elements<T> x(qkv);
          Elements<float> turns(shape.tokens * dims);
          launch("loom_rotary_turns",
                 RotaryTurnsArguments{turns.data(), shape.tokens, dims, shape.first_position, shape.base,
                                      shape.scaling},
                 seed);
          launch(std::string("loom_rotary_") + kKernelType<T>,
                 RotaryArguments<T>{x.data(), turns.data(), rows, shape.tokens, shape.qkv_width(),
                                    shape.turned_heads(), head_size, dims, interleaved, back},
                 seed);
          return x.doubles();
        });
        EXPECT_LT(error_of(got, wanted), kTolerance<T>) << head_size;
      }
}

}  // namespace
}  // namespace loom::cuda
