// Tensors of any float type, as they are in files, to fp32 and back.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "format/dtype.h"

namespace loom::format {

/// Elements of type f16, bf16, f32 or f64, at any alignment, as fp32. `bytes` must hold exactly into.size()
/// elements. Errors: unsupported (another type), invalid_argument (another length).
Status to_f32(DType dtype, std::span<const std::byte> bytes, std::span<float> into);
/// The inverse: rounds to nearest, ties to even; what is too large becomes infinity.
Status from_f32(DType dtype, std::span<const float> values, std::span<std::byte> into);

}  // namespace loom::format
