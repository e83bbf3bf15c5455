// The kernels of averages of floats: weighted means that lie between the least and the greatest of their
// operands. Included by kernel_loops.h, like which it is compiled once for each instruction set.
//
// A mean is the weighted sum, in fp32 for narrow floats, divided by all weights. Rounding may have carried
// the quotient beyond its operands, so it is then brought between the least and the greatest of them. A sum
// of fp32, fp64 or bfloat16 may overflow where the mean does not. Such elements are computed again with
// operands scaled down. The others keep the sum's full precision, subnormals included.
#pragma once

#include "device/kernel_vec.h"
#include "device/kernels.h"

namespace weft::device {
namespace {

/// No sum of 2^32 operands overflows that are scaled by this.
constexpr double kScaledDown = 1.0 / (uint64_t{1} << 33);

/// Type is Plain<float>, Plain<double> or a narrow format.
template <typename Type>
struct MeanOf {
  using Storage = typename Type::Storage;
  static constexpr bool kNarrow = sizeof(Storage) < sizeof(float);
  using A = std::conditional_t<kNarrow, float, Storage>;  // sums
  using Bits = typename FloatBits<A>::Int;

  /// Sums of float16 and of the 8-bit floats fit fp32.
  static constexpr bool overflows() {
    if constexpr (kNarrow) return Type::kBias == 127;
    else return true;
  }

  /// Partial results of `groups` vectors side by side.
  template <size_t lanes, size_t groups>
  struct Partial {
    Vec<A, lanes> sum[groups], least[groups], most[groups];
  };

  template <size_t lanes>
  WEFT_ALWAYS_INLINE static Vec<A, lanes> load_values(const Storage* from) {
    if constexpr (kNarrow) return decode<Type, lanes>(load<lanes>(from));
    else return load<lanes>(from);
  }

  template <size_t lanes, size_t groups>
  WEFT_ALWAYS_INLINE static Partial<lanes, groups> source(const Operands& from, uint32_t s, size_t at,
                                                          A scale) {
    const auto* values = static_cast<const Storage*>(from.sources[s]) + at;
    const A weight = (from.weights ? static_cast<A>(from.weights[s]) : A{1}) * scale;
    Partial<lanes, groups> p;
    for (size_t g = 0; g < groups; ++g) {
      p.least[g] = p.most[g] = load_values<lanes>(values + g * lanes);
      p.sum[g] = p.least[g] * weight;
    }
    return p;
  }

  template <size_t lanes, size_t groups>
  WEFT_ALWAYS_INLINE static void add(Partial<lanes, groups>& p, const Partial<lanes, groups>& q) {
    for (size_t g = 0; g < groups; ++g) {
      p.sum[g] = p.sum[g] + q.sum[g];
      p.least[g] = q.least[g] < p.least[g] ? q.least[g] : p.least[g];
      p.most[g] = q.most[g] > p.most[g] ? q.most[g] : p.most[g];
    }
  }

  /// The lower half of the tree is the largest power of two below the number of sources. Partial results are
  /// merged as a binary counter carries, and at the end from the youngest to the oldest.
  template <size_t lanes, size_t groups>
  [[gnu::noinline]] static void by_tree(const Operands& from, size_t at, A scale,
                                        Partial<lanes, groups>& result) {
    Partial<lanes, groups> partial[32];
    int depth = 0;
    for (uint32_t s = 0; s < from.count; ++s) {
      partial[depth++] = source<lanes, groups>(from, s, at, scale);
      for (uint32_t carry = s; carry & 1; carry >>= 1, --depth) add(partial[depth - 2], partial[depth - 1]);
    }
    for (; depth > 1; --depth) add(partial[depth - 2], partial[depth - 1]);
    result = partial[0];
  }

  template <size_t lanes, size_t groups>
  WEFT_ALWAYS_INLINE static Partial<lanes, groups> collect(const Operands& from, size_t at, A scale) {
    Partial<lanes, groups> p;
    if (from.order == Order::tree) {
      by_tree(from, at, scale, p);
      return p;
    }
    p = source<lanes, groups>(from, 0, at, scale);
    for (uint32_t s = 1; s < from.count; ++s) add(p, source<lanes, groups>(from, s, at, scale));
    return p;
  }

  /// Division by a power of two is multiplication by its inverse, to the bit, and several times as fast.
  template <size_t lanes>
  WEFT_ALWAYS_INLINE static Vec<A, lanes> quotient(const Operands& from, Vec<A, lanes> sum) {
    const A divisor = static_cast<A>(from.total);
    return (from.total & (from.total - 1)) == 0 ? sum * (1 / divisor) : sum / divisor;
  }

