// Rows that are put together from others, and the count of right classes.
#include "device/cuda/kernels/gather_rows.h"

#include "base/workers.h"
#include "cuda_kernels/launch.h"

namespace loom::cuda {
namespace {

using namespace loom::testing;

LOOM_TYPED_KERNEL_SUITE(GatherRowsKernel);
LOOM_TYPED_KERNEL_SUITE(CountRightKernel);

TYPED_TEST(GatherRowsKernel, TakesRowsAndZeros) {
  using T = TypeParam;
  Workers workers(1);
  constexpr int64_t kOf = 6, kRows = 5;
  for (const int64_t width : {1, 24, 77, 2056}) {
    std::vector<int32_t> row = {4, -1, 0, 5, 4};
    const Doubles x = held<T>(random_values(kOf * width, 1));
    Doubles wanted(kRows * width);
    ops::operators<double>().gather_rows(workers, x.data(), kOf, row.data(), wanted.data(), kRows, width);
    const Doubles got = in_every_order([&](unsigned seed) {
      Elements<T> from(x), to(kRows * width);
      launch(std::string("loom_gather_rows_") + kKernelType<T>,
             GatherRowsArguments<T>{from.data(), row.data(), to.data(), kOf, kRows, width}, seed);
      return to.doubles();
    });
    EXPECT_EQ(got, wanted) << width;
  }
}

/// Of equal scores the first is the likeliest, as on the CPU. A row without a target is not right.
TYPED_TEST(CountRightKernel, IsTheCpus) {
  using T = TypeParam;
  Workers workers(1);
  for (const auto& [rows, classes, stride] :
       {std::array<int64_t, 3>{1, 2, 2}, {9, 3, 3}, {300, 9, 16}, {700, 5, 5}}) {
    Doubles scores = held<T>(random_values(rows * stride, 1)), dense;
    std::vector<int32_t> target(static_cast<size_t>(rows));
    for (int64_t row = 0; row < rows; ++row) {
      if (row % 3 == 1) scores[row * stride + 1] = scores[row * stride];
      target[row] = row % 7 == 6 ? -1 : static_cast<int32_t>(row % classes);
      dense.insert(dense.end(), scores.begin() + row * stride, scores.begin() + row * stride + classes);
    }
    Doubles wanted = {2};
    ops::operators<double>().count_right(workers, dense.data(), target.data(), wanted.data(), rows, classes);
    const Doubles got = in_every_order([&](unsigned seed) {
      Elements<T> from(scores);
      Doubles right = {2};
      launch(std::string("loom_count_right_") + kKernelType<T>,
             CountRightArguments<T>{from.data(), target.data(), right.data(), rows, classes, stride}, seed);
      return right;
    });
    EXPECT_EQ(got, wanted) << rows;
  }
}

}  // namespace
}  // namespace loom::cuda
