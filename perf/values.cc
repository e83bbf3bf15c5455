#include "values.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace weft::perf {
namespace {

struct Format {
  size_t bytes;
  bool floating;
  bool is_signed;
  int exponent_bits, mantissa_bits;  // of floating types
};

Format format_of(weftDataType_t type) {
  switch (type) {
    case weftInt8: return {1, false, true, 0, 0};
    case weftUint8: return {1, false, false, 0, 0};
    case weftInt32: return {4, false, true, 0, 0};
    case weftUint32: return {4, false, false, 0, 0};
    case weftInt64: return {8, false, true, 0, 0};
    case weftUint64: return {8, false, false, 0, 0};
    case weftFloat16: return {2, true, true, 5, 10};
    case weftFloat32: return {4, true, true, 8, 23};
    case weftFloat64: return {8, true, true, 11, 52};
    case weftBfloat16: return {2, true, true, 8, 7};
    case weftFloat8e4m3: return {1, true, true, 4, 3};
    case weftFloat8e5m2: return {1, true, true, 5, 2};
    default: std::abort();  // the options know no other
  }
}

/// The bits of a floating type for a finite value within its range, rounded to nearest even.
uint64_t encode(double value, const Format& format) {
  const int bits = 1 + format.exponent_bits + format.mantissa_bits;
  const uint64_t sign = uint64_t{std::signbit(value)} << (bits - 1);
  if (value == 0) return sign;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const int exponent = std::max(std::ilogb(value), 1 - bias);  // below that, numbers are subnormal
  const double units = std::nearbyint(std::ldexp(std::fabs(value), format.mantissa_bits - exponent));
  // A normal number's leading one is in `units` and adds one to the exponent's field.
  return sign | (static_cast<uint64_t>(units) +
                 (static_cast<uint64_t>(exponent + bias - 1) << format.mantissa_bits));
}

/// Up to which all integers are exact; no more than the sum of an average of integers may reach.
int64_t exact_integers(const Format& format) {
  const int bits =
      format.floating ? format.mantissa_bits + 1 : static_cast<int>(8 * format.bytes) - format.is_signed;
  return (int64_t{1} << std::min(bits, 24)) - (format.floating ? 0 : 1);
}

uint64_t mix(uint64_t x) {  // the finalizer of splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t random_bits(uint64_t seed, uint64_t rank, uint64_t index) {
  return mix(mix(seed * 0x9e3779b97f4a7c15u + rank + 1) + index);
}

/// Which contribution to which element, of which reduction.
struct Position {
  uint64_t seed;
  int rank, ranks;
  uint64_t index;
  uint64_t bits() const { return random_bits(seed, static_cast<uint64_t>(rank), index); }
  /// The rank's place in an order of ranks that is another one for each element.
  uint64_t turn() const {
    return (static_cast<uint64_t>(rank) + index + seed) % static_cast<uint64_t>(ranks);
  }
};

int factor_of(int rank) { return 1 + rank % 2; }

/// A summand such that no partial sum exceeds `limit`: a share of it, or 0 or 1 where there are more ranks
/// than that.
int64_t summand(const Position& at, int64_t limit, bool is_signed) {
  const int64_t share = limit / at.ranks;
  int64_t value = share > 0 ? static_cast<int64_t>(at.bits() % static_cast<uint64_t>(share + 1))
                            : static_cast<int64_t>(at.turn()) < limit && at.bits() % 2 == 0;
  const bool negative =
      is_signed && random_bits(at.seed, ~uint64_t{0}, at.index) % 2 == 0;  // the same on all ranks
  return negative ? -value : value;
}

double float_contribution(const Format& format, Operator op, const Position& at) {
  const int64_t limit = exact_integers(format);
  switch (op) {
    case Operator::sum: return static_cast<double>(summand(at, limit, true));
    // From one half of the limit to the limit, where all numbers are as far apart: so is every partial mean.
    case Operator::avg: {
      const auto half = static_cast<uint64_t>(limit / 2);
      return static_cast<double>(half + at.bits() % (half + 1));
    }
    case Operator::mulsum: return static_cast<double>(summand(at, limit / 2, true));
    case Operator::prod: {
      const double magnitude = at.turn() < 2 ? 2 : at.turn() == 2 ? 0.5 : 1;
      return at.bits() % 2 == 0 ? magnitude : -magnitude;
    }
    default:
      return static_cast<double>(static_cast<int64_t>(at.bits() % static_cast<uint64_t>(2 * limit + 1)) -
                                 limit);
  }
}

/// As 64 bits, of which the element has the lowest.
uint64_t integer_contribution(const Format& format, Operator op, const Position& at) {
  switch (op) {
    case Operator::avg: return static_cast<uint64_t>(summand(at, exact_integers(format), format.is_signed));
    case Operator::prod:
      return at.bits() | 1;  // odd, or products would soon be 0
    // Few zeros, or few ones, lest nothing is left of them.
    case Operator::band:
      return at.bits() | random_bits(at.seed + 1, static_cast<uint64_t>(at.rank), at.index);
    case Operator::bor: return at.bits() & random_bits(at.seed + 1, static_cast<uint64_t>(at.rank), at.index);
    default: return at.bits();
  }
}

/// The element's bits, extended to 64 by the sign or by zeros.
uint64_t extend(const Format& format, uint64_t value) {
  const int unused = static_cast<int>(64 - 8 * format.bytes);
  return format.is_signed ? static_cast<uint64_t>(static_cast<int64_t>(value << unused) >> unused)
                          : (value << unused) >> unused;
}

double reduce_floats(const Format& format, Operator op, uint64_t seed, int ranks, uint64_t index) {
  double result = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const double value = float_contribution(format, op, {seed, rank, ranks, index});
    if (op == Operator::mulsum) {
      result += factor_of(rank) * value;
    } else if (rank == 0) {
      result = value;
    } else {
      result = op == Operator::prod  ? result * value
               : op == Operator::max ? std::max(result, value)
               : op == Operator::min ? std::min(result, value)
                                     : result + value;
    }
  }
  result = op == Operator::avg ? result / ranks : result;
  return result == 0 ? 0 : result;  // no sum of zeros is negative
}

