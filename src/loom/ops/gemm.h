// Matrix products of one thread: C = A·B + beta·C, row-major. The library is oneDNN, which chooses its
// kernels by the CPU's features. (OpenBLAS 0.3.21 goes by the CPU's model number, and falls back to SSE3 on
// models that it does not know.) fp64, which only tests use, has plain loops of its own.
//
// Thread safety: pure functions of their arguments; may run on many threads at once.
#pragma once

#include <cstdint>

#include "ops/instruction_set.h"

namespace loom::ops {

/// A is [m, k] ([k, m] if `a_transposed`) with rows of `lda` elements, B [k, n] ([n, k]), C [m, n].
/// C is not read when beta is 0.
void gemm(bool a_transposed, bool b_transposed, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda,
          const float* b, int64_t ldb, float beta, float* c, int64_t ldc);
void gemm(bool a_transposed, bool b_transposed, int64_t m, int64_t n, int64_t k, const double* a, int64_t lda,
          const double* b, int64_t ldb, double beta, double* c, int64_t ldc);

/// What the library keeps for each thread it gets at the thread's first product: with this, before the first
/// that counts.
void prepare_thread();

/// From now on the library uses nothing beyond `set`. To be called before the process's first product, or it
/// has no effect.
void limit_products(InstructionSet set);
/// What it uses.
InstructionSet instruction_set_of_products();

}  // namespace loom::ops
