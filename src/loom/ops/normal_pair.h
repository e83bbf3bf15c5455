// Two normally distributed numbers from two random words (Box and Muller, "A Note on the Generation of Random
// Normal Deviates", 1958): the words are a point of the unit square, which becomes two independent numbers.
// Compiled without fused multiplications, it gives the same bits on every CPU and GPU.
//
// Included only by files that are compiled once for each instruction set, hence the namespace of its own.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/on_device.h"
#include "ops/philox.h"

namespace loom::ops::LOOM_ISA {

/// ln x of a normal, positive x: Cephes' logf.
LOOM_ON_DEVICE inline float log_of(float x) {
  constexpr int32_t kRootOfHalf = 0x3f3504f3;
  const int32_t bits = std::bit_cast<int32_t>(x);
  const int32_t exponent = (bits - kRootOfHalf) >> 23;  // x = 2^exponent · (1 + r), 1 + r in [√½, √2)
  const float r = std::bit_cast<float>(bits - exponent * (1 << 23)) - 1.0f;
  float p = 7.0376836292e-2f;
  p = p * r - 1.1514610310e-1f;
  p = p * r + 1.1676998740e-1f;
  p = p * r - 1.2420140846e-1f;
  p = p * r + 1.4249322787e-1f;
  p = p * r - 1.6668057665e-1f;
  p = p * r + 2.0000714765e-1f;
  p = p * r - 2.4999993993e-1f;
  p = p * r + 3.3333331174e-1f;
  const float squared = r * r, e = static_cast<float>(exponent);
  const float low = p * r * squared - 2.12194440e-4f * e - 0.5f * squared;
  return r + low + 0.693359375f * e;  // ln 2 in two parts, the first exact in few bits
}

struct Point {
  float cosine, sine;
};

/// Of the angle 2π · turn, turn in (0, 1): Cephes' polynomials for an eighth of a turn to either side.
LOOM_ON_DEVICE inline Point on_circle(float turn) {
  const int32_t quarter = static_cast<int32_t>(4.0f * turn + 0.5f);
  const float angle = (4.0f * turn - static_cast<float>(quarter)) * 1.57079633f, squared = angle * angle;
  float s = -1.9515295891e-4f;
  s = s * squared + 8.3321608736e-3f;
  s = s * squared - 1.6666654611e-1f;
  s = s * squared * angle + angle;
  float c = 2.443315711809948e-5f;
  c = c * squared - 1.388731625493765e-3f;
  c = c * squared + 4.166664568298827e-2f;
  c = c * squared * squared - 0.5f * squared + 1.0f;
  const bool sideways = (quarter & 1) != 0;
  const float x = sideways ? s : c, y = sideways ? c : s;
  return {((quarter + 1) & 2) != 0 ? -x : x, (quarter & 2) != 0 ? -y : y};
}

/// Two numbers from two words, as floats with that deviation.
LOOM_ON_DEVICE inline Point normal_pair(uint32_t of_radius, uint32_t of_turn, float deviation) {
  const float radius = deviation * std::sqrt(-2.0f * log_of(uniform(of_radius)));
  const Point point = on_circle(uniform(of_turn));
  return {radius * point.cosine, radius * point.sine};
}

}  // namespace loom::ops::LOOM_ISA
