// Conversions between fp32 and the two 16-bit formats, and of tensors of any float type to fp32. Files are
// converted when they are read and written, so these favour being plain; training has kernels of its own.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "format/dtype.h"

namespace loom::format {

/// bfloat16: the upper half of an fp32. Rounds to nearest, ties to even; a NaN stays a (quiet) NaN.
uint16_t bf16_from_f32(float value);
float f32_from_bf16(uint16_t bits);
/// IEEE 754 binary16. Rounds to nearest, ties to even; too large becomes infinity; subnormals are kept.
uint16_t f16_from_f32(float value);
float f32_from_f16(uint16_t bits);

/// Elements of type f16, bf16, f32 or f64, at any alignment, as fp32. `bytes` must hold exactly into.size()
/// elements. Errors: unsupported (another type), invalid_argument (another length).
Status to_f32(DType dtype, std::span<const std::byte> bytes, std::span<float> into);
/// The inverse: rounds to nearest, ties to even.
Status from_f32(DType dtype, std::span<const float> values, std::span<std::byte> into);

}  // namespace loom::format
