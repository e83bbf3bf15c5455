// The GPU's table of operators: the CPU's (ops/operators.h) by kernels and by cuBLASLt, on arrays in the
// device's memory. Each is called with a Compute, and queued.
//
// Some entries are empty:
//   attention_step                          it generates text, on CPUs
//   embedding_forward, embedding_backward   they do not say how long their table is; the split ones do
//   head and loss of bf16 and fp16          their logits are fp32; cuBLASLt does not mix fp32 and 16 bits
//
// Nothing here has run on a GPU so far.
//
// Thread safety: constant.
#pragma once

#include "ops/operators.h"

namespace loom::cuda {

/// For T = float, bf16 and fp16.
template <typename T>
const ops::Operators<T>& operators();

}  // namespace loom::cuda
