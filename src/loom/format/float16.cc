#include "format/float16.h"

#include <bit>
#include <cstring>

namespace loom::format {
namespace {

constexpr uint32_t kInfinity = 0x7f800000;

/// Elements of `Stored` at any alignment, one by one.
template <typename Stored, typename Convert>
void load(std::span<const std::byte> bytes, std::span<float> into, Convert convert) {
  for (size_t i = 0; i < into.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    into[i] = convert(stored);
  }
}

template <typename Stored, typename Convert>
void store(std::span<const float> values, std::span<std::byte> into, Convert convert) {
  for (size_t i = 0; i < values.size(); ++i) {
    const Stored stored = convert(values[i]);
    std::memcpy(into.data() + i * sizeof(Stored), &stored, sizeof(Stored));
  }
}

Status check_length(DType dtype, size_t bytes, size_t elements) {
  if (dtype_bytes(dtype, elements) == bytes) return {};
  return fail(Code::invalid_argument, "{} bytes, must be {} for {} elements of {}", bytes,
              dtype_bytes(dtype, elements).value_or(0), elements, dtype_name(dtype));
}

Status no_float(DType dtype) {
  return fail(Code::unsupported, "elements are {}, must be F16, BF16, F32 or F64", dtype_name(dtype));
}

}  // namespace

uint16_t bf16_from_f32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & ~0x80000000u) > kInfinity) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float f32_from_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

uint16_t f16_from_f32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t size = bits & 0x7fffffff;
  if (size > kInfinity) return static_cast<uint16_t>(sign | 0x7e00 | (size >> 13 & 0x3ff));
  if (size >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // 65520 and more round to infinity
  if (size < 0x38800000) {
    // Below 2^-14 a step is 2^-24: adding 0.5, whose last bit is 2^-24, lets the processor round.
    const float shifted = std::bit_cast<float>(size) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f)));
  }
  const uint32_t rounded = size + 0xfff + (size >> 13 & 1);
  return static_cast<uint16_t>(sign | ((rounded - (uint32_t{112} << 23)) >> 13));
}

float f32_from_f16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = bits >> 10 & 0x1f;
  const uint32_t fraction = bits & 0x3ff;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | kInfinity | fraction << 13);
  if (exponent == 0) {
    const float size = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(size));
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

Status to_f32(DType dtype, std::span<const std::byte> bytes, std::span<float> into) {
  if (dtype != DType::f16 && dtype != DType::bf16 && dtype != DType::f32 && dtype != DType::f64)
    return no_float(dtype);
  LOOM_TRY(check_length(dtype, bytes.size(), into.size()));
  switch (dtype) {
    case DType::f16: load<uint16_t>(bytes, into, f32_from_f16); break;
    case DType::bf16: load<uint16_t>(bytes, into, f32_from_bf16); break;
    case DType::f64: load<double>(bytes, into, [](double v) { return static_cast<float>(v); }); break;
    default:
      if (!into.empty()) std::memcpy(into.data(), bytes.data(), bytes.size());
  }
  return {};
}

Status from_f32(DType dtype, std::span<const float> values, std::span<std::byte> into) {
  if (dtype != DType::f16 && dtype != DType::bf16 && dtype != DType::f32 && dtype != DType::f64)
    return no_float(dtype);
  LOOM_TRY(check_length(dtype, into.size(), values.size()));
  switch (dtype) {
    case DType::f16: store<uint16_t>(values, into, f16_from_f32); break;
    case DType::bf16: store<uint16_t>(values, into, bf16_from_f32); break;
    case DType::f64: store<double>(values, into, [](float v) { return static_cast<double>(v); }); break;
    default:
      if (!into.empty()) std::memcpy(into.data(), values.data(), into.size());
  }
  return {};
}

}  // namespace loom::format
