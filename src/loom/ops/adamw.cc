// AdamW: moments with bias correction, weight decay apart from the gradient.
#include <cmath>

#include "ops/cpu.h"

namespace loom::ops::LOOM_ISA {
namespace {

template <typename T>
void adamw(Workers& workers, const AdamW& settings, const acc_t<T>* gradient, acc_t<T>* master,
           acc_t<T>* first, acc_t<T>* second, T* parameter, int64_t n) {
  using A = acc_t<T>;
  const double step = static_cast<double>(settings.step);
  const A rate = A(settings.learning_rate / (1.0 - std::pow(static_cast<double>(settings.beta1), step)));
  const A second_scale = A(1.0 / std::sqrt(1.0 - std::pow(static_cast<double>(settings.beta2), step)));
  const A decay = A(1) - A(settings.learning_rate) * A(settings.weight_decay);
  const A beta1 = A(settings.beta1), beta2 = A(settings.beta2), epsilon = A(settings.epsilon);
  const A scale = A(settings.gradient_scale);
  for_ranges(workers, n, kPiece, [&](int64_t begin, int64_t end, int) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      const A g = gradient[i] * scale;
      first[i] = beta1 * first[i] + (A(1) - beta1) * g;
      second[i] = beta2 * second[i] + (A(1) - beta2) * g * g;
      master[i] = master[i] * decay - rate * first[i] / (std::sqrt(second[i]) * second_scale + epsilon);
    }
    if (parameter == nullptr || static_cast<const void*>(parameter) == static_cast<const void*>(master))
      return;
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) store(parameter[i], master[i]);
  });
}

}  // namespace

template <typename T>
void add_adamw(Operators<T>& table) {
  table.adamw = adamw<T>;
}
LOOM_FOR_EVERY_TYPE(add_adamw)

}  // namespace loom::ops::LOOM_ISA
