// By how much a rotary embedding turns a pair. The CPU's operator and the GPU's kernel share it.
//
// Included only by files that are compiled once for each instruction set, hence the namespace of its own.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/on_device.h"
#include "ops/operators.h"

namespace loom::ops::LOOM_ISA {

/// By how much pair `pair` of a head's first `dims` elements turns from a token to the next.
LOOM_ON_DEVICE inline double rotary_frequency(float base, const RotaryScaling& scaling, int64_t pair,
                                              int64_t dims) {
  const double exponent = -2.0 * static_cast<double>(pair) / static_cast<double>(dims);
  const double usual = std::pow(static_cast<double>(base), exponent);
  const double slow = usual / static_cast<double>(scaling.factor);
  if (scaling.context == 0) return slow;
  constexpr double kTurn = 6.283185307179586;
  const double turns = static_cast<double>(scaling.context) * usual / kTurn;
  const double low = static_cast<double>(scaling.low), high = static_cast<double>(scaling.high);
  if (turns < low) return slow;
  if (turns > high) return usual;
  const double part = (turns - low) / (high - low);
  return (1 - part) * slow + part * usual;
}

/// … and at a position.
LOOM_ON_DEVICE inline double rotary_angle(float base, const RotaryScaling& scaling, int64_t position,
                                          int64_t pair, int64_t dims) {
  return static_cast<double>(position) * rotary_frequency(base, scaling, pair, dims);
}

}  // namespace loom::ops::LOOM_ISA