uint64_t reduce_integers(const Format& format, Operator op, uint64_t seed, int ranks, uint64_t index) {
  const auto less = [&](uint64_t a, uint64_t b) {
    return format.is_signed ? static_cast<int64_t>(a) < static_cast<int64_t>(b) : a < b;
  };
  uint64_t result = op == Operator::prod ? 1 : op == Operator::band ? ~uint64_t{0} : 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const uint64_t value = extend(format, integer_contribution(format, op, {seed, rank, ranks, index}));
    switch (op) {
      case Operator::prod: result *= value; break;
      case Operator::max: result = rank == 0 ? value : std::max(result, value, less); break;
      case Operator::min: result = rank == 0 ? value : std::min(result, value, less); break;
      case Operator::band: result &= value; break;
      case Operator::bor: result |= value; break;
      case Operator::bxor: result ^= value; break;
      case Operator::mulsum: result += static_cast<uint64_t>(factor_of(rank)) * value; break;
      default: result += value;
    }
  }
  if (op != Operator::avg) return result;
  const int64_t sum = static_cast<int64_t>(result);  // small, so the sign is right for unsigned types too
  return static_cast<uint64_t>(sum / ranks);
}

/// The distance of two numbers in units in the last place: floats of one sign are ordered as their bits are.
int64_t ulps_between(const Format& format, uint64_t a, uint64_t b) {
  const uint64_t sign = uint64_t{1} << (8 * format.bytes - 1);
  const auto order = [sign](uint64_t x) {
    return x & sign ? -static_cast<int64_t>(x & ~sign) : static_cast<int64_t>(x);
  };
  return std::llabs(order(a) - order(b));
}