  template <size_t lanes>
  WEFT_ALWAYS_INLINE static Vec<Bits, lanes> without_sign(Vec<A, lanes> values) {
    return bits_as<Vec<Bits, lanes>>(values) & static_cast<Bits>(~(Bits{1} << (8 * sizeof(Bits) - 1)));
  }

  /// Whether no element is infinite or NaN.
  template <size_t lanes, size_t groups>
  WEFT_ALWAYS_INLINE static bool all_finite(const Vec<A, lanes> (&values)[groups]) {
    auto beyond = without_sign<lanes>(values[0]) >= FloatBits<A>::kInfinity;
    for (size_t g = 1; g < groups; ++g)
      beyond = beyond | (without_sign<lanes>(values[g]) >= FloatBits<A>::kInfinity);
    if constexpr (lanes == 1) {
      return !beyond;
    } else {
      const auto words = bits_as<Vec<uint64_t, sizeof beyond / 8>>(beyond);
      if constexpr (sizeof beyond == 8) {
        return words == 0;
      } else {
        uint64_t any = 0;
        for (size_t w = 0; w < sizeof beyond / 8; ++w) any |= words[w];
        return any == 0;
      }
    }
  }

  /// The quotients of sums that overflow, or have an operand that is infinite or NaN.
  template <size_t lanes, size_t groups>
  [[gnu::noinline]] static void again(const Operands& from, size_t at, const Vec<A, lanes> (&sum)[groups],
                                      Vec<A, lanes> (&quotients)[groups]) {
    const Partial<lanes, groups> p = collect<lanes, groups>(from, at, static_cast<A>(kScaledDown));
    for (size_t g = 0; g < groups; ++g) {
      const auto value = quotient<lanes>(from, p.sum[g]) * static_cast<A>(1 / kScaledDown);
      quotients[g] = without_sign<lanes>(sum[g]) >= FloatBits<A>::kInfinity ? value : quotients[g];
    }
  }

  template <size_t lanes, size_t groups>
  struct Results {
    Vec<Storage, lanes> of[groups];
  };

  template <size_t lanes, size_t groups>
  WEFT_ALWAYS_INLINE static Results<lanes, groups> mean(const Operands& from, size_t at) {
    const Partial<lanes, groups> p = collect<lanes, groups>(from, at, A{1});
    Vec<A, lanes> value[groups];
    for (size_t g = 0; g < groups; ++g) value[g] = quotient<lanes>(from, p.sum[g]);
    if constexpr (overflows())
      if (!all_finite<lanes, groups>(p.sum)) [[unlikely]]
        again<lanes, groups>(from, at, p.sum, value);
    Results<lanes, groups> results;
    for (size_t g = 0; g < groups; ++g) {  // a NaN stays: no comparison is true of it
      value[g] = value[g] < p.least[g] ? p.least[g] : value[g];
      value[g] = value[g] > p.most[g] ? p.most[g] : value[g];
      if constexpr (kNarrow) results.of[g] = encode<Type, lanes>(value[g]);
      else results.of[g] = canonical<A, lanes>(value[g]);
    }
    return results;
  }

  /// count < 2 × lanes, but not 0: as run_few in kernel_loops.h.
  template <size_t lanes>
  WEFT_ALWAYS_INLINE static void run_few(const Operands& from, size_t first, size_t count, Storage* out) {
    if (lanes == 1 || count >= lanes) {
      const size_t last = count - lanes;
      const auto at_first = mean<lanes, 1>(from, first), at_last = mean<lanes, 1>(from, first + last);
      store(out, at_first.of[0]);
      store(out + last, at_last.of[0]);
    } else if constexpr (lanes > 1) {
      run_few<lanes / 2>(from, first, count, out);
    }
  }

  static void run(const Operands& from, size_t first, size_t count, void* to) {
    constexpr size_t lanes = kVectorBytes / sizeof(A), groups = 4;
    auto* const out = static_cast<Storage*>(to);
    if (count < 2 * lanes) return run_few<lanes>(from, first, count, out);
    // The last step overlaps the one before it; it is computed first, since `out` may be a source.
    const auto at_last = mean<lanes, 1>(from, first + count - lanes);
    size_t i = 0;
    for (; i + groups * lanes <= count; i += groups * lanes) {
      const auto results = mean<lanes, groups>(from, first + i);
      for (size_t g = 0; g < groups; ++g) store(out + i + g * lanes, results.of[g]);
    }
    for (; i + lanes <= count; i += lanes) store(out + i, mean<lanes, 1>(from, first + i).of[0]);
    store(out + (count - lanes), at_last.of[0]);
  }
};

}  // namespace
}  // namespace weft::device
