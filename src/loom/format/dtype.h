// The element types of safetensors, by the names they have in its header.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace loom::format {

enum class DType : uint8_t {
  boolean,
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  u64,
  i64,
  f8_e4m3,
  f8_e5m2,
  f8_e8m0,
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  f4,
  f6_e2m3,
  f6_e3m2,
  f16,
  bf16,
  f32,
  f64,
  c64,  // two f32
};

/// "F32", "BF16" ….
std::string_view dtype_name(DType dtype);
std::optional<DType> dtype_named(std::string_view name);
/// Bits of one element; f4 and f6 have fewer than 8, and several share a byte.
unsigned dtype_bits(DType dtype);
/// Bytes of so many elements, or nothing when that overflows or is no whole number of bytes.
std::optional<uint64_t> dtype_bytes(DType dtype, uint64_t elements);

}  // namespace loom::format
