// Values: the data that the perf tools send, and what must come out. A pattern is a sequence of elements that
// any rank can compute by itself, for itself or for another rank; so results are checked against arithmetic
// of our own, without a second way of communicating.
//
// Reductions get values whose every partial result, in whatever order and grouping, is exact in the element
// type: sums of few small integers, products of few powers of two. Integers, whose arithmetic wraps, get all
// their bits. Only averages of floats need rounding, once for each partial mean. Collectives that only move
// data get arbitrary bytes, NaNs included.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/weft.h"

namespace weft::perf {

size_t size_of(weftDataType_t type);

/// What is reduced: one of the library's operators, or the pre-multiplied sum, whose handle is made on the
/// spot.
enum class Operator { sum, prod, max, min, avg, band, bor, bxor, mulsum, none };
/// Whether the operator has a meaning for the type: bitwise ones are for integers.
bool applies(Operator op, weftDataType_t type);

/// The factor of the pre-multiplied sum on a rank, as one element of `type` in the first bytes of the result.
uint64_t premul_scalar(weftDataType_t type, int rank);

/// An endless sequence of elements with a period that is prime, so that data which arrives at a wrong place
/// shows.
class Pattern {
 public:
  static constexpr size_t kPeriod = 8191;

  /// What rank `rank` of `ranks` contributes. `seed` makes different data.
  static Pattern contribution(weftDataType_t type, Operator op, uint64_t seed, int rank, int ranks);
  /// What the contributions of all ranks reduce to.
  static Pattern reduced(weftDataType_t type, Operator op, uint64_t seed, int ranks);

  /// dst[i] = element first + i, i < count.
  void fill(void* dst, size_t first, size_t count) const;
  /// How many of data[i] differ from element first + i, i < count: in any bit, or by more units in the last
  /// place than the rounding of an average may cost.
  size_t mismatches(const void* data, size_t first, size_t count) const;

 private:
  Pattern(weftDataType_t type, int tolerance) : type_(type), tolerance_(tolerance) {}
  bool matches(const std::byte* got, const std::byte* want) const;

  weftDataType_t type_;
  int tolerance_;  // units in the last place
  std::vector<std::byte> period_;
};

}  // namespace weft::perf
