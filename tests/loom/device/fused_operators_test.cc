// The GPU's fused operators on the fake driver, each beside the CPU's two, one after the other.
#include <dlfcn.h>

#include "loom/device/both_devices.h"

namespace loom::testing {
namespace {

using ops::Operators;

template <typename T>
class FusedGpuOperators : public TypedGpuOperators<T> {};
using FusedTypes = ::testing::Types<float, bf16, fp16>;
TYPED_TEST_SUITE(FusedGpuOperators, FusedTypes);

/// Widths are whole packs, and not; norms have mean and bias, or neither.
TYPED_TEST(FusedGpuOperators, OfNormsAreBothStepsOfTheCpus) {
  using T = TypeParam;
  const int64_t rows = 19;
  const ops::FusedOperators<T>& fused = cuda::fused_operators<T>();
  for (const int64_t width : {40, 37})
    for (const auto& [probability, has_mean] :
         {std::pair(0.0f, true), {0.3f, true}, {0.0f, false}, {0.3f, false}}) {
      const ops::Dropout dropout{.probability = probability, .key = {1, 2}, .first = 6};
      const int64_t n = rows * width;
      auto residual = this->template both<T>(random_values(n, 1)),
           x = this->template both<T>(random_values(n, 2)),
           added = this->template both<T>(random_values(width, 3)),
           weight = this->template both<T>(random_values(width, 4)),
           bias = this->template both<T>(random_values(width, 5)), sum = this->template both<T>(Doubles(n)),
           y = this->template both<T>(Doubles(n)), dy = this->template both<T>(random_values(n, 6)),
           dx = this->template both<T>(random_values(n, 7)), masked = this->template both<T>(Doubles(n));
      auto mean = this->template both<float>(Doubles(rows)), rstd = this->template both<float>(Doubles(rows)),
           dweight = this->template both<float>(Doubles(width)),
           dbias = this->template both<float>(Doubles(width));
      this->on_both([&](const Operators<T>& op, const device::Context& c, auto at) {
        const auto or_none = [&](auto& array) { return has_mean ? at(array) : nullptr; };
        if (c.compute != nullptr) {
          fused.residual_norm(c, dropout, at(residual), at(x), at(added), at(sum), at(weight), or_none(bias),
                              at(y), or_none(mean), at(rstd), rows, width, 1e-5f);
          fused.norm_gradient_dropout(c, dropout, at(sum), at(weight), or_none(mean), at(rstd), at(dy),
                                      at(dx), true, at(dweight), or_none(dbias), at(masked), rows, width);
        } else {
          op.add_dropout(c, dropout, at(residual), at(x), at(added), at(sum), rows, width);
          op.norm_forward(c, at(sum), at(weight), or_none(bias), at(y), or_none(mean), at(rstd), rows, width,
                          1e-5f);
          op.norm_backward(c, at(sum), at(weight), or_none(mean), at(rstd), at(dy), at(dx), true, at(dweight),
                           or_none(dbias), rows, width);
          op.dropout(c, dropout, at(dx), at(masked), n);
        }
      });
      for (auto* each : {&sum, &y, &dx, &masked}) EXPECT_LT(this->difference(*each), 2 * kTolerance<T>);
      for (auto* each : {&mean, &rstd, &dweight, &dbias})
        EXPECT_LT(this->difference(*each), 4 * kTolerance<T>);  // of sums that may differ in their last bit
    }
}

/// By epilogues where the library has them for these shapes, and by kernels elsewhere.
TYPED_TEST(FusedGpuOperators, OfGeluAreBothStepsOfTheCpus) {
  using T = TypeParam;
  const ops::FusedOperators<T>& fused = cuda::fused_operators<T>();
  using RefuseAux = void(int);
  void* const library = dlopen(std::getenv("LOOM_CUBLASLT_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
  auto* const refuse_aux =
      library == nullptr ? nullptr : reinterpret_cast<RefuseAux*>(dlsym(library, "fake_cublaslt_refuse_aux"));
  for (const int answer : {cuda::kLtSuccess, cuda::kLtNotSupported, cuda::kLtInvalidValue}) {
    if (answer != cuda::kLtSuccess && refuse_aux == nullptr) continue;
    if (refuse_aux != nullptr) refuse_aux(answer);
    for (const auto& [rows, in, out] : {std::array<int64_t, 3>{17, 16, 24}, {18, 8, 32}, {9, 7, 5}})
      for (const bool has_bias : {false, true}) {
        auto x = this->template both<T>(random_values(rows * in, 1)),
             w = this->template both<T>(random_values(in * out, 2)),
             bias = this->template both<T>(random_values(out, 3)),
             before = this->template both<T>(Doubles(rows * out, 9)),
             y = this->template both<T>(Doubles(rows * out, 9)),
             back = this->template both<T>(random_values(out * in, 4)),
             dy = this->template both<T>(random_values(rows * in, 5)),
             dx = this->template both<T>(Doubles(rows * out, 9));
        this->on_both([&](const Operators<T>& op, const device::Context& c, auto at) {
          T* const added = has_bias ? at(bias) : nullptr;
          if (c.compute != nullptr) {
            fused.linear_gelu(c, at(x), at(w), added, at(before), at(y), rows, in, out);
            fused.linear_input_gelu_gradient(c, at(dy), at(back), at(before), at(dx), rows, out, in);
          } else {
            op.linear_forward(c, at(x), at(w), added, at(before), rows, in, out);
            op.activation_forward(c, ops::Activation::gelu_tanh, at(before), at(y), rows * out);
            op.linear_backward_input(c, at(dy), at(back), at(dx), rows, out, in);
            op.activation_backward(c, ops::Activation::gelu_tanh, at(before), at(dx), at(dx), rows * out);
          }
        });
        for (auto* each : {&before, &y, &dx}) EXPECT_LT(this->difference(*each), 4 * kTolerance<T>);
      }
  }
  if (refuse_aux != nullptr) refuse_aux(cuda::kLtSuccess);
  EXPECT_TRUE(this->queue->status().ok()) << this->queue->status().message();
}

}  // namespace
}  // namespace loom::testing
