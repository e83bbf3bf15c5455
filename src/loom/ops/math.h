// Exponentials and what is made of them, written so that compilers vectorize loops of them: no branches, no
// calls, no errno. fp32: exp within 2 ulp, the normal distribution within 2e-7. fp64 uses the C library.
//
// Included only by files that are compiled once for each instruction set, hence the namespace of its own.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/on_device.h"

namespace loom::ops::LOOM_ISA {

/// e^x for -87 ≤ x ≤ 88. NaN gives NaN: its bits make no exponent, so they are added without a sign.
LOOM_ON_DEVICE inline float exp_within(float x) {
  const float shifted = x * 1.44269504f + 12582912.0f;  // 1.5 · 2²³: the sum has the integer in its low bits
  const float n = shifted - 12582912.0f;
  float r = x - n * 0.693359375f;  // ln 2 in two parts, the first exact in few bits
  r = r - n * -2.12194440e-4f;
  // Minimax polynomial of (e^r - 1 - r) / r² on |r| ≤ ln(2)/2, from Cephes' expf.
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float y = p * (r * r) + r + 1.0f;
  const uint32_t exponent = std::bit_cast<uint32_t>(shifted) << 23;
  return y * std::bit_cast<float>(exponent + (127u << 23));
}

/// e^x; from e^-87 down it stays at 1.6e-38 instead of 0. NaN gives NaN.
LOOM_ON_DEVICE inline float exp_of(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  return exp_within(x);
}
LOOM_ON_DEVICE inline double exp_of(double x) { return std::exp(x); }

/// If an exponential is a factor of something, x is limited to ±60, and e^-60 = 8.8e-27 stands for 0. For
/// such a limit compilers compute both results for every element, and choose at the end. With e^-88 these
/// would be subnormal numbers, which cost more than a hundred cycles each.
LOOM_ON_DEVICE inline float limited(float x) {
  x = x < -60.0f ? -60.0f : x;
  return x > 60.0f ? 60.0f : x;
}

LOOM_ON_DEVICE inline float sigmoid_of(float x) { return 1.0f / (1.0f + exp_within(limited(-x))); }
LOOM_ON_DEVICE inline double sigmoid_of(double x) { return 1.0 / (1.0 + exp_of(-x)); }

/// The normal distribution's cumulative function Φ(x). fp32: Abramowitz and Stegun, 7.1.26.
LOOM_ON_DEVICE inline float normal_cdf(float x) {
  const float z = std::fabs(x) * 0.70710678f;
  const float t = 1.0f / (1.0f + 0.3275911f * z);
  float p = 1.061405429f;
  p = p * t - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - 0.284496736f;
  p = p * t + 0.254829592f;
  const float tail = 0.5f * p * t * exp_within(limited(-z * z));
  return x < 0 ? tail : 1.0f - tail;
}
LOOM_ON_DEVICE inline double normal_cdf(double x) { return 0.5 * std::erfc(-x * 0.70710678118654752440); }

}  // namespace loom::ops::LOOM_ISA
