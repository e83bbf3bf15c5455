// What the files of operators share. Each of them is compiled once for each instruction set, in namespace
// LOOM_ISA, and adds its functions to that instruction set's table. They include nothing whose inline
// functions other files might share: the linker keeps one copy of those, perhaps one that this CPU cannot
// run.
#pragma once

#include <cstdint>

#include "base/fp16.h"
#include "base/round.h"
#include "base/workers.h"
#include "ops/operators.h"

#ifndef LOOM_ISA
#error "compiled once for each instruction set, with LOOM_ISA naming it"
#endif

/// Instantiates an operator's `void add_x(Operators<T>&)`.
#ifdef LOOM_ISA_BASELINE
#define LOOM_FOR_EVERY_TYPE(function)        \
  template void function(Operators<float>&); \
  template void function(Operators<bf16>&);  \
  template void function(Operators<fp16>&);  \
  template void function(Operators<double>&);
#elif defined(LOOM_ISA_AVX512_BF16)
#define LOOM_FOR_EVERY_TYPE(function) template void function(Operators<bf16>&);
#elif defined(LOOM_ISA_AMX)
#define LOOM_FOR_EVERY_TYPE(function)       \
  template void function(Operators<bf16>&); \
  template void function(Operators<fp16>&);
#else
#define LOOM_FOR_EVERY_TYPE(function)        \
  template void function(Operators<float>&); \
  template void function(Operators<bf16>&);  \
  template void function(Operators<fp16>&);
#endif

namespace loom::ops::LOOM_ISA {

/// Elementwise work is shared out in pieces of so many elements: small enough to balance, large enough to be
/// worth a hand-over between threads.
constexpr int64_t kPiece = 16384;

inline int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t max_of(int64_t a, int64_t b) { return a > b ? a : b; }

/// body(begin, end, worker) over [0, n) in pieces of `piece`.
template <typename F>
inline void for_ranges(Workers& workers, int64_t n, int64_t piece, F&& body) {
  for_parts(workers, ceil_div(n, piece),
            [&](int64_t part, int worker) { body(part * piece, min_of(n, (part + 1) * piece), worker); });
}

/// Rows to a piece, so that it has about kPiece elements.
inline int64_t rows_per_piece(int64_t width) { return kPiece / width > 0 ? kPiece / width : 1; }

}  // namespace loom::ops::LOOM_ISA
