// Arithmetic on host memory: every type and operator, but for bitwise operators of floats
// (device::applies()). CUDA's half lives in a file of its own.
//
// 8- and 16-bit floats are accumulated in fp32 and rounded once, to nearest even, per call. Integers wrap. An
// average of floats lies between the least and the greatest operand: it is NaN or infinite only if an operand
// is. max and min are NCCL's: a NaN loses to any number, and -0 is below +0. A NaN that is computed is the
// type's positive quiet NaN; a single source is copied as it is. The bits of a result depend on the sources'
// values alone: not on alignment, on how a range is cut into calls, on the CPU's instruction set, or on the
// calling thread's floating-point mode. Thread safety: pure functions.
#pragma once

#include "device/types.h"

namespace weft::device {

/// How the sources of one call are combined.
enum class Order : uint8_t {
  sequential,  // ((s0 + s1) + s2) + …
  tree,        // balanced binary tree over source numbers: the lower half is the largest power of two below n
};

struct Reduction {
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  Order order = Order::sequential;
  uint32_t divisor = 1;  // avg of integers: their sum is divided by this, towards zero (its last step)
  const uint32_t* weights = nullptr;  // avg of floats: each source's weight in the mean; null: all the same
  uint64_t message_bytes = 0;  // of one source, where this call is a slice of something longer; tells only
                               // whether to write around the cache
};

/// dst[i] = op(sources[0][i], …, sources[n-1][i]) for i < count. n ≥ 1. dst may be one of the sources, but
/// may not otherwise overlap one. Pointers are aligned to the element, no more.
void reduce(const Reduction& reduction, void* dst, const void* const* sources, int n, size_t count);

/// dst[i] = src[i] × *scalar, for a pre-multiplied sum. `scalar` points to one element of `type`. dst may be
/// src.
void scale(DataType type, void* dst, const void* src, size_t count, const void* scalar);

/// memcpy. Where the message, of which this call may be a slice, does not fit the second-level cache with its
/// copy, it writes around the cache, which saves reading the destination first. Not for what a peer reads at
/// once.
void copy(void* dst, const void* src, size_t bytes, size_t message_bytes = 0);

}  // namespace weft::device
