// The GPU's table of operators: the CPU's (ops/operators.h) by kernels and by cuBLASLt, on arrays in the
// device's memory. Each is called with a Compute, and queued.
//
// attention_step is empty: texts are continued on CPUs. Logits are of T.
//
// Nothing here has run on a GPU so far.
//
// Thread safety: constant.
#pragma once

#include "base/status.h"
#include "ops/fused.h"

namespace loom::cuda {

/// Whether the kernels take a model of these sizes. Errors: unsupported, which names the limit.
Status check_sizes(int64_t width, int64_t head_size);

/// For T = float, bf16 and fp16.
template <typename T>
const ops::Operators<T>& operators();
template <typename T>
const ops::FusedOperators<T>& fused_operators();

}  // namespace loom::cuda
