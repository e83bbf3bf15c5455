// What the device layer should compute, an element at a time, written from the definitions of the formats and
// operators: doubles, tables and searches instead of bit tricks. Elements are held as their bits in a
// uint64_t.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "device/reduce.h"

namespace weft::device::reference {

// ---- Formats

struct Format {
  int exponent_bits, mantissa_bits;
  bool ieee;  // the highest exponent is for infinity and NaN; otherwise only all ones is NaN
  int bits() const { return 1 + exponent_bits + mantissa_bits; }
  uint64_t sign() const { return uint64_t{1} << (bits() - 1); }
  uint64_t infinity() const { return ((uint64_t{1} << exponent_bits) - 1) << mantissa_bits; }
  uint64_t nan() const { return ieee ? infinity() | uint64_t{1} << (mantissa_bits - 1) : sign() - 1; }
  /// The largest finite value's bits.
  uint64_t largest() const { return ieee ? infinity() - 1 : nan() - 1; }
};

inline bool narrow(DataType type) { return type >= DataType::bfloat16 || type == DataType::float16; }

inline Format format_of(DataType type) {
  switch (type) {
    case DataType::float16: return {5, 10, true};
    case DataType::bfloat16: return {8, 7, true};
    case DataType::float8e4m3: return {4, 3, false};
    case DataType::float8e5m2: return {5, 2, true};
    case DataType::float32: return {8, 23, true};
    case DataType::float64: return {11, 52, true};
    default: return {};
  }
}

inline double decode(const Format& f, uint64_t bits) {
  const double sign = bits & f.sign() ? -1 : 1;
  const uint64_t magnitude = bits & (f.sign() - 1);
  if (magnitude > f.largest()) return f.ieee && magnitude == f.infinity() ? sign * INFINITY : NAN;
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(magnitude >> f.mantissa_bits);
  const double fraction =
      std::ldexp(static_cast<double>(magnitude & ((uint64_t{1} << f.mantissa_bits) - 1)), -f.mantissa_bits);
  return sign * (exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias));
}

/// The nearest value of the format; of two equally near ones that with an even last bit.
inline uint64_t encode(const Format& f, double value) {
  if (std::isnan(value)) return f.nan();
  const uint64_t sign = std::signbit(value) ? f.sign() : 0;
  const double magnitude = std::fabs(value);
  uint64_t below = 0, above = f.largest() + 1;  // above: as if the format went on
  while (above - below > 1) {
    const uint64_t middle = (below + above) / 2;
    (decode(f, middle) <= magnitude ? below : above) = middle;
  }
  const double low = decode(f, below);
  const double high = below == f.largest() ? 2 * low - decode(f, below - 1) : decode(f, above);
  const bool up =
      magnitude - low > high - magnitude || (magnitude - low == high - magnitude && below % 2 == 1);
  const uint64_t nearest = up || std::isinf(magnitude) ? above : below;
  return sign | (nearest > f.largest() && !f.ieee ? f.largest() : nearest);
}

// ---- Reductions

template <typename T, typename Op>
T fold(std::span<const T> values, Order order, Op op) {
  if (values.size() == 1) return values[0];
  size_t lower = values.size() - 1;
  if (order == Order::tree) {
    lower = 1;
    while (lower * 2 < values.size()) lower *= 2;
  }
  return op(fold(values.first(lower), order, op), fold(values.subspan(lower), order, op));
}

/// The larger, or the smaller: a NaN of any kind loses to a number, and -0 is below +0.
template <typename T>
T float_extreme(bool larger, T a, T b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) ? b : a;
  const bool a_below = a < b || (a == b && std::signbit(a));
  return a_below == larger ? b : a;
}

template <typename T>
T float_op(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::prod: return a * b;
    case ReduceOp::max: return float_extreme(true, a, b);
    case ReduceOp::min: return float_extreme(false, a, b);
    default: return a + b;
  }
}

/// The weighted sum, with operands scaled down where it overflows, divided by all weights, and brought
/// between the least and the greatest operand.
template <typename T>
T mean(const Reduction& r, std::span<const T> values) {
  T total = 0;
  for (size_t s = 0; s < values.size(); ++s) total += r.weights ? static_cast<T>(r.weights[s]) : 1;
  const auto sum = [&](T scale) {
    std::vector<T> weighted;
    for (size_t s = 0; s < values.size(); ++s)
      weighted.push_back(values[s] * ((r.weights ? static_cast<T>(r.weights[s]) : 1) * scale));
    return fold(std::span<const T>(weighted), r.order, [](T a, T b) { return a + b; });
  };
  const T scale = std::ldexp(T{1}, -33), whole = sum(1);
  const T result = std::isfinite(whole) ? whole / total : sum(scale) / total / scale;
  if (std::isnan(result)) return result;
  return std::clamp(result, *std::min_element(values.begin(), values.end()),
                    *std::max_element(values.begin(), values.end()));
}

/// The result in the accumulator's type, not rounded.
template <typename T>
T reduce_floats(const Reduction& r, std::span<const T> values) {
  if (r.op == ReduceOp::avg) return mean(r, values);
  return fold(values, r.order, [&](T a, T b) { return float_op(r.op, a, b); });
}

