// Kernels that take each element for itself: activations, dropout, sums, conversions, AdamW, normal numbers.
#include "device/cuda/kernels/elementwise.h"

#include "base/workers.h"
#include "cuda_kernels/launch.h"
#include "device/cuda/kernels/activation.h"
#include "device/cuda/kernels/adamw.h"
#include "device/cuda/kernels/dropout.h"
#include "device/cuda/kernels/normal.h"

namespace loom::cuda {
namespace {

using namespace loom::testing;

LOOM_TYPED_KERNEL_SUITE(ActivationKernel);
LOOM_TYPED_KERNEL_SUITE(DropoutKernel);
LOOM_TYPED_KERNEL_SUITE(ConvertKernel);
LOOM_TYPED_KERNEL_SUITE(AdamWKernel);

/// Lengths with whole packs, parts of packs and several blocks, and addresses that are aligned and not.
struct Extent {
  int64_t count;
  int shift;
};
constexpr Extent kExtents[] = {{1, 0}, {7, 0}, {64, 0}, {2053, 0}, {2056, 0}, {301, 1}, {2048, 1}};

constexpr std::pair<const char*, ops::Activation> kActivations[] = {{"gelu_tanh", ops::Activation::gelu_tanh},
                                                                    {"gelu_erf", ops::Activation::gelu_erf},
                                                                    {"relu", ops::Activation::relu},
                                                                    {"silu", ops::Activation::silu},
                                                                    {"tanh", ops::Activation::tanh}};

TYPED_TEST(ActivationKernel, IsTheCpus) {
  using T = TypeParam;
  const auto& op = ops::operators<double>();
  Workers workers(1);
  for (const auto& [name, activation] : kActivations)
    for (const auto [count, shift] : kExtents) {
      const Doubles x = held<T>(random_values(count, 1, 3)), dy = held<T>(random_values(count, 2));
      Doubles y(x.size()), dx(x.size());
      op.activation_forward(workers, activation, x.data(), y.data(), count);
      op.activation_backward(workers, activation, x.data(), dy.data(), dx.data(), count);
      const std::string forward = std::string("loom_") + name + "_forward_" + kKernelType<T>;
      const std::string backward = std::string("loom_") + name + "_backward_" + kKernelType<T>;
      const Doubles got = in_every_order([&](unsigned seed) {
        Elements<T> in(x, shift), out(count, shift), d(dy, shift), into(count, shift);
        launch(forward, ActivationForwardArguments<T>{in.data(), out.data(), count}, seed);
        launch(backward, ActivationBackwardArguments<T>{in.data(), d.data(), into.data(), count}, seed);
        launch(backward, ActivationBackwardArguments<T>{in.data(), d.data(), d.data(), count},
               seed);  // in place
        EXPECT_EQ(into.doubles(), d.doubles());
        return joined(out.doubles(), d.doubles());
      });
      EXPECT_LT(error_of(part(got, 0, count), y), kTolerance<T>) << name << " of " << count;
      EXPECT_LT(error_of(part(got, count, count), dx), kTolerance<T>) << name << " of " << count;
    }
}

/// Widths of one element, of whole packs, of none and of several for a thread.
TYPED_TEST(ActivationKernel, MayGate) {
  using T = TypeParam;
  const auto& op = ops::operators<double>();
  Workers workers(1);
  constexpr int64_t kRows = 3;
  for (const auto& [name, activation] : kActivations)
    for (const auto [width, shift] : {Extent{1, 0}, {24, 0}, {77, 0}, {64, 1}, {2304, 0}}) {
      if (width > 100 && activation != ops::Activation::silu) continue;
      const int64_t n = kRows * width;
      const Doubles x = held<T>(random_values(2 * n, 1, 3)), dy = held<T>(random_values(n, 2));
      Doubles y(dy.size()), dx(x.size());
      op.gated_forward(workers, activation, x.data(), y.data(), kRows, width);
      op.gated_backward(workers, activation, x.data(), dy.data(), dx.data(), kRows, width);
      const auto kernel = [kernel_name = std::string("loom_gated_") + name](const char* pass) {
        return kernel_name + pass + kKernelType<T>;
      };
      const Doubles got = in_every_order([&](unsigned seed) {
        Elements<T> in(x, shift), out(n, shift), d(dy, shift), into(2 * n, shift);
        launch(kernel("_forward_"), GatedForwardArguments<T>{in.data(), out.data(), kRows, width}, seed);
        launch(kernel("_backward_"),
               GatedBackwardArguments<T>{in.data(), d.data(), into.data(), kRows, width}, seed);
        return joined(out.doubles(), into.doubles());
      });
      EXPECT_LT(error_of(part(got, 0, n), y), kTolerance<T>) << name << " of " << width;
      EXPECT_LT(error_of(part(got, n, 2 * n), dx), kTolerance<T>) << name << " of " << width;
    }
}

ops::Dropout dropout_of(float p, uint64_t first) { return {p, {7, 1, 2}, first}; }

TYPED_TEST(DropoutKernel, HasTheCpusBits) {
  using T = TypeParam;
  const auto& op = ops::operators<T>();
  Workers workers(1);
  for (const auto [count, shift] : kExtents)
    for (const uint64_t first : {0ull, 1ull, 2ull, 3ull, (5ull << 40) + 6}) {
      Elements<T> x(random_values(count, 1)), wanted(count);
      op.dropout(workers, dropout_of(0.3f, first), x.data(), wanted.data(), count);
      const Doubles got = in_every_order([&](unsigned seed) {
        Elements<T> in(x.doubles(), shift), apart(count);
        DropoutArguments<T> a{in.data(), apart.data(), count, DropoutMask(dropout_of(0.3f, first))};
        launch(std::string("loom_dropout_") + kKernelType<T>, a, seed);
        a.y = in.data();  // in place
        launch(std::string("loom_dropout_") + kKernelType<T>, a, seed);
        EXPECT_EQ(in.doubles(), apart.doubles());
        return in.doubles();
      });
      EXPECT_EQ(got, wanted.doubles()) << count << " from " << first;
    }
}

TYPED_TEST(DropoutKernel, AddsToTheResidual) {
  using T = TypeParam;
  Workers workers(1);
  for (const int64_t width : {1, 24, 77, 2304})
    for (const float p : {0.0f, 0.4f})
      for (const bool has_bias : {false, true}) {
        constexpr int64_t kRows = 3;
        const Doubles residual = held<T>(random_values(kRows * width, 1));
        const Doubles x = held<T>(random_values(kRows * width, 2)), bias = held<T>(random_values(width, 3));
        Doubles y(residual.size());
        ops::operators<double>().add_dropout(workers, dropout_of(p, 5), residual.data(), x.data(),
                                             has_bias ? bias.data() : nullptr, y.data(), kRows, width);
        const Doubles got = in_every_order([&](unsigned seed) {
          Elements<T> to(residual), in(x), with(bias), apart(kRows * width);
          AddDropoutArguments<T> a{to.data(), in.data(), has_bias ? with.data() : nullptr, apart.data(),
                                   kRows,     width,     DropoutMask(dropout_of(p, 5))};
          launch(std::string("loom_add_dropout_") + kKernelType<T>, a, seed);
          a.y = to.data();  // in place
          launch(std::string("loom_add_dropout_") + kKernelType<T>, a, seed);
          EXPECT_EQ(to.doubles(), apart.doubles());
          return to.doubles();
        });
        EXPECT_LT(error_of(got, y), kTolerance<T>) << width;
      }
}

TEST(AddKernel, IsTheSum) {
  for (const auto [count, shift] : kExtents) {
    const Doubles a = held<float>(random_values(count, 1)), b = held<float>(random_values(count, 2));
    Doubles wanted(a);
    for (size_t i = 0; i < a.size(); ++i) wanted[i] += b[i];
    const Doubles got = in_every_order([&](unsigned seed) {
      Elements<float> x(a, shift), y(b), apart(count);
      launch("loom_add", AddArguments{x.data(), y.data(), apart.data(), count}, seed);
      launch("loom_add", AddArguments{x.data(), y.data(), x.data(), count}, seed);  // in place
      EXPECT_EQ(x.doubles(), apart.doubles());
      return x.doubles();
    });
    EXPECT_EQ(got, held<float>(wanted));
  }
}

TYPED_TEST(ConvertKernel, ScalesRoundsAndFindsOverflows) {
  using T = TypeParam;
  const std::string name = std::string("loom_convert_") + kKernelType<T>;
  for (const auto [count, shift] : kExtents) {
    const Doubles from = held<float>(random_values(count, 1));
    Doubles wanted(from);
    for (double& each : wanted) each *= 8;
    const Doubles got = in_every_order([&](unsigned seed) {
      Elements<float> x(from);
      Elements<T> y(count, shift);
      int32_t overflow = 0;
      launch(name, ConvertArguments<T>{x.data(), y.data(), count, 8, &overflow}, seed);
      EXPECT_EQ(overflow, 0);
      return y.doubles();
    });
    EXPECT_EQ(got, held<T>(wanted));
    for (const int64_t at : {count - 1, count / 2, int64_t{0}})
      for (const double bad : Doubles{INFINITY, -INFINITY, NAN, 3e38}) {  // 3e38 · 8 overflows in every type
        Elements<float> x(from);
        x[at] = static_cast<float>(bad);
        Elements<T> y(count, shift);
        int32_t overflow = 0;
        launch(name, ConvertArguments<T>{x.data(), y.data(), count, 8, nullptr}, 1);
        launch(name, ConvertArguments<T>{x.data(), y.data(), count, 8, &overflow}, 1);
        EXPECT_EQ(overflow, 1) << bad << " at " << at;
      }
  }
}

TEST(ConvertKernel, FindsWhatOnlyFp16CannotHold) {
  Elements<float> x(Doubles{1, 65519, 65520});
  Elements<fp16> y(3);
  int32_t overflow = 0;
  launch("loom_convert_fp16", ConvertArguments<fp16>{x.data(), y.data(), 2, 1, &overflow}, 0);
  EXPECT_EQ(overflow, 0);
  launch("loom_convert_fp16", ConvertArguments<fp16>{x.data(), y.data(), 3, 1, &overflow}, 0);
  EXPECT_EQ(overflow, 1);
}

TYPED_TEST(ConvertKernel, WidensToFloats) {
  using T = TypeParam;
  for (const auto [count, shift] : kExtents) {
    const Doubles from = held<T>(random_values(count, 1));
    const Doubles got = in_every_order([&](unsigned seed) {
      Elements<T> x(from, shift);
      Elements<float> y(count);
      launch(std::string("loom_widen_") + kKernelType<T>, WidenArguments<T>{x.data(), y.data(), count}, seed);
      return y.doubles();
    });
    EXPECT_EQ(got, from);
  }
}

TEST(SumOfSquaresKernel, HasTheCpusBits) {
  Workers workers(1);
  for (const auto& [count, size] :
       {std::pair<int64_t, int64_t>{1, 1024}, {100, 32}, {9000, 1024}, {8192, 1024}, {333, 50}}) {
    const auto x = as<float>(random_values(count, 3));
    const int64_t chunks = ceil_div(count, size);
    Doubles wanted(static_cast<size_t>(chunks));
    ops::operators<float>().sum_of_squares(workers, x.data(), count, size, wanted.data());
    const Doubles got = in_every_order([&](unsigned seed) {
      Elements<float> in(doubles(x));
      Elements<double> chunk(chunks);
      launch("loom_sum_of_squares", SumOfSquaresArguments{in.data(), chunk.data(), count, size}, seed);
      return chunk.doubles();
    });
    EXPECT_EQ(got, wanted) << count;
  }
}

TEST(SumKernel, IsTheCpus) {
  Workers workers(1);
  for (const int64_t count : {1, 31, 1024, 2500}) {
    const Doubles x = random_values(count, 4);
    Doubles wanted(1);
    ops::operators<float>().sum(workers, x.data(), wanted.data(), count);
    const Doubles got = in_every_order([&](unsigned seed) {
      Elements<double> in(x), sum(1);
      launch("loom_sum", SumArguments{in.data(), sum.data(), count}, seed);
      return sum.doubles();
    });
    EXPECT_EQ(got, wanted) << count;
  }
}

TYPED_TEST(AdamWKernel, IsTheCpus) {
  using T = TypeParam;
  const ops::AdamW settings{1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.5f, 3};
  Workers workers(1);
  for (const auto [count, shift] : kExtents) {
    const Doubles gradient = held<float>(random_values(count, 1));
    Doubles master = held<float>(random_values(count, 2)), first = held<float>(random_values(count, 3, 0.1));
    Doubles second(first);
    for (double& each : second) each = held<float>({each * each})[0];
    const Doubles master_before = master, first_before = first, second_before = second;
    ops::operators<double>().update(workers, settings, gradient.data(), master.data(),
                                    {first.data(), second.data()}, nullptr, count);
    const Doubles got = in_every_order([&](unsigned seed) {
      Elements<float> g(gradient), m(master_before), one(first_before, shift), two(second_before);
      Elements<T> parameter(count, shift);
      const AdamWArguments<T> arguments{g.data(),
                                        m.data(),
                                        one.data(),
                                        two.data(),
                                        parameter.data(),
                                        count,
                                        formulas::AdamWUpdate<float>(settings)};
      launch(std::string("loom_adamw_") + kKernelType<T>, arguments, seed);
      EXPECT_EQ(parameter.doubles(), held<T>(m.doubles()));
      return joined(m.doubles(), one.doubles(), two.doubles());
    });
    EXPECT_LT(error_of(part(got, 0, count), master), kTolerance<float>);
    EXPECT_LT(error_of(part(got, count, count), first), kTolerance<float>);
    EXPECT_LT(error_of(part(got, 2 * count, count), second), kTolerance<float>);
  }
}

TYPED_TEST(AdamWKernel, LeavesParametersOutThatAreNone) {
  using T = TypeParam;
  Elements<float> g(Doubles{1, 2}), m(Doubles{1, 1}), first(Doubles{0, 0}), second(Doubles{0, 0});
  launch(std::string("loom_adamw_") + kKernelType<T>,
         AdamWArguments<T>{g.data(), m.data(), first.data(), second.data(), nullptr, 2,
                           formulas::AdamWUpdate<float>(ops::AdamW{0.5f})},
         0);
  EXPECT_NEAR(m[0], 0.5, 1e-6);
  EXPECT_NEAR(m[1], 0.5, 1e-6);
}

TEST(NormalKernel, HasTheCpusBits) {
  Workers workers(1);
  for (const int64_t count : {1, 2, 5, 1023, 1500})
    for (const uint64_t first : {0ull, 1ull, 2ull, 3ull, (1ull << 40) + 7}) {
      std::vector<float> wanted(static_cast<size_t>(count));
      ops::operators<float>().normal(workers, {11, 3, 4}, first, 0.02f, wanted.data(), count);
      const Doubles got = in_every_order([&](unsigned seed) {
        Elements<float> y(count);
        launch("loom_normal", NormalArguments{y.data(), count, {11, 3, 4}, first, 0.02f}, seed);
        return y.doubles();
      });
      EXPECT_EQ(got, doubles(wanted)) << count << " from " << first;
    }
}

}  // namespace
}  // namespace loom::cuda
