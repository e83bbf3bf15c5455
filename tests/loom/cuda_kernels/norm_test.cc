// Layer norms and RMS norms, with what is fused with them, and sums of columns.
#include "device/cuda/kernels/norm.h"

#include "base/workers.h"
#include "cuda_kernels/launch.h"

namespace loom::cuda {
namespace {

using namespace loom::testing;

LOOM_TYPED_KERNEL_SUITE(NormKernel);
LOOM_TYPED_KERNEL_SUITE(ColumnSumsKernel);

/// Rows of one element, of less than a warp, of whole packs and not, of several warps and several packs a
/// thread; `shift` sets arrays at addresses that are not aligned.
struct Rows {
  int64_t rows, width;
  int shift = 0;
  int64_t parts = 0;  // blocks of a backward pass, where not as many as it takes by itself
};
constexpr Rows kRows[] = {{3, 1}, {5, 24}, {4, 77}, {2, 256, 1}, {3, 520}};

constexpr float kEpsilon = 1e-5f;
const ops::Dropout kDropout{0.25f, {9, 2, 3}, 6};

/// Whether a norm has mean and bias, or neither.
enum class Kind { layer, rms };
constexpr Kind kKinds[] = {Kind::layer, Kind::rms};
/// What only a layer norm has.
template <typename E>
E* of_layer(Kind kind, E* array) {
  return kind == Kind::layer ? array : nullptr;
}

/// The wanted arrays of a norm, computed in fp64. The mean of an RMS norm stays 0.
struct Norm {
  Doubles x, weight, bias, y, mean, rstd;
  Norm(Kind kind, const Doubles& rows_of, int64_t rows, int64_t width, const Doubles& weights,
       const Doubles& biases)
      : x(rows_of), weight(weights), bias(biases), y(x.size()), mean(static_cast<size_t>(rows)), rstd(mean) {
    Workers workers(1);
    ops::operators<double>().norm_forward(workers, x.data(), weight.data(), of_layer(kind, bias.data()),
                                          y.data(), of_layer(kind, mean.data()), rstd.data(), rows, width,
                                          kEpsilon);
  }
};

TYPED_TEST(NormKernel, ForwardIsTheCpus) {
  using T = TypeParam;
  for (const Kind kind : kKinds)
    for (const auto [rows, width, shift, parts] : kRows) {
      const Norm wanted(kind, held<T>(random_values(rows * width, 1, 2, 30)), rows, width,
                        held<T>(random_values(width, 2)), held<T>(random_values(width, 3)));
      const Doubles got = in_every_order([&](unsigned seed) {
        Elements<T> x(wanted.x, shift), weight(wanted.weight), bias(wanted.bias, shift), y(rows * width);
        Elements<float> mean(Doubles(static_cast<size_t>(rows))), rstd(rows);
        launch(std::string("loom_norm_forward_") + kKernelType<T>,
               NormForwardArguments<T>{x.data(), weight.data(), of_layer(kind, bias.data()), y.data(),
                                       of_layer(kind, mean.data()), rstd.data(), rows, width, kEpsilon},
               seed);
        return joined(y.doubles(), mean.doubles(), rstd.doubles());
      });
      EXPECT_LT(error_of(part(got, 0, rows * width), wanted.y), kTolerance<T>) << width;
      EXPECT_LT(error_of(part(got, rows * width, rows), wanted.mean), kTolerance<float>) << width;
      EXPECT_LT(error_of(part(got, rows * width + rows, rows), wanted.rstd), kTolerance<float>) << width;
    }
}

TYPED_TEST(NormKernel, MayAddToTheResidualFirst) {
  using T = TypeParam;
  Workers workers(1);
  for (const auto [rows, width, shift, parts] : kRows)
    for (const auto& [kind, has_bias] :
         {std::pair(Kind::layer, false), {Kind::layer, true}, {Kind::rms, true}}) {
      const Doubles residual = held<T>(random_values(rows * width, 1)),
                    x = held<T>(random_values(rows * width, 2));
      const Doubles added = held<T>(random_values(width, 3));
      Doubles sum(x.size());
      ops::operators<double>().add_dropout(workers, kDropout, residual.data(), x.data(),
                                           has_bias ? added.data() : nullptr, sum.data(), rows, width);
      const Doubles weight = held<T>(random_values(width, 4)), bias = held<T>(random_values(width, 5));
      const int64_t n = rows * width;
      const Doubles got = in_every_order([&](unsigned seed) {
        Elements<T> to(residual, shift), in(x), with(added), w(weight), b(bias), y(n), apart(n);
        Elements<float> mean(Doubles(static_cast<size_t>(rows))), rstd(rows);
        NormForwardArguments<T> arguments{in.data(),
                                          w.data(),
                                          of_layer(kind, b.data()),
                                          y.data(),
                                          of_layer(kind, mean.data()),
                                          rstd.data(),
                                          rows,
                                          width,
                                          kEpsilon};
        arguments.residual = to.data();
        arguments.sum = apart.data();
        arguments.added = has_bias ? with.data() : nullptr;
        arguments.mask = DropoutMask(kDropout);
        launch(std::string("loom_norm_forward_") + kKernelType<T>, arguments, seed);
        arguments.sum = to.data();  // in place
        launch(std::string("loom_norm_forward_") + kKernelType<T>, arguments, seed);
        EXPECT_EQ(to.doubles(), apart.doubles());
        return joined(to.doubles(), y.doubles(), mean.doubles());
      });
      EXPECT_LT(error_of(part(got, 0, n), sum), kTolerance<T>) << width;
      const Norm wanted(kind, part(got, 0, n), rows, width, weight, bias);  // of the sum as it was rounded
      EXPECT_LT(error_of(part(got, n, n), wanted.y), kTolerance<T>) << width;
      EXPECT_LT(error_of(part(got, 2 * n, rows), wanted.mean), kTolerance<float>) << width;
    }
}

/// Runs both kernels of a backward pass: dx, masked, dweight and dbias, which stays 0 where there is none.
template <typename T>
Doubles backward(Kind kind, const Norm& norm, const Doubles& dy, const Doubles& dx_before, const Rows& shape,
                 bool add, bool wide, unsigned seed) {
  const auto [rows, width, shift, parts] = shape;
  Elements<T> x(norm.x, shift), weight(norm.weight), from(dy), dx(add ? dx_before : dy, shift),
      masked(rows * width);
  Elements<float> mean(norm.mean), rstd(norm.rstd), dweight(width),
      dbias(Doubles(static_cast<size_t>(width)));
  NormBackwardArguments<T> a{x.data(),
                             weight.data(),
                             of_layer(kind, mean.data()),
                             rstd.data(),
                             add ? from.data() : dx.data(),
                             dx.data(),
                             nullptr,
                             rows,
                             width,
                             add};
  a.masked = masked.data();
  a.mask = DropoutMask(kDropout);
  Elements<float> partial(a.parts() * a.parameters() * width);
  a.partial = partial.data();
  LaunchShape launched = a.shape();
  FoldArguments fold = a.fold(dweight.data(), of_layer(kind, dbias.data()));
  if (parts > 0) launched.grid[0] = static_cast<unsigned>(fold.parts = parts);
  launch(std::string("loom_norm_backward_") + (wide ? "wide_" : "") + kKernelType<T>, launched, a, seed);
  launch("loom_fold", fold, seed);
  return joined(dx.doubles(), masked.doubles(), dweight.doubles(), dbias.doubles());
}

/// That of a shape both ways: added to dx, or in place of dy.
template <typename T>
void check_backward(Kind kind, const Rows& shape, bool add, bool wide, bool every_order) {
  const int64_t rows = shape.rows, width = shape.width, n = rows * width;
  Norm norm(kind, held<T>(random_values(n, 1, 2, 1)), rows, width, held<T>(random_values(width, 2)),
            Doubles(static_cast<size_t>(width)));
  norm.mean = held<float>(norm.mean), norm.rstd = held<float>(norm.rstd);
  const Doubles dy = held<T>(random_values(n, 4)), before = held<T>(random_values(n, 5));
  Doubles dx(before), dweight(static_cast<size_t>(width)), dbias(dweight);
  Workers workers(1);
  const auto& op = ops::operators<double>();
  op.norm_backward(workers, norm.x.data(), norm.weight.data(), of_layer(kind, norm.mean.data()),
                   norm.rstd.data(), dy.data(), dx.data(), add, dweight.data(), of_layer(kind, dbias.data()),
                   rows, width);
  const auto run = [&](unsigned seed) { return backward<T>(kind, norm, dy, before, shape, add, wide, seed); };
  const Doubles got = every_order ? in_every_order(run) : run(emulated::kOrders);
  EXPECT_LT(error_of(part(got, 0, n), dx), kTolerance<T>) << width;
  Elements<T> stored(part(got, 0, n)), masked(n);  // what is masked is dx as it was rounded
  ops::operators<T>().dropout(workers, kDropout, stored.data(), masked.data(), n);
  EXPECT_EQ(part(got, n, n), masked.doubles()) << width;
  EXPECT_LT(error_of(part(got, 2 * n, width), dweight), kTolerance<float>) << width;
  EXPECT_LT(error_of(part(got, 2 * n + width, width), dbias), kTolerance<float>) << width;
}

TYPED_TEST(NormKernel, BackwardIsTheCpus) {
  for (const Kind kind : kKinds)
    for (const Rows& shape : kRows)
      for (const bool add : {false, true}) {
        // An RMS norm of one element is ±1 but for epsilon, so that all of dx cancels.
        if (kind == Kind::rms && shape.width == 1 && !add) continue;
        check_backward<TypeParam>(kind, shape, add, false, true);
      }
}

TYPED_TEST(NormKernel, WideRowsHaveAKernel) {
  for (const Kind kind : kKinds) {
    for (const Rows& shape : {Rows{2, 77}, Rows{3, 520}})
      check_backward<TypeParam>(kind, shape, true, true, true);
    check_backward<TypeParam>(kind, {2, kNarrowNorm + 8}, false, true, false);
  }
}

TYPED_TEST(NormKernel, PartsTakeSeveralRows) {
  for (const Kind kind : kKinds) {
    check_backward<TypeParam>(kind, {40, 8, 0, 7}, true, false, true);
    check_backward<TypeParam>(kind, {9, 1100, 0, 2}, false, false, true);
  }
}

/// Heads of keys in rows of q, k and v: what stands beside them stays.
TYPED_TEST(NormKernel, RowsMayBeHeadsOfARow) {
  using T = TypeParam;
  constexpr ops::HeadRows kHeads{7, 3, 2, 24};
  const int64_t first = kHeads.heads * kHeads.head_size, n = kHeads.rows * kHeads.stride();
  const int64_t rows = kHeads.rows * kHeads.key_value_heads, size = kHeads.head_size;
  const Doubles qkv = held<T>(random_values(n, 1)), weight = held<T>(random_values(2 * size, 2)),
                dy = held<T>(random_values(n, 3));
  Doubles y(qkv), d(dy), rstd(static_cast<size_t>(kHeads.rows * kHeads.normed_heads())),
      dweight(weight.size());
  Workers workers(1);
  const auto& op = ops::operators<double>();
  op.head_norm_forward(workers, kHeads, qkv.data(), weight.data(), y.data(), rstd.data(), kEpsilon);
  op.head_norm_backward(workers, kHeads, qkv.data(), weight.data(), rstd.data(), d.data(), dweight.data());
  const Doubles got = in_every_order([&](unsigned seed) {
    Elements<T> x(qkv), w(weight), to(Doubles(static_cast<size_t>(n), 7.0)), from(dy);
    Elements<float> deviations(rows), sums(size);
    NormForwardArguments<T> forward{x.data() + first, w.data() + size,   nullptr, to.data() + first,
                                    nullptr,          deviations.data(), rows,    size,
                                    kEpsilon};
    forward.places = {static_cast<unsigned>(kHeads.key_value_heads), kHeads.stride()};
    launch(std::string("loom_norm_forward_") + kKernelType<T>, forward, seed);
    NormBackwardArguments<T> back{x.data() + first,
                                  w.data() + size,
                                  nullptr,
                                  deviations.data(),
                                  from.data() + first,
                                  from.data() + first,
                                  nullptr,
                                  rows,
                                  size,
                                  false};
    back.places = forward.places;
    Elements<float> partial(back.parts() * size);
    back.partial = partial.data();
    launch(std::string("loom_norm_backward_") + kKernelType<T>, back, seed);
    launch("loom_fold", back.fold(sums.data(), nullptr), seed);
    return joined(to.doubles(), from.doubles(), sums.doubles());
  });
  for (int64_t i = 0; i < n; ++i) {
    const int64_t column = i % kHeads.stride();
    if (column >= first && column < first + kHeads.key_value_heads * size) continue;
    ASSERT_EQ(got[i], 7.0) << i;
    ASSERT_EQ(got[n + i], dy[i]) << i;
    y[i] = 7.0, d[i] = dy[i];
  }
  EXPECT_LT(error_of(part(got, 0, n), y), kTolerance<T>);
  EXPECT_LT(error_of(part(got, n, n), d), kTolerance<T>);
  EXPECT_LT(error_of(part(got, 2 * n, size), part(dweight, size, size)), kTolerance<float>);
}

TYPED_TEST(ColumnSumsKernel, AreTheSums) {
  using T = TypeParam;
  for (const auto [rows, width, shift, parts] : {Rows{1, 3}, {300, 24}, {21, 301}, {40, 264}, {9, 512, 1}}) {
    const bool add = rows > 30;
    const int64_t stride = rows == 21 ? width + 3 : rows == 40 ? width + 8 : width;
    const Doubles x = held<T>(random_values(rows * stride, 1)), before = held<float>(random_values(width, 2));
    Doubles wanted = add ? before : Doubles(before.size());
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t c = 0; c < width; ++c) wanted[c] += x[row * stride + c];
    const Doubles got = in_every_order([&](unsigned seed) {
      Elements<T> in(x, shift);
      Elements<float> sum(before);
      ColumnSumsArguments<T> a{in.data(), nullptr, rows, width, stride};
      Elements<float> partial(a.parts() * width);
      a.partial = partial.data();
      launch(std::string("loom_column_sums_") + kKernelType<T>, a, seed);
      launch("loom_fold", FoldArguments{partial.data(), sum.data(), nullptr, a.parts(), width, width, add},
             seed);
      return sum.doubles();
    });
    EXPECT_LT(error_of(got, wanted), kTolerance<float>) << rows << " of " << width;
  }
}

}  // namespace
}  // namespace loom::cuda