template <typename T>
uint64_t reduce_integers(const Reduction& r, std::span<const uint64_t> elements) {
  T result = static_cast<T>(elements[0]);
  for (const uint64_t bits : elements.subspan(1)) {
    const T value = static_cast<T>(bits);
    switch (r.op) {
      case ReduceOp::prod: result = static_cast<T>(static_cast<uint64_t>(result) * bits); break;
      case ReduceOp::max: result = std::max(result, value); break;
      case ReduceOp::min: result = std::min(result, value); break;
      case ReduceOp::band: result = static_cast<T>(static_cast<uint64_t>(result) & bits); break;
      case ReduceOp::bor: result = static_cast<T>(static_cast<uint64_t>(result) | bits); break;
      case ReduceOp::bxor: result = static_cast<T>(static_cast<uint64_t>(result) ^ bits); break;
      default: result = static_cast<T>(static_cast<uint64_t>(result) + bits);
    }
  }
  const uint32_t divisor = r.op == ReduceOp::avg ? r.divisor : 1;
  if constexpr (std::is_signed_v<T>) {
    result = static_cast<T>(static_cast<int64_t>(result) / static_cast<int64_t>(divisor));
  } else {
    result = static_cast<T>(uint64_t{result} / divisor);
  }
  return static_cast<uint64_t>(result);
}

template <typename T, typename Bits>
uint64_t float_bits(T value) {
  return std::isnan(value) ? (sizeof(T) == 4 ? 0x7fc00000u : uint64_t{0xfff} << 51)
                           : std::bit_cast<Bits>(value);
}

/// op over the elements, in the low bits.
inline uint64_t reduce(const Reduction& r, std::span<const uint64_t> elements) {
  std::vector<float> floats;
  switch (r.type) {
    case DataType::int8: return reduce_integers<int8_t>(r, elements);
    case DataType::uint8: return reduce_integers<uint8_t>(r, elements);
    case DataType::int32: return reduce_integers<int32_t>(r, elements);
    case DataType::uint32: return reduce_integers<uint32_t>(r, elements);
    case DataType::int64: return reduce_integers<int64_t>(r, elements);
    case DataType::uint64: return reduce_integers<uint64_t>(r, elements);
    case DataType::float32:
      for (const uint64_t bits : elements)
        floats.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
      return float_bits<float, uint32_t>(reduce_floats<float>(r, floats));
    case DataType::float64: {
      std::vector<double> doubles;
      for (const uint64_t bits : elements) doubles.push_back(std::bit_cast<double>(bits));
      return float_bits<double, uint64_t>(reduce_floats<double>(r, doubles));
    }
    default:
      for (const uint64_t bits : elements)
        floats.push_back(static_cast<float>(decode(format_of(r.type), bits)));
      return encode(format_of(r.type), reduce_floats<float>(r, floats));
  }
}

// ---- Arrays of elements

inline uint64_t get(DataType type, const void* array, size_t i) {
  uint64_t bits = 0;
  std::memcpy(&bits, static_cast<const char*>(array) + i * size_of(type), size_of(type));
  return bits;
}
inline void set(DataType type, void* array, size_t i, uint64_t bits) {
  std::memcpy(static_cast<char*>(array) + i * size_of(type), &bits, size_of(type));
}

/// Elements that are hard in different ways: any bits at all, values of similar size (whose sums round), and
/// the special ones.
inline std::vector<char> hard_elements(DataType type, size_t count, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> similar(-4, 4);
  const bool is_float = type >= DataType::float16;
  const Format f = format_of(type);
  const uint64_t specials[] = {
      0, f.sign(), f.infinity(), f.infinity() | f.sign(), f.nan(), f.nan() | f.sign(), 1, f.largest()};
  std::vector<char> array(count * size_of(type));
  for (size_t i = 0; i < count; ++i) {
    uint64_t bits = random();
    if (is_float && bits % 16 == 0) bits = specials[random() % 8];
    else if (is_float && bits % 2 == 0) {
      const double value = similar(random);
      bits = type == DataType::float64   ? std::bit_cast<uint64_t>(value)
             : type == DataType::float32 ? std::bit_cast<uint32_t>(static_cast<float>(value))
                                         : encode(f, value);
    }
    set(type, array.data(), i, bits);
  }
  return array;
}

/// The ends of a float type's range, least and greatest, normal and not, and values between; no NaN and no
/// infinity.
inline std::vector<uint64_t> finite_floats(DataType type) {
  const Format f = format_of(type);
  const uint64_t least_normal = uint64_t{1} << f.mantissa_bits;
  const uint64_t one = ((uint64_t{1} << (f.exponent_bits - 1)) - 1) << f.mantissa_bits;
  std::vector<uint64_t> values;
  for (const uint64_t magnitude : {f.largest(), f.largest() - 1, f.largest() / 2, one, one + 1, least_normal,
                                   least_normal - 1, uint64_t{3}, uint64_t{2}, uint64_t{1}, uint64_t{0}}) {
    values.push_back(magnitude);
    values.push_back(magnitude | f.sign());
  }
  return values;
}

/// A float that is no NaN, as an integer that is ordered as floats are: both zeros are 0.
inline int64_t order_of(DataType type, uint64_t bits) {
  const uint64_t sign = format_of(type).sign();
  return bits & sign ? -static_cast<int64_t>(bits ^ sign) : static_cast<int64_t>(bits);
}

}  // namespace weft::device::reference
