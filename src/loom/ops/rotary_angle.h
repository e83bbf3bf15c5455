// By how much a rotary embedding turns a pair. The CPU's operator and the GPU's kernel share it.
//
// Included only by files that are compiled once for each instruction set, hence the namespace of its own.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/on_device.h"

namespace loom::ops::LOOM_ISA {

/// Of pair `pair` of a head's first `dims` elements, at a position.
LOOM_ON_DEVICE inline double rotary_angle(float base, int64_t position, int64_t pair, int64_t dims) {
  const double exponent = -2.0 * static_cast<double>(pair) / static_cast<double>(dims);
  return static_cast<double>(position) * std::pow(static_cast<double>(base), exponent);
}

}  // namespace loom::ops::LOOM_ISA
