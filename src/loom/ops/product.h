// Matrix products shared out among workers, as the instruction set has them: by the CPU's instructions for
// bfloat16 where they are (packed_product.h), else by the library's product of panels (panel_product.h).
//
// Included only by files that are compiled once for each instruction set.
#pragma once

#include "ops/cpu.h"

namespace loom::ops::LOOM_ISA {

/// op(A)·op(B): A is [m, k] or, transposed, [k, m], and so on; dense but for the leading dimensions.
struct ProductShape {
  bool a_transposed, b_transposed;
  int64_t m, n, k;
  int64_t lda, ldb, ldc;
};

}  // namespace loom::ops::LOOM_ISA

#if defined(LOOM_ISA_AMX) || defined(LOOM_ISA_AVX512_BF16)
#include "ops/packed_product.h"
#else
#include "ops/panel_product.h"
#endif