/// Units in the last place by which an average of floats may be off. A partial mean of k of n ranks is
/// rounded by half a unit, of which k/n is left in the end. The most are n - 1 such means, of 2, 3, … n
/// ranks; with the half unit of the expected value that is less than (n + 3) / 4. Sums of wide floats are
/// rounded besides, by as much again and more.
int most_of_rounding(const Format& format, int ranks) {
  if (ranks <= 2) return 0;
  return format.bytes < 4 ? (ranks + 3) / 4 : ranks;
}

}  // namespace

bool applies(Operator op, weftDataType_t type) {
  const bool bitwise = op == Operator::band || op == Operator::bor || op == Operator::bxor;
  return !bitwise || !format_of(type).floating;
}

size_t size_of(weftDataType_t type) { return format_of(type).bytes; }

uint64_t premul_scalar(weftDataType_t type, int rank) {
  const Format format = format_of(type);
  return format.floating ? encode(factor_of(rank), format) : static_cast<uint64_t>(factor_of(rank));
}

Pattern Pattern::contribution(weftDataType_t type, Operator op, uint64_t seed, int rank, int ranks) {
  const Format format = format_of(type);
  Pattern pattern(type, 0);
  pattern.period_.resize(kPeriod * format.bytes);
  for (uint64_t i = 0; i < kPeriod; ++i) {
    const Position at{seed, rank, ranks, i};
    const uint64_t bits = op == Operator::none ? at.bits()
                          : format.floating    ? encode(float_contribution(format, op, at), format)
                                               : integer_contribution(format, op, at);
    std::memcpy(&pattern.period_[i * format.bytes], &bits, format.bytes);
  }
  return pattern;
}

Pattern Pattern::reduced(weftDataType_t type, Operator op, uint64_t seed, int ranks) {
  const Format format = format_of(type);
  const bool mean = op == Operator::avg && format.floating;
  Pattern pattern(type, mean ? most_of_rounding(format, ranks) : 0);
  pattern.period_.resize(kPeriod * format.bytes);
  for (uint64_t i = 0; i < kPeriod; ++i) {
    const uint64_t bits = format.floating ? encode(reduce_floats(format, op, seed, ranks, i), format)
                                          : reduce_integers(format, op, seed, ranks, i);
    std::memcpy(&pattern.period_[i * format.bytes], &bits, format.bytes);
  }
  return pattern;
}

void Pattern::fill(void* dst, size_t first, size_t count) const {
  const size_t bytes = size_of(type_);
  auto* out = static_cast<std::byte*>(dst);
  for (size_t done = 0; done < count;) {
    const size_t begin = (first + done) % kPeriod;
    const size_t n = std::min(kPeriod - begin, count - done);
    std::memcpy(out + done * bytes, &period_[begin * bytes], n * bytes);
    done += n;
  }
}

size_t Pattern::mismatches(const void* data, size_t first, size_t count) const {
  const size_t bytes = size_of(type_);
  const auto* in = static_cast<const std::byte*>(data);
  size_t wrong = 0;
  for (size_t done = 0; done < count;) {
    const size_t begin = (first + done) % kPeriod;
    const size_t n = std::min(kPeriod - begin, count - done);
    if (std::memcmp(in + done * bytes, &period_[begin * bytes], n * bytes) != 0) {
      for (size_t i = 0; i < n; ++i)
        wrong += !matches(in + (done + i) * bytes, &period_[(begin + i) * bytes]);
    }
    done += n;
  }
  return wrong;
}

bool Pattern::matches(const std::byte* got, const std::byte* want) const {
  const Format format = format_of(type_);
  uint64_t a = 0, b = 0;
  std::memcpy(&a, got, format.bytes);
  std::memcpy(&b, want, format.bytes);
  return a == b || (tolerance_ > 0 && ulps_between(format, a, b) <= tolerance_);
}

}  // namespace weft::perf
