// The loops over elements that reduce.cc puts together, as one table for each instruction set:
// kernels_baseline.cc, kernels_avx2.cc and kernels_avx512.cc compile kernel_loops.h with different flags, and
// every table gives the same bits. Private to this layer and its tests.
//
// Conventions: `count` ≥ 1 elements; pointers are aligned to the element; `out` may be any of the inputs of
// the same element size, but may not otherwise overlap one. A NaN result is the type's positive quiet NaN.
// Thread safety: constant data and pure functions.
#pragma once

#include "device/reduce.h"

namespace weft::device {

/// ReduceOp without avg: of integers it adds, of floats it is a mean.
enum class Combiner : uint8_t { sum, prod, max, min, band, bor, bxor };
inline constexpr int kCombiners = 7;

constexpr Combiner combiner_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::prod: return Combiner::prod;
    case ReduceOp::max: return Combiner::max;
    case ReduceOp::min: return Combiner::min;
    case ReduceOp::band: return Combiner::band;
    case ReduceOp::bor: return Combiner::bor;
    case ReduceOp::bxor: return Combiner::bxor;
    default: return Combiner::sum;
  }
}

/// The 16- and 8-bit floats: their sums and products pass through fp32.
constexpr bool is_narrow_float(DataType type) {
  return type == DataType::float16 || type == DataType::bfloat16 || type == DataType::float8e4m3 ||
         type == DataType::float8e5m2;
}
constexpr bool is_float(DataType type) {
  return is_narrow_float(type) || type == DataType::float32 || type == DataType::float64;
}

/// The sources of an average of floats, and how much each of them counts.
struct Operands {
  const void* const* sources;
  const uint32_t* weights;  // null: all the same
  uint32_t count;           // of sources
  uint32_t total;           // of all weights
  Order order;
};

/// Blocks of accumulators have a multiple of this many elements.
inline constexpr size_t kAccumulatorLanes = 8;

struct Kernels {
  using Combine = void (*)(void* out, const void* a, const void* b, size_t count);
  using Convert = void (*)(void* out, const void* in, size_t count);
  using Divide = void (*)(void* out, const void* in, size_t count, uint32_t divisor);
  using Mean = void (*)(const Operands& operands, size_t first, size_t count, void* out);

  const char* name;

  Combine combine[kDataTypes][kCombiners];  // out = a op b; null for bitwise operators of floats
  Combine scale[kDataTypes];                // out = a × *b
  Divide divide[kDataTypes];                // out = in / divisor; of integers only
  Mean
      mean[kDataTypes];  // out = the weighted means of the operands' elements from `first` on; of floats only

  // Of narrow floats only (null elsewhere), by way of fp32 accumulators; sum and prod. Accumulators are read
  // and written up to the next multiple of kAccumulatorLanes.
  Combine open[kDataTypes][2];  // float out = a op b
  Combine add[kDataTypes][2];   // float out = float a op b
  Convert widen[kDataTypes];    // float out = in
  Convert round[kDataTypes];    // out = float in

  /// memcpy around the cache, null where there is no such thing. The caller orders what follows with
  /// stream_fence().
  void (*stream)(void* out, const void* in, size_t bytes);
  void (*stream_fence)();
};

/// All weights of an average's n sources.
inline uint32_t total_of(const uint32_t* weights, int n) {
  uint32_t total = weights ? 0 : static_cast<uint32_t>(n);
  for (int i = 0; weights && i < n; ++i) total += weights[i];
  return total;
}

enum class Isa : uint8_t { baseline, avx2, avx512 };
/// Null where this CPU, or this build, does not have it.
const Kernels* kernels_for(Isa isa);
/// The best that the CPU has.
const Kernels& kernels();

/// reduce() and scale() with given kernels.
void reduce_with(const Kernels& kernels, const Reduction& reduction, void* dst, const void* const* sources,
                 int n, size_t count);
void scale_with(const Kernels& kernels, DataType type, void* dst, const void* src, size_t count,
                const void* scalar);

}  // namespace weft::device
