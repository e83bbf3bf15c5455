// AdamW of one element: moments with bias correction, weight decay apart from the gradient. The CPU's
// operator and the GPU's kernel are made of it.
//
// Included only by files that are compiled once for each instruction set, hence the namespace of its own.
#pragma once

#include <cmath>

#include "base/on_device.h"
#include "ops/operators.h"

namespace loom::ops::LOOM_ISA {

/// What a step's settings come to, the same for all elements.
template <typename A>
struct AdamWUpdate {
  A rate, second_scale, decay, beta1, beta2, epsilon, scale;

  explicit AdamWUpdate(const AdamW& settings)
      : decay(A(1) - A(settings.learning_rate) * A(settings.weight_decay)),
        beta1(settings.beta1),
        beta2(settings.beta2),
        epsilon(settings.epsilon),
        scale(settings.gradient_scale) {
    const double step = static_cast<double>(settings.step);
    rate = A(settings.learning_rate / (1.0 - std::pow(static_cast<double>(settings.beta1), step)));
    second_scale = A(1.0 / std::sqrt(1.0 - std::pow(static_cast<double>(settings.beta2), step)));
  }

  LOOM_ON_DEVICE void apply(A gradient, A& master, A& first, A& second) const {
    const A g = gradient * scale;
    first = beta1 * first + (A(1) - beta1) * g;
    second = beta2 * second + (A(1) - beta2) * g * g;
    master = master * decay - rate * first / (std::sqrt(second) * second_scale + epsilon);
  }
};

}  // namespace loom::ops::LOOM_ISA
