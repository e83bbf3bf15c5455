// Cross-entropy, whole and split over ranks.
#include "device/cuda/kernels/cross_entropy.h"

#include "base/workers.h"
#include "cuda_kernels/launch.h"
#include "device/cuda/kernels/split_cross_entropy.h"

namespace loom::cuda {
namespace {

using namespace loom::testing;

LOOM_TYPED_KERNEL_SUITE(CrossEntropyKernel);

/// Vocabularies of less than a pack, of a warp, of several packs a thread; rows that are padded and not.
struct Logits {
  int64_t rows, vocabulary, stride;
};
constexpr Logits kLogits[] = {{3, 1, 1},     {4, 5, 8},       {5, 77, 77},
                              {4, 253, 256}, {3, 4800, 4800}, {2, 5003, 5008}};

/// Rows [M, V] of rows [M, stride].
Doubles without_padding(const Doubles& padded, const Logits& l) {
  Doubles rows;
  for (int64_t row = 0; row < l.rows; ++row)
    rows.insert(rows.end(), padded.begin() + row * l.stride, padded.begin() + row * l.stride + l.vocabulary);
  return rows;
}

std::vector<int32_t> targets_of(const Logits& l) {
  std::vector<int32_t> target(static_cast<size_t>(l.rows));
  for (int64_t row = 0; row < l.rows; ++row)
    target[row] = row == 1 ? -1 : static_cast<int32_t>(row == 0 ? l.vocabulary - 1 : row * 31 % l.vocabulary);
  return target;
}

/// Small, large and equal logits; a row's largest far from the others.
template <typename T>
Doubles logits_of(const Logits& l) {
  Doubles x = random_values(l.rows * l.stride, 1, 4);
  for (int64_t c = 0; c < l.stride; ++c) x[c] = x[c] * 10 - 300;
  x[(l.rows - 1) * l.stride + l.vocabulary / 2] = 60;
  return held<T>(x);
}

TYPED_TEST(CrossEntropyKernel, IsTheCpus) {
  using T = TypeParam;
  Workers workers(1);
  constexpr double kScale = 0.25;
  for (const Logits& l : kLogits) {
    const Doubles logits = logits_of<T>(l);
    std::vector<int32_t> target = targets_of(l);
    Doubles wanted = without_padding(logits, l), loss(static_cast<size_t>(l.rows));
    ops::operators<double>().cross_entropy(workers, wanted.data(), target.data(), loss.data(), l.rows,
                                           l.vocabulary, kScale);
    const Doubles got = in_every_order([&](unsigned seed) {
      Elements<T> x(logits);
      Elements<double> losses(l.rows);
      launch(std::string("loom_cross_entropy_") + kKernelType<T>,
             CrossEntropyArguments<T>{x.data(), target.data(), losses.data(), l.rows, l.vocabulary, l.stride,
                                      kScale},
             seed);
      for (int64_t row = 0; row < l.rows; ++row)
        for (int64_t c = l.vocabulary; c < l.stride; ++c) EXPECT_EQ(value_of(x[row * l.stride + c]), 0) << c;
      return joined(without_padding(x.doubles(), l), losses.doubles());
    });
    EXPECT_LT(error_of(part(got, 0, l.rows * l.vocabulary), wanted), kTolerance<T>) << l.vocabulary;
    EXPECT_LT(error_of(part(got, l.rows * l.vocabulary, l.rows), loss), kTolerance<float>) << l.vocabulary;
  }
}

TYPED_TEST(CrossEntropyKernel, SumsOverRanks) {
  using T = TypeParam;
  Workers workers(1);
  constexpr double kScale = 0.5;
  for (const auto& [l, ranks] :
       {std::pair<Logits, int>{{4, 1, 1}, 1}, {{5, 90, 90}, 3}, {{4, 5006, 5006}, 2}}) {
    const Doubles logits = logits_of<T>(l);
    std::vector<int32_t> target = targets_of(l);
    if (ranks > 1) target[2] = static_cast<int32_t>(l.vocabulary / ranks);  // the second rank's first
    Doubles wanted(logits), loss(static_cast<size_t>(l.rows));
    ops::operators<double>().cross_entropy(workers, wanted.data(), target.data(), loss.data(), l.rows,
                                           l.vocabulary, kScale);
    const int64_t count = l.vocabulary / ranks, stride = ceil_div(count, 8) * 8;
    const Doubles got = in_every_order([&](unsigned seed) {
      Elements<float> numbers(ranks * l.rows * 3);
      std::vector<Elements<T>> parts;
      for (int rank = 0; rank < ranks; ++rank) {
        Elements<T>& x = parts.emplace_back(l.rows * stride);
        for (int64_t row = 0; row < l.rows; ++row)
          for (int64_t c = 0; c < count; ++c)
            store(x[row * stride + c], static_cast<float>(logits[row * l.vocabulary + rank * count + c]));
        launch(std::string("loom_split_cross_entropy_begin_") + kKernelType<T>,
               SplitCrossEntropyBeginArguments<T>{x.data(),
                                                  target.data(),
                                                  numbers.data() + rank * l.rows * 3,
                                                  l.rows,
                                                  stride,
                                                  {rank * count, count}},
               seed);
      }
      Doubles all(static_cast<size_t>(l.rows * l.vocabulary)), losses;
      for (int rank = 0; rank < ranks; ++rank) {
        Elements<double> of_rank(l.rows);
        launch(std::string("loom_split_cross_entropy_finish_") + kKernelType<T>,
               SplitCrossEntropyFinishArguments<T>{parts[rank].data(),
                                                   target.data(),
                                                   numbers.data(),
                                                   of_rank.data(),
                                                   l.rows,
                                                   stride,
                                                   {rank * count, count},
                                                   ranks,
                                                   kScale},
               seed);
        const Doubles gradients = parts[rank].doubles();
        for (int64_t i = 0; i < l.rows * stride; ++i) {
          const double d = gradients[static_cast<size_t>(i)];
          if (i % stride < count) {
            all[i / stride * l.vocabulary + rank * count + i % stride] = d;
          } else {
            EXPECT_EQ(d, 0);
          }
        }
        if (rank > 0) {
          EXPECT_EQ(losses, of_rank.doubles());
        }
        losses = of_rank.doubles();
      }
      return joined(all, losses);
    });
    EXPECT_LT(error_of(part(got, 0, l.rows * l.vocabulary), wanted), kTolerance<T>) << l.vocabulary;
    EXPECT_LT(error_of(part(got, l.rows * l.vocabulary, l.rows), loss), kTolerance<float>) << l.vocabulary;
  }
}

TYPED_TEST(CrossEntropyKernel, ANaNStaysOne) {
  using T = TypeParam;
  Elements<T> x(Doubles{1, NAN, 2, 3});
  std::vector<int32_t> target = {0};
  Elements<double> loss(1);
  launch(std::string("loom_cross_entropy_") + kKernelType<T>,
         CrossEntropyArguments<T>{x.data(), target.data(), loss.data(), 1, 4, 4, 1}, 0);
  EXPECT_TRUE(std::isnan(loss[0]));
}

}  // namespace
}  // namespace loom::cuda
